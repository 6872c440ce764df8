"""The one-pass reduction: ``X X^T`` from a single read of the source.

Where n x n numbers fit in memory, Algorithm 1 runs on ``A = X X^T`` instead of `X`: blocks are
symmetric positive semidefinite, so ``G = H``, and the trace of the first p diagonal entries is the
explained variance itself.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
from threadpoolctl import threadpool_limits

from streamsvd.errors import OptionError
from streamsvd.ingest import LARGEST, Preprocessing, StripReader, refuse_constant
from streamsvd.kernels import Array
from streamsvd.sources import Source

BLOCK_BYTES = 32 * 2**20
"""Samples are multiplied in blocks of about so many bytes."""

PANEL = 256
"""Rows of the Gram matrix that one task computes."""


def block_samples(n_features: int) -> int:
    """Samples in a block: a function of `n` alone, so that sums have one order for any chunking."""
    return max(64, BLOCK_BYTES // (8 * n_features))


def gram_matrix(
    source: Source,
    center: str | None,
    normalize: str | None,
    step: int | None = None,
    n_threads: int = 1,
    on_samples: Callable[[int], None] = lambda n: None,
) -> tuple[Array, Preprocessing]:
    """``X X^T`` of the centred and scaled source, in one pass, and what was learned on the way.

    Accumulated in float64 from data shifted by the first sample, so that a large offset costs no
    digits and a constant feature has a variance of exactly zero. The same bits for any chunking
    and any number of threads: blocks of samples are fixed by `n`, panels of the result by `PANEL`,
    and each panel is one serial BLAS call at a time.

    Returns
    -------
    gram : (n, n) float64 array
        Symmetric.
    preprocessing : Preprocessing
        With the fitted mean and scale.

    Notes
    -----
    Cost: one read of the source and ``n^2 N`` operations. Memory: ``8 n^2`` bytes, a block and two
    strips of samples.
    """
    if center == "features" and normalize == "samples":
        raise OptionError(
            'center="features" with normalize="samples" needs the means before the norms, two '
            'passes: not with reduction="gram"'
        )
    n, n_samples = source.n_features, source.n_samples
    of_features = "features" in (center, normalize)
    gram, sums, shift = np.zeros((n, n)), np.zeros(n), np.zeros(n)
    preprocessing = Preprocessing(center, normalize, np.zeros(n), np.ones(n))
    before = replace(
        preprocessing,
        center="samples" if center == "samples" else None,
        normalize="samples" if normalize == "samples" else None,
    )
    # scores square what are squares already
    reader = StripReader(source, np.dtype(np.float64), step, largest=LARGEST**0.5)
    with ThreadPoolExecutor(n_threads, thread_name_prefix="streamsvd-gram") as pool:
        for start, block in _blocks(reader, before, n_samples, on_samples):
            if of_features and start == 0:
                shift = block[:, 0].copy()
            block -= shift[:, None]
            sums += block.sum(axis=1)
            with threadpool_limits(1, user_api="blas"):
                list(pool.map(lambda r, b=block: _add_panel(gram, b, r), range(0, n, PANEL)))
    for first in range(0, n, PANEL):
        gram[first : first + PANEL, :first] = gram[:first, first : first + PANEL].T
    if of_features:
        _center_and_scale(source, gram, sums, shift, preprocessing)
    return gram, preprocessing


def _add_panel(gram: Array, block: Array, first: int) -> None:
    """Add ``block @ block.T`` to the upper triangle of rows ``first..first + PANEL - 1``."""
    last = first + PANEL
    rows = block[first:last]
    gram[first:last, first:last] += rows @ rows.T
    gram[first:last, last:] += rows @ block[last:].T


def _blocks(
    reader: StripReader,
    before: Preprocessing,
    n_samples: int,
    on_samples: Callable[[int], None],
) -> Iterator[tuple[int, Array]]:
    """The samples of `reader`, cut into blocks of `block_samples` whatever the strips."""
    width = block_samples(reader.source.n_features)
    buffer = np.empty((reader.source.n_features, min(width, n_samples)))
    start = filled = 0
    for _, strip in reader:
        before.apply(strip)
        on_samples(strip.shape[1])
        done = 0
        while done < strip.shape[1]:
            count = min(buffer.shape[1] - filled, strip.shape[1] - done)
            buffer[:, filled : filled + count] = strip[:, done : done + count]
            done, filled = done + count, filled + count
            if filled == buffer.shape[1]:
                yield start, buffer
                start, filled = start + filled, 0
    if filled:
        yield start, np.ascontiguousarray(buffer[:, :filled])


def _center_and_scale(
    source: Source, gram: Array, sums: Array, shift: Array, preprocessing: Preprocessing
) -> None:
    """From sums over ``x - shift`` to what was asked for, in place."""
    n_samples = source.n_samples
    offset = sums / n_samples  # of the mean from the shift
    variance = np.diag(gram) / n_samples - offset**2
    if preprocessing.center == "features":
        preprocessing.mean[:] = shift + offset
    if preprocessing.normalize == "features":
        refuse_constant(source, variance)
        preprocessing.scale[:] = np.sqrt(variance)
    scale = preprocessing.scale
    for first in range(0, len(gram), 64):  # temporaries of n x n would double the memory
        part = slice(first, first + 64)
        if preprocessing.center == "features":
            gram[part] -= n_samples * np.outer(offset[part], offset)
        else:
            # sum of x x' = sum of (x - s)(x - s)' + N (s o' + o s' + s s')
            mixed = np.outer(shift[part], offset) + np.outer(offset[part], shift)
            gram[part] += n_samples * (mixed + np.outer(shift[part], shift))
        if preprocessing.normalize == "features":
            gram[part] /= np.outer(scale[part], scale)
