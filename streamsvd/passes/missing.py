"""What is missing of a source: means over what is present, and how many values are not.

One pass over moments alone, with the same bits for any chunking and any number of workers. The
mathematics is in `streamsvd.data.missing`.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.data.missing import Filled, Missing, are_missing
from streamsvd.data.source import Source
from streamsvd.kernels.missing import add_present, add_weighted_present
from streamsvd.kernels.sparse import add_sparse_moments, add_weighted_sparse_moments
from streamsvd.options.rules import working_dtype
from streamsvd.passes.moments import moment_leaf
from streamsvd.passes.strips import OnSamples, SparseReader, StripReader
from streamsvd.passes.sum_tree import SumTree
from streamsvd.passes.weighted import total_weight


@dataclass
class Seen:
    """What samples add up to.

    Attributes
    ----------
    shift : (n,) float64 array
        The first value of each feature, 0 where there is none: with it a large mean costs no
        digits, and that of a constant feature is exact.
    total : (n,) float64 array
        The sum of the values less the shift.
    present : (n,) int64 array
        How many values there are.
    weight : (n,) float64 array or None
        What their samples weigh; `shift` is then of one that weighs something, `total` is
        weighted.
    """

    shift: Array
    total: Array
    present: Array
    weight: Array | None = None

    @property
    def counted(self) -> Array:
        """The values, each as often as it counts."""
        return self.present if self.weight is None else self.weight

    def __add__(self, other: "Seen") -> "Seen":
        shift = np.where(self.counted > 0, self.shift, other.shift)
        moved = other.total + other.counted * (other.shift - shift)
        both = None if self.weight is None else self.weight + other.counted
        return Seen(shift, self.total + moved, self.present + other.present, both)

    def missing(self, n_samples: int, weight: float) -> Missing:
        """What it says of the samples, once all are in it; they weigh `weight`."""
        counted = self.counted
        mean = self.shift + self.total / np.where(counted > 0, counted, 1)
        share = None if self.weight is None else self.weight / weight
        # where the pass that uses the values finds infinite ones, it is to name these
        mean = np.where(np.isfinite(mean), mean, 0.0)
        return Missing.of(mean, n_samples - self.present, n_samples, share)


class _AnyStrips(StripReader):
    """Values may be missing; what else is wrong with them is found by the pass that uses them."""

    def _check(self, *_: object) -> None:
        pass


class _AnySparse(SparseReader):
    def _check(self, *_: object) -> None:
        pass


def find_missing(source: Filled, on_samples: OnSamples = lambda n: None) -> Missing:
    """Count what is missing of each feature, and take its mean over what is not, in one pass.

    Notes
    -----
    Cost: one read of the source and some operations for each number (of what is stored, where the
    source is sparse). Memory: two strips of samples.
    """
    whole, n_samples = source.whole, source.n_samples
    leaf = moment_leaf(n_samples)
    seen = seen_in(whole, source.code, leaf, 0, n_samples, on_samples)
    return seen.missing(n_samples, total_weight(whole, leaf))


def seen_in(
    source: Source,
    code: float,
    leaf: int,
    start: int,
    stop: int,
    on_samples: OnSamples = lambda n: None,
) -> Seen:
    """What the samples ``start..stop-1`` add up to: in leaves, and these in a tree.

    `start` begins a leaf, of `leaf` samples.
    """
    tree, n = SumTree(), source.n_features
    reader: StripReader
    begin: type[_DenseLeaf] | type[_SparseLeaf]
    if source.reads_sparse:
        reader, begin = _AnySparse(source, start=start, stop=stop), _SparseLeaf
    else:
        dtype = working_dtype(source.dtype)
        reader, begin = _AnyStrips(source, dtype, start=start, stop=stop), _DenseLeaf
    is_weighted = source.sample_weights is not None
    now = begin(n, is_weighted)
    with np.errstate(invalid="ignore", over="ignore"):  # what is infinite is named later
        for first, strip in reader:
            done, count = 0, strip.shape[0 if source.reads_sparse else 1]
            weights = source.weights_of_samples(first, first + count)
            while done < count:
                end = min(count, done + leaf - (first + done - start) % leaf)
                now.add(strip, done, end, code, weights)
                done = end
                if (first + done - start) % leaf == 0 or first + done == stop:
                    tree.add(now.close())
                    now = begin(n, is_weighted)
            on_samples(count)
        seen: Seen = tree.total()
    return seen


class _DenseLeaf:
    """Samples (n, c) that are added up in their order."""

    def __init__(self, n: int, is_weighted: bool) -> None:
        weight = np.zeros(n) if is_weighted else None
        self.seen = Seen(np.zeros(n), np.zeros(n), np.zeros(n, dtype=np.int64), weight)

    def add(self, strip: Array, first: int, stop: int, code: float, weights: Array | None) -> None:
        """Add the samples ``first..stop-1`` of a strip, which has `weights`."""
        seen, code = self.seen, strip.dtype.type(code)
        sums = (seen.shift, seen.total, seen.present)
        if weights is None:
            add_present(strip, first, stop, code, *sums)
        else:
            add_weighted_present(strip, first, stop, code, weights, *sums, seen.weight)

    def close(self) -> Seen:
        """What they add up to."""
        return self.seen


class _SparseLeaf:
    """CSR samples (c, n): what is stored is added up in its order, and the zeros in the end."""

    def __init__(self, n: int, is_weighted: bool) -> None:
        self._shift, self._moments = np.zeros(n), np.zeros((3, n))
        self._missing, self._count = np.zeros(n, dtype=np.int64), 0
        # what samples weigh, those without a value, and how many of either weigh something
        self._weight, self._absent = 0.0, np.zeros(n)
        self._n_weighing, self._n_absent = 0, np.zeros(n, dtype=np.int64)
        self._is_weighted = is_weighted

    def add(
        self,
        samples: sparse.csr_array,
        first: int,
        stop: int,
        code: float,
        weights: Array | None,
    ) -> None:
        """Add the samples ``first..stop-1`` of a strip, which has `weights`."""
        entries = slice(samples.indptr[first], samples.indptr[stop])
        features, values = samples.indices[entries], samples.data[entries]
        lacks = are_missing(values, code)
        self._missing += np.bincount(features[lacks], minlength=len(self._missing))
        self._count += stop - first
        if weights is not None:
            weights = weights[first:stop]
            own = np.repeat(weights, np.diff(samples.indptr[first : stop + 1]))
            self._weigh(features, lacks, own)
            self._weight += float(weights.sum())
            self._n_weighing += int(np.count_nonzero(weights))
            lacks |= own == 0.0
        features, values = features[~lacks], values[~lacks]
        new = np.flatnonzero(self._moments[2][features] == 0)[::-1]  # of several, the last stays
        self._shift[features[new]] = values[new]
        if weights is None:
            whole = np.array([0, len(features)])
            add_sparse_moments(whole, features, values, self._shift, self._moments)
        else:
            each = np.arange(len(features) + 1)  # a sample for each entry, with its weight
            asked = (each, features, values, own[~lacks])
            add_weighted_sparse_moments(*asked, self._shift, self._moments)

    def _weigh(self, features: Array, lacks: Array, own: Array) -> None:
        """Add what entries without a value weigh; `own` are the weights of all entries."""
        n = len(self._missing)
        self._absent += np.bincount(features[lacks], own[lacks], minlength=n)
        self._n_absent += np.bincount(features[lacks & (own > 0)], minlength=n)

    def close(self) -> Seen:
        """What they add up to."""
        present = self._count - self._missing
        if not self._is_weighted:
            n_zeros = present - self._moments[2]
            return Seen(self._shift, self._moments[0] - n_zeros * self._shift, present)
        left = np.maximum(self._weight - self._absent, 0.0)
        weight = np.where(self._n_absent < self._n_weighing, left, 0.0)
        zeros = np.maximum(weight - self._moments[2], 0.0)
        return Seen(self._shift, self._moments[0] - zeros * self._shift, present, weight)
