"""A demonstration on scikit-learn's digits; pictures made of characters."""

import shlex
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from streamsvd.api import sparse_pca
from streamsvd.arrays import Array
from streamsvd.progress import Progress
from streamsvd.result.text import component_table
from streamsvd.storage.outputs import new_output

N_COMPONENTS, MAX_FILL = 8, 0.25


SIDE = 8
"""Pixels of an image in each direction."""


CHUNK = 512
"""Samples in a chunk of the store: four chunks."""


PER_LINE = 4
"""Images side by side; with `Marks` two characters wide these are 73 characters."""


class Marks(NamedTuple):
    """What stands for a number in a picture: two characters, about as wide as high."""

    zero: str
    positive: tuple[str, ...]
    negative: tuple[str, ...]
    """By growing size."""


BLOCKS = Marks(" ·", ("░░", "▒▒", "▓▓", "██"), ("╶╴", "──", "══", "≡≡"))


ASCII = Marks(" .", (" +", "++", "##", "@@"), (" -", "--", "==", "%%"))


def demo(
    out: Path | None = None, marks: Marks = BLOCKS, progress: Progress = None
) -> Iterator[str]:
    """Fit the digits from a store on disk; gives lines to print while it works.

    Everything is written to `out`, or to a temporary folder that is removed at the end.
    """
    if out is not None:
        yield from _demo(out, marks, progress)
    else:
        with tempfile.TemporaryDirectory(prefix="streamsvd-demo-") as folder:
            yield from _demo(Path(folder), marks, progress)
    yield from next_steps(out)


def next_steps(out: Path | None) -> Iterator[str]:
    """Lines to go on with: what was made, data of one's own, Python."""
    how = f"--components {N_COMPONENTS} --max-fill {MAX_FILL}"
    yield from ["", "Next, look closer:", ""]
    if out is None:
        yield "  streamsvd demo --out digits"
        out = Path("digits")
    result, picture = (shlex.quote(str(out / name)) for name in ("result.zarr", "parts.png"))
    yield f"  streamsvd info {result}"
    yield f"  streamsvd plot {result} --image-shape {SIDE} {SIDE} --out {picture}"
    yield from ["", "and at data of your own (.csv and .mat by `streamsvd convert` first):", ""]
    yield f"  streamsvd pca YOURS.h5ad {how} --out yours.zarr"
    yield from ["", "In Python:", ""]
    yield f"  result = streamsvd.sparse_pca(X, {N_COMPONENTS}, max_fill={MAX_FILL})"


def _demo(folder: Path, marks: Marks, progress: Progress) -> Iterator[str]:
    from sklearn.datasets import load_digits

    images = load_digits().data.T
    n, n_samples = images.shape
    store = folder / "digits.zarr"
    with new_output(store, (n, n_samples), (n, CHUNK), images.dtype) as array:
        for start in range(0, n_samples, CHUNK):
            array[:, start : start + CHUNK] = images[:, start : start + CHUNK]
    yield f"{n_samples} images of handwritten digits, {SIDE} x {SIDE} pixels each,"
    yield f"as {n} features x {n_samples} samples in {array.nchunks} chunks of {store}"
    yield f"Finding {N_COMPONENTS} components by sparse_pca, from one pass over the store;"
    yield f"at most {MAX_FILL:.0%} of their loadings may differ from zero ..."
    began = time.perf_counter()
    result = sparse_pca(store, N_COMPONENTS, max_fill=MAX_FILL, progress=progress)
    result.save(folder / "result.zarr")
    yield f"... done in {time.perf_counter() - began:.1f} s, compilation included."
    yield from ["", *component_table(result), ""]
    measured = result.accuracy(store, progress=progress)
    captured, share = measured.captured_variance, measured.captured_of_best or np.nan
    yield "Measured from the store, in one pass:"
    facts = {
        "variance captured by the sparse components": f"{captured:.1%}",
        f"by the first {N_COMPONENTS} of PCA, which have no zeros": f"{captured / share:.1%}",
        "share of what PCA captures": f"{share:.1%}",
        "loadings that are exactly zero": f"{1 - result.fill:.1%}",
        "largest deviation from orthonormality": f"{measured.orthogonality_error:.0e}",
    }
    yield from (f"  {name:<44} {value:>6}" for name, value in facts.items())
    yield from ["", "The components as images:", ""]
    yield from pictures(result.components.toarray(), SIDE, marks)
    yield legend(marks)


# ------------------------------------------------------------------------- pictures in text


def marks_for(encoding: str | None) -> Marks:
    """`BLOCKS` where an output of this encoding can show them, else `ASCII`."""
    try:
        legend(BLOCKS).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return BLOCKS


def legend(marks: Marks) -> str:
    """What the marks mean."""
    positive, negative = " ".join(marks.positive), " ".join(marks.negative)
    return f"positive {positive}   negative {negative}   exactly zero {marks.zero.strip()}"


def pictures(components: Array, side: int, marks: Marks) -> Iterator[str]:
    """Lines that show the rows of `components` (p, side^2) as images, `PER_LINE` side by side."""
    images = [_picture(row.reshape(side, side), marks) for row in components]
    for first in range(0, len(images), PER_LINE):
        for lines in zip(*images[first : first + PER_LINE], strict=True):
            yield "   ".join(lines).rstrip()
        yield ""


def _picture(image: Array, marks: Marks) -> list[str]:
    sizes = np.abs(image) / np.abs(image).max()
    levels = np.ceil(sizes * len(marks.positive)).astype(int) - 1  # -1 for exact zeros only
    return [
        "".join(
            marks.zero if level < 0 else (marks.negative if x < 0 else marks.positive)[level]
            for x, level in zip(values, line, strict=True)
        )
        for values, line in zip(image.tolist(), levels.tolist(), strict=True)
    ]
