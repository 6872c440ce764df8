"""Ingest: one pass over the source into the working matrix, checking, centring and scaling."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamsvd.errors import SourceError
from streamsvd.kernels import Array
from streamsvd.plan import strip_width
from streamsvd.sources import Source
from streamsvd.sweeps import LANES, add_moments, center_samples, flush_lanes, normalize_samples
from streamsvd.working import WorkingMatrix

LARGEST = 1e140
"""Scores square the entries: beyond this size, and below its inverse, squares leave float64."""

OnSamples = Callable[[int], None]


@dataclass(frozen=True)
class Preprocessing:
    """How samples are centred and scaled, in this order, with what was learned from the data.

    Attributes
    ----------
    center, normalize : {None, "features", "samples"}
        ``"features"``: by the fitted `mean` and `scale`; ``"samples"``: each sample by its own
        mean over the features and its own Euclidean norm, as in the paper.
    mean, scale : (n,) float64 arrays
        Zeros and ones where they are not used.
    """

    center: str | None
    normalize: str | None
    mean: Array
    scale: Array

    def apply(self, strip: Array) -> None:
        """Centre and scale the samples of `strip` (n, c), C-contiguous, in place."""
        if self.center == "features":
            strip -= self.mean[:, None]
        elif self.center == "samples":
            center_samples(strip)
        if self.normalize == "features":
            strip /= self.scale[:, None]
        elif self.normalize == "samples":
            normalize_samples(strip)


class Moments:
    """Sums and sums of squares of each feature, the same bits for any chunking of the samples.

    Parameters
    ----------
    shift : (n,) array
        Subtracted first. With a value of the same feature, a large mean costs no digits, and a
        constant feature has sums of exactly zero.
    """

    def __init__(self, shift: Array) -> None:
        self.shift = np.array(shift, dtype=np.float64)
        self._lanes = np.zeros((2, len(shift), LANES))
        self._sums = np.zeros((2, len(shift)))

    def add(self, start: int, strip: Array, stop: int | None = None) -> None:
        """Add ``strip[:, :stop]``, of which the first is sample `start`. Samples come in order."""
        stop = strip.shape[1] if stop is None else stop
        add_moments(strip, stop, start, self.shift, self._lanes, self._sums)

    def totals(self) -> tuple[Array, Array]:
        """Sums of ``x - shift`` and of its square, (n,) each. The last call to make."""
        for i in range(len(self.shift)):
            flush_lanes(self._lanes, self._sums, i)
        return self._sums[0], self._sums[1]


class StripReader:
    """Samples of `source`, by default all, checked and in order: ``(start, strip)``.

    Strips are C-contiguous (n, c) arrays of `dtype` that the caller may change.
    """

    def __init__(
        self,
        source: Source,
        dtype: np.dtype[Any],
        step: int | None = None,
        largest: float = LARGEST,
        start: int = 0,
        stop: int | None = None,
    ) -> None:
        self.source, self.dtype, self.limit = source, dtype, largest
        self.step = step or strip_width(source.n_features, source.n_samples, source.chunk)
        self._largest = 0.0
        self.start, self.stop = start, source.n_samples if stop is None else stop

    def __iter__(self) -> Iterator[tuple[int, Array]]:
        source, step = self.source, self.step
        # whole chunks of the source, also where `start` is inside of one
        cuts = range(self.start - self.start % step, self.stop, step)
        bounds = [(max(a, self.start), min(a + step, self.stop)) for a in cuts]
        # The next strip is read and decoded while the caller works on this one.
        with ThreadPoolExecutor(1, thread_name_prefix="streamsvd-read") as reader:
            coming = reader.submit(source.read, *bounds[0], self.dtype)
            for k, (start, _) in enumerate(bounds):
                strip = coming.result()
                if k + 1 < len(bounds):
                    coming = reader.submit(source.read, *bounds[k + 1], self.dtype)
                self._check(start, strip)
                yield start, strip
        if 0 < self._largest < 1 / self.limit:
            raise SourceError(
                f"no value of {source.name} is larger than {self._largest:.3g}, below "
                f"{1 / self.limit:.0e} where squares vanish; rescale the data"
            )

    def _check(self, start: int, strip: Array) -> None:
        low, high = float(strip.min()), float(strip.max())
        if not np.isfinite(low) or not np.isfinite(high):  # a NaN makes both NaN
            sample, feature = np.argwhere(~np.isfinite(strip.T))[0]
            raise SourceError(
                f"{self.source.name} holds {strip[feature, sample]} at feature {feature}, "
                f"sample {start + sample} (as {self.dtype.name}); replace or drop such values first"
            )
        self._largest = max(self._largest, high, -low)
        if self._largest > self.limit:
            raise SourceError(
                f"{self.source.name} holds values as large as {self._largest:.3g}, beyond "
                f"{self.limit:.0e} whose squares overflow; rescale the data"
            )


def ingest(
    source: Source,
    working: WorkingMatrix,
    center: str | None,
    normalize: str | None,
    step: int | None = None,
    on_samples: OnSamples = lambda n: None,
) -> tuple[Preprocessing, Array]:
    """Fill the working matrix from the source.

    Each sample is read once, `step` at a time. What needs statistics of the features is
    done in a second pass, over the working matrix.

    Returns
    -------
    preprocessing : Preprocessing
        With the fitted mean and scale.
    energies : (n,) array
        Sum of squares of each row of the working matrix.
    """
    n = source.n_features
    of_features = "features" in (center, normalize)
    mean, scale = np.zeros(n), np.ones(n)
    preprocessing = Preprocessing(center, normalize, mean, scale)
    # What is done to the samples before statistics of the features are known.
    before = Preprocessing(
        center if center == "samples" else None,
        normalize if normalize == "samples" and center != "features" else None,
        mean,
        scale,
    )
    moments = Moments(np.zeros(n))
    with working.write_behind() as write:
        for start, strip in StripReader(source, working.dtype, step):
            before.apply(strip)
            if of_features and start == 0:
                moments = Moments(strip[:, 0])
            write(start, strip)
            moments.add(start, strip)
            on_samples(strip.shape[1])
    sums, squares = moments.totals()
    if not of_features:
        return preprocessing, squares
    mean_shift = sums / source.n_samples
    if center == "features":
        mean += moments.shift + mean_shift
    if normalize == "features":
        variance = squares / source.n_samples - mean_shift**2
        refuse_constant(source.name, variance)
        scale *= np.sqrt(variance)
    after = Preprocessing(
        center if center == "features" else None,
        normalize if not before.normalize else None,
        mean,
        scale,
    )
    energies = Moments(np.zeros(n))
    for start, stop, block in working.sweep():
        after.apply(block)
        energies.add(start, block, stop - start)
    return preprocessing, energies.totals()[1]


def refuse_constant(name: str, variance: Array) -> None:
    """Refuse to divide by the standard deviation of features that have none."""
    constant = np.flatnonzero(variance <= 0)
    if len(constant):
        which = ", ".join(str(i) for i in constant[:5]) + (", ..." if len(constant) > 5 else "")
        raise SourceError(
            f"{len(constant)} feature(s) of {name} are constant and cannot be scaled to "
            f'unit variance: {which}; drop them, or do not pass normalize="features"'
        )
