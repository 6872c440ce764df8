"""Ingest: one pass over the source into the working matrix, checking, centring and scaling."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
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

    def before(self) -> "Preprocessing":
        """What can be done to samples before statistics of the features are known."""
        of_samples = self.normalize == "samples" and self.center != "features"
        return replace(
            self,
            center="samples" if self.center == "samples" else None,
            normalize="samples" if of_samples else None,
        )

    def after(self) -> "Preprocessing":
        """What `before` leaves to do."""
        before = self.before()
        return replace(
            self,
            center=None if before.center else self.center,
            normalize=None if before.normalize else self.normalize,
        )

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

    The samples are summed up in leaves of `moment_leaf` samples, and the leaves in order: so are
    those of several workers, each of which has whole leaves.

    Parameters
    ----------
    n_features, n_samples : int
        Of all the data.
    shift : (n,) array, optional
        Subtracted first; the first sample by default. With a value of the same feature, a large
        mean costs no digits, and a constant feature has sums of exactly zero.
    """

    def __init__(self, n_features: int, n_samples: int, shift: Array | None = None) -> None:
        self.shift = None if shift is None else np.array(shift, dtype=np.float64)
        self.leaves: list[Array] = []
        self._leaf, self._n_samples = moment_leaf(n_samples), n_samples
        self._lanes = np.zeros((2, n_features, LANES))
        self._sums = np.zeros((2, n_features))

    def add(self, start: int, strip: Array, stop: int | None = None) -> None:
        """Add ``strip[:, :stop]``, of which the first is sample `start`. Samples come in order."""
        if self.shift is None:
            self.shift = strip[:, 0].astype(np.float64)
        done, stop = 0, strip.shape[1] if stop is None else stop
        while done < stop:
            end = min(stop, done + self._leaf - (start + done) % self._leaf)
            add_moments(strip, done, end, start, self.shift, self._lanes, self._sums)
            done = end
            if (start + done) % self._leaf == 0 or start + done == self._n_samples:
                self._close_leaf()

    def _close_leaf(self) -> None:
        for i in range(self._sums.shape[1]):
            flush_lanes(self._lanes, self._sums, i)
        self.leaves.append(self._sums.copy())
        self._sums[:] = 0.0


def moment_leaf(n_samples: int) -> int:
    """Samples in a leaf of `Moments`: at most 256 leaves, whatever reads them."""
    return LANES * max(8, -(-n_samples // (256 * LANES)))


def add_up(leaves: Iterable[Array]) -> Array:
    """Sums of ``x - shift`` and of its square, (2, n), from all leaves in order."""
    total: Array | float = 0.0
    for leaf in leaves:
        total = total + leaf
    return np.asarray(total)


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
        step = self.step
        # whole chunks of the source, also where `start` is inside of one
        cuts = range(self.start - self.start % step, self.stop, step)
        bounds = [(max(a, self.start), min(a + step, self.stop)) for a in cuts]
        # The next strip is read, decoded and checked while the caller works on this one.
        with ThreadPoolExecutor(1, thread_name_prefix="streamsvd-read") as reader:
            coming = reader.submit(self._read, *bounds[0])
            for k, (start, _) in enumerate(bounds):
                strip = coming.result()
                if k + 1 < len(bounds):
                    coming = reader.submit(self._read, *bounds[k + 1])
                yield start, strip
        if 0 < self._largest < 1 / self.limit:
            raise SourceError(
                f"no value of {self.source.name} is larger than {self._largest:.3g}, below "
                f"{1 / self.limit:.0e} where squares vanish; rescale the data"
            )

    def _read(self, start: int, stop: int) -> Array:
        strip = self.source.read(start, stop, self.dtype)
        self._check(start, strip)
        return strip

    def _check(self, start: int, strip: Array) -> None:
        low, high = float(strip.min()), float(strip.max())
        if not np.isfinite(low) or not np.isfinite(high):  # a NaN makes both NaN
            sample, feature = np.argwhere(~np.isfinite(strip.T))[0]
            found = "NaN" if np.isnan(strip[feature, sample]) else strip[feature, sample]
            raise SourceError(
                f"{self.source.name} holds {found} at feature {feature}, "
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
    columns = Ingest(source, working, center, normalize)
    leaves = columns.read(None, step, on_samples)
    preprocessing = learn(
        source.name, center, normalize, add_up(leaves), columns.shift, source.n_samples
    )
    if "features" in (center, normalize):
        leaves = columns.settle(preprocessing)
    return preprocessing, add_up(leaves)[1]


class Ingest:
    """The samples from `start` on, as many as `working` holds, on their way into it."""

    def __init__(
        self,
        source: Source,
        working: WorkingMatrix,
        center: str | None,
        normalize: str | None,
        start: int = 0,
    ) -> None:
        n = source.n_features
        self._source, self._working, self._start = source, working, start
        self._of_features = "features" in (center, normalize)
        self.shift = np.zeros(n)
        self._before = Preprocessing(center, normalize, np.zeros(n), np.ones(n)).before()

    def first_sample(self) -> Array:
        """The shift for all workers."""
        strip = self._source.read(0, 1, self._working.dtype)
        self._before.apply(strip)
        return strip[:, 0].astype(np.float64)

    def read(
        self, shift: Array | None, step: int | None, on_samples: OnSamples = lambda n: None
    ) -> list[Array]:
        """Read the samples into the working matrix; the leaves of their moments.

        `shift` is that of the whole data, by default the first sample read. It is not used, and
        zero, where nothing is learned of the features.
        """
        source, start = self._source, self._start
        if not self._of_features:
            shift = self.shift
        moments = Moments(source.n_features, source.n_samples, shift)
        stop = start + self._working.n_samples
        reader = StripReader(source, self._working.dtype, step, start=start, stop=stop)
        with self._working.write_behind() as write:
            for first, strip in reader:
                self._before.apply(strip)
                write(first - start, strip)
                moments.add(first, strip)
                on_samples(strip.shape[1])
        if moments.shift is not None:
            self.shift = moments.shift
        return moments.leaves

    def settle(self, preprocessing: Preprocessing) -> list[Array]:
        """Do to the samples what needed statistics of the features; the leaves anew."""
        after = preprocessing.after()
        n = self._source.n_features
        moments = Moments(n, self._source.n_samples, np.zeros(n))
        for first, stop, block in self._working.sweep():
            after.apply(block)
            moments.add(self._start + first, block, stop - first)
        return moments.leaves


def learn(
    name: str,
    center: str | None,
    normalize: str | None,
    moments: Array,
    shift: Array,
    n_samples: int,
) -> Preprocessing:
    """Mean and scale of the features from their moments, where they are asked for."""
    mean, scale = np.zeros(len(shift)), np.ones(len(shift))
    sums, squares = moments
    mean_shift = sums / n_samples
    if center == "features":
        mean += shift + mean_shift
    if normalize == "features":
        variance = squares / n_samples - mean_shift**2
        refuse_constant(name, variance)
        scale *= np.sqrt(variance)
    return Preprocessing(center, normalize, mean, scale)


def refuse_constant(name: str, variance: Array) -> None:
    """Refuse to divide by the standard deviation of features that have none."""
    constant = np.flatnonzero(variance <= 0)
    if len(constant):
        which = ", ".join(str(i) for i in constant[:5]) + (", ..." if len(constant) > 5 else "")
        raise SourceError(
            f"{len(constant)} feature(s) of {name} are constant and cannot be scaled to "
            f'unit variance: {which}; drop them, or do not pass normalize="features"'
        )
