r"""Weights of samples: frequencies, as if sample j were there :math:`w_j` times.

All sums over samples have their terms multiplied by the weights, and their number N becomes
:math:`W = \sum_j w_j`: means are :math:`\sum_j w_j x_{ij} / W`, variances and the scale of features
have the divisor W, explained variances W - 1, and ``X X^T`` is :math:`\sum_j w_j y_j y_j'` of the
samples y, centred and scaled. So the result is that of samples that are repeated, where weights
are integers, and goes on between these. What is done to a sample by itself, its scores for one,
does not depend on its weight.
"""

import numpy as np
from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.data.source import Source
from streamsvd.passes.sum_tree import SumTree


def total_weight(source: Source, leaf: int) -> float:
    """`W`; without weights the number of samples.

    Added up as what is stored of sparse samples is, in leaves of so many and these in a tree: a
    feature that no sample lacks has this weight to the last bit.
    """
    weights = source.sample_weights
    if weights is None:
        return source.n_samples
    tree = SumTree()
    for first in range(0, len(weights), leaf):
        tree.add(np.add.accumulate(weights[first : first + leaf])[-1:].copy())
    return float(tree.total()[0])


def first_weighed(source: Source) -> int:
    """The first sample that counts: the shift of all sums, so that what is constant stays so."""
    weights = source.sample_weights
    return 0 if weights is None else int(np.flatnonzero(weights)[0])


def weigh_samples(strip: Array, weights: Array | None) -> None:
    """Multiply the samples of `strip` (n, c) by the roots of their weights, in place."""
    if weights is not None:
        strip *= np.sqrt(weights)


def rooted(samples: sparse.csr_array, weights: Array | None) -> Array:
    """What is stored of `samples` (c, n), times the roots of their weights."""
    if weights is None:
        return np.asarray(samples.data)
    return np.asarray(samples.data * np.repeat(np.sqrt(weights), np.diff(samples.indptr)))
