"""Signs and order of components: each is known up to its sign."""

from itertools import pairwise

import numpy as np
from scipy import sparse

from streamsvd.arrays import Array


def signs_of(rows: sparse.csr_array) -> Array:
    """+-1 for each row, such that its largest entry by absolute value becomes positive."""
    bounds = pairwise(rows.indptr)
    largest = [rows.data[a:b][np.argmax(np.abs(rows.data[a:b]))] for a, b in bounds]
    return np.where(np.array(largest) < 0, -1.0, 1.0)


def signed_rows(rows: sparse.csr_array, order: Array, signs: Array) -> sparse.csr_array:
    """Rows of a CSR matrix times +-1, in the given order."""
    lengths = np.diff(rows.indptr)
    signed = rows.data * np.repeat(signs, lengths)
    take = np.concatenate([np.arange(rows.indptr[i], rows.indptr[i + 1]) for i in order])
    indptr = np.concatenate([[0], np.cumsum(lengths[order])])
    return sparse.csr_array((signed[take], rows.indices[take], indptr), shape=rows.shape)
