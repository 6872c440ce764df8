"""Ingest: one pass over the source into the working matrix, checking, centring and scaling."""

from dataclasses import dataclass, replace

import numpy as np

from streamsvd.arrays import Array
from streamsvd.data.source import Source
from streamsvd.matrix.working import WorkingMatrix
from streamsvd.passes.moments import Moments, add_up, moment_leaf
from streamsvd.passes.preprocessing import Preprocessing, learn
from streamsvd.passes.strips import OnSamples, StripReader
from streamsvd.passes.weighted import first_weighed, total_weight, weigh_samples


@dataclass(frozen=True)
class Ingested:
    """What is known of a source once it was read.

    Attributes
    ----------
    preprocessing : Preprocessing
        With the fitted mean and scale.
    energies : (n,) array
        Sum of squares of each feature, centred and scaled.
    initial : (p,) array
        The first `p` diagonal entries of the working matrix.
    """

    preprocessing: Preprocessing
    energies: Array
    initial: Array

    @property
    def total(self) -> float:
        """Sum of squares of all."""
        return float(self.energies.sum())


def ingest(
    source: Source,
    working: WorkingMatrix,
    center: str | None,
    normalize: str | None,
    width: int | None = None,
    on_samples: OnSamples = lambda n: None,
) -> tuple[Preprocessing, Array]:
    """Fill the working matrix from the source.

    Each sample is read once, `width` at a time. What needs statistics of the features is
    done in a second pass, over the working matrix: `n_passes` tells. In the end samples that are
    weighted are multiplied by the roots of their weights.

    Returns
    -------
    preprocessing : Preprocessing
        With the fitted mean and scale.
    energies : (n,) array
        Sum of squares of each row of the working matrix.
    """
    columns = Ingest(source, working, center, normalize)
    shift = None if source.sample_weights is None else columns.first_sample()
    leaves = columns.read(shift, width, on_samples)
    moments = (add_up(leaves), columns.shift, total_weight(source, moment_leaf(source.n_samples)))
    preprocessing = learn(source.name, center, normalize, *moments, source.present)
    if n_passes(center, normalize) == 2:
        leaves = columns.settle(preprocessing, on_samples)
    return preprocessing, add_up(leaves)[1]


def n_passes(center: str | None, normalize: str | None) -> int:
    """How often samples go by until they are in the working matrix."""
    return 2 if "features" in (center, normalize) else 1


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
        asked = replace(
            Preprocessing.unlearned(center, normalize, n), weights=source.present.weights
        )
        self._before = asked.before()

    def first_sample(self) -> Array:
        """The shift for all workers."""
        first = first_weighed(self._source)
        strip = self._source.read(first, first + 1, self._working.dtype)
        self._before.apply(strip)
        return strip[:, 0].astype(np.float64)

    def read(
        self, shift: Array | None, width: int | None, on_samples: OnSamples = lambda n: None
    ) -> list[Array]:
        """Read the samples into the working matrix; the leaves of their moments.

        `shift` is that of the whole data, by default the first sample read. It is not used, and
        zero, where nothing is learned of the features.
        """
        source, start = self._source, self._start
        if not self._of_features:
            shift = self.shift
        is_last = not self._of_features
        moments = Moments(source.n_features, source.n_samples, shift)
        stop = start + self._working.n_samples
        reader = StripReader(source, self._working.dtype, width, start=start, stop=stop)
        with self._working.write_behind(is_last) as write:
            for first, strip in reader:
                self._before.apply(strip)
                own = source.weights_of_samples(first, first + strip.shape[1])
                if is_last:
                    weigh_samples(strip, own)
                write(first - start, strip)
                moments.add(first, strip, weights=None if is_last else own)
                on_samples(strip.shape[1])
        if moments.shift is not None:
            self.shift = moments.shift
        return moments.leaves

    def settle(
        self, preprocessing: Preprocessing, on_samples: OnSamples = lambda n: None
    ) -> list[Array]:
        """Do to the samples what needed statistics of the features; the leaves anew."""
        after = preprocessing.after()
        n = self._source.n_features
        moments = Moments(n, self._source.n_samples, np.zeros(n))
        for first, stop, chunk in self._working.sweep():
            after.apply(chunk)
            lo = self._start + first
            weigh_samples(
                chunk[:, : stop - first], self._source.weights_of_samples(lo, lo + stop - first)
            )
            moments.add(self._start + first, chunk, stop - first)
            on_samples(stop - first)
        return moments.leaves


def first_sample(source: Source, center: str | None, normalize: str | None) -> Array:
    """The shift of the sums over a source: the first sample that counts, or zeros; (n,).

    Centred and scaled, if samples are.
    """
    if "features" not in (center, normalize):
        return np.zeros(source.n_features)
    working = WorkingMatrix.in_memory(source.n_features, 1, np.dtype(np.float64))
    return Ingest(source, working, center, normalize).first_sample()
