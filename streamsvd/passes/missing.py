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
from streamsvd.kernels.missing import add_present
from streamsvd.kernels.sparse import add_sparse_moments
from streamsvd.options.rules import working_dtype
from streamsvd.passes.moments import moment_leaf
from streamsvd.passes.strips import OnSamples, SparseReader, StripReader
from streamsvd.passes.sum_tree import SumTree


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
    """

    shift: Array
    total: Array
    present: Array

    def __add__(self, other: "Seen") -> "Seen":
        shift = np.where(self.present > 0, self.shift, other.shift)
        moved = other.total + other.present * (other.shift - shift)
        return Seen(shift, self.total + moved, self.present + other.present)

    def missing(self, n_samples: int) -> Missing:
        """What it says of the samples, once all are in it."""
        mean = self.shift + self.total / np.maximum(self.present, 1)
        # where the pass that uses the values finds infinite ones, it is to name these
        return Missing(np.where(np.isfinite(mean), mean, 0.0), n_samples - self.present, n_samples)


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
    return seen_in(whole, source.code, leaf, 0, n_samples, on_samples).missing(n_samples)


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
    now = begin(n)
    with np.errstate(invalid="ignore", over="ignore"):  # what is infinite is named later
        for first, strip in reader:
            done, count = 0, strip.shape[0 if source.reads_sparse else 1]
            while done < count:
                end = min(count, done + leaf - (first + done - start) % leaf)
                now.add(strip, done, end, code)
                done = end
                if (first + done - start) % leaf == 0 or first + done == stop:
                    tree.add(now.close())
                    now = begin(n)
            on_samples(count)
        seen: Seen = tree.total()
    return seen


class _DenseLeaf:
    """Samples (n, c) that are added up in their order."""

    def __init__(self, n: int) -> None:
        self.seen = Seen(np.zeros(n), np.zeros(n), np.zeros(n, dtype=np.int64))

    def add(self, strip: Array, first: int, stop: int, code: float) -> None:
        """Add the samples ``first..stop-1`` of a strip."""
        seen = self.seen
        sums = (seen.shift, seen.total, seen.present)
        add_present(strip, first, stop, strip.dtype.type(code), *sums)

    def close(self) -> Seen:
        """What they add up to."""
        return self.seen


class _SparseLeaf:
    """CSR samples (c, n): what is stored is added up in its order, and the zeros in the end."""

    def __init__(self, n: int) -> None:
        self._shift, self._moments = np.zeros(n), np.zeros((3, n))
        self._missing, self._count = np.zeros(n, dtype=np.int64), 0

    def add(self, samples: sparse.csr_array, first: int, stop: int, code: float) -> None:
        """Add the samples ``first..stop-1`` of a strip."""
        entries = slice(samples.indptr[first], samples.indptr[stop])
        features, values = samples.indices[entries], samples.data[entries]
        lacks = are_missing(values, code)
        self._missing += np.bincount(features[lacks], minlength=len(self._missing))
        self._count += stop - first
        features, values = features[~lacks], values[~lacks]
        new = np.flatnonzero(self._moments[2][features] == 0)[::-1]  # of several, the last stays
        self._shift[features[new]] = values[new]
        whole = np.array([0, len(features)])
        add_sparse_moments(whole, features, values, self._shift, self._moments)

    def close(self) -> Seen:
        """What they add up to."""
        present = self._count - self._missing
        n_zeros = present - self._moments[2]
        return Seen(self._shift, self._moments[0] - n_zeros * self._shift, present)
