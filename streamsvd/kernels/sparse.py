"""Kernels over sparse samples: products, Gram matrix and moments from their nonzeros alone.

Samples are the rows of a CSR matrix, ``indptr`` (c + 1,), ``indices`` and ``data`` (nnz,): features
in ascending order, each once. Sums over samples run in their order, entry by entry, so they have
the same bits however the samples come in pieces and the columns of the results on threads.
"""

import numpy as np

from streamsvd.arrays import Array
from streamsvd.kernels.jit import jit, jit_that_allocates


@jit_that_allocates
def add_sparse_products(
    indptr: Array,
    indices: Array,
    data: Array,
    test: Array,
    products: Array,
    first: int,
    stop: int,
) -> None:
    """Add ``S^T (S @ test)`` to `products`, both (n, r), in the columns ``first..stop-1``.

    Sample by sample: ``products += s (s @ test)``.
    """
    width = stop - first
    scores = np.zeros(width)
    for k in range(indptr.shape[0] - 1):
        scores[:] = 0.0
        for e in range(indptr[k], indptr[k + 1]):
            row, value = test[indices[e]][first:stop], data[e]
            for c in range(width):
                scores[c] += value * row[c]
        for e in range(indptr[k], indptr[k + 1]):
            out, value = products[indices[e]][first:stop], data[e]
            for c in range(width):
                out[c] += value * scores[c]


@jit
def add_sparse_gram(
    indptr: Array, indices: Array, data: Array, gram: Array, turn: int, turns: int
) -> None:
    """Add ``S^T S`` to the lower triangle of `gram` (n, n); rows ``turn``, ``turn + turns``, ..."""
    for k in range(indptr.shape[0] - 1):
        first = indptr[k]
        for e in range(first, indptr[k + 1]):
            i = indices[e]
            if i % turns == turn:
                row, value = gram[i], data[e]
                for f in range(first, e + 1):
                    row[indices[f]] += value * data[f]


@jit
def add_sparse_moments(
    indptr: Array, indices: Array, data: Array, shift: Array, moments: Array
) -> None:
    """Add to ``moments`` (3, n) what is stored: sums of ``x - shift`` and its square, how many."""
    for e in range(indptr[0], indptr[indptr.shape[0] - 1]):
        i = indices[e]
        z = data[e] - shift[i]
        moments[0, i] += z
        moments[1, i] += z * z
        moments[2, i] += 1.0


@jit
def add_weighted_sparse_moments(
    indptr: Array, indices: Array, data: Array, weights: Array, shift: Array, moments: Array
) -> None:
    """The same, each sample so many times; `weights` (c,) are those of the samples."""
    for k in range(indptr.shape[0] - 1):
        w = weights[k]
        for e in range(indptr[k], indptr[k + 1]):
            i = indices[e]
            z = data[e] - shift[i]
            wz = w * z
            moments[0, i] += wz
            moments[1, i] += wz * z
            moments[2, i] += w


@jit
def normalize_sparse(indptr: Array, data: Array) -> None:
    """Divide each sample by its Euclidean norm; a zero sample stays zero."""
    for k in range(indptr.shape[0] - 1):
        norm = 0.0
        for e in range(indptr[k], indptr[k + 1]):
            norm += data[e] * data[e]
        if norm > 0.0:
            norm = np.sqrt(norm)
            for e in range(indptr[k], indptr[k + 1]):
                data[e] = data[e] / norm
