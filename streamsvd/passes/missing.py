"""What is missing of a source: means over what is present, and how many values are not.

One pass over moments alone, with the same bits for any chunking. The mathematics is in
`streamsvd.data.missing`.
"""

import numpy as np

from streamsvd.arrays import Array
from streamsvd.data.missing import Filled, Missing
from streamsvd.kernels.missing import add_present, find_first
from streamsvd.kernels.sparse import add_sparse_moments
from streamsvd.options import working_dtype
from streamsvd.passes.strips import OnSamples, SparseReader, StripReader


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
    sums = _of_sparse if source.reads_sparse else _of_dense
    with np.errstate(invalid="ignore", over="ignore"):  # what is infinite is named later
        shift, total, counts = sums(source, on_samples)
        mean = shift + total / np.maximum(source.n_samples - counts, 1)
    return Missing(np.where(np.isfinite(mean), mean, 0.0), counts, source.n_samples)


def _of_dense(source: Filled, on_samples: OnSamples) -> tuple[Array, Array, Array]:
    """The first value of each feature, the sum of its values less that, how many are missing."""
    whole = source.whole
    n, dtype = whole.n_features, working_dtype(whole.dtype)
    code, counts = dtype.type(source.code), np.zeros(n, dtype=np.int64)
    first, is_known = np.zeros(n, dtype), np.zeros(n, dtype=bool)
    sums = np.zeros((2, n))
    for start, strip in _AnyStrips(whole, dtype):
        find_first(strip, code, first, is_known)
        add_present(strip, start, code, first, sums, counts)
        on_samples(strip.shape[1])
    return first.astype(np.float64), sums.sum(axis=0), counts


def _of_sparse(source: Filled, on_samples: OnSamples) -> tuple[Array, Array, Array]:
    """The same of a source that is sparse: what is not stored is zero."""
    whole = source.whole
    n = whole.n_features
    first, is_known = np.zeros(n), np.zeros(n, dtype=bool)
    moments, counts = np.zeros((3, n)), np.zeros(n, dtype=np.int64)
    for _, samples in _AnySparse(whole):
        lacks = source.lacks(samples.data)
        counts += np.bincount(samples.indices[lacks], minlength=n)
        there, values = samples.indices[~lacks], samples.data[~lacks]
        new = np.flatnonzero(~is_known[there])[::-1]  # of those that are written, the last stays
        first[there[new]] = values[new]
        is_known[there] = True
        add_sparse_moments(np.array([0, len(there)]), there, values, first, moments)
        on_samples(samples.shape[0])
    n_zeros = whole.n_samples - counts - moments[2]
    return first, moments[0] - n_zeros * first, counts
