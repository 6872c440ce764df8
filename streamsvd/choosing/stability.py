"""How often each feature is chosen when the components are fitted again, to parts of the samples.

Meinshausen and Buehlmann, "Stability selection" (2010); on complementary halves as in Shah and
Samworth, "Variable selection with error control" (2013).
"""

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from streamsvd.arrays import Array


def stability_of(
    components: sparse.csr_array, others: Sequence[sparse.csr_array]
) -> sparse.csr_array:
    """The share of fits in which feature j is in the support of component c.

    Parameters
    ----------
    components : (p, n) csr_array
        Orthonormal rows.
    others : sequence of (p, n) csr_array
        Those of the other fits, in any order and of any sign.

    Returns
    -------
    (p, n) csr_array of float64
        From 0, which is not stored, to 1.
    """
    chosen = sparse.csr_array(components.shape)
    for rows in others:
        matched = rows[matching(components, rows)]
        chosen = chosen + sparse.csr_array(
            (np.ones(matched.nnz), matched.indices, matched.indptr), shape=matched.shape
        )
    chosen.sum_duplicates()
    chosen.data /= len(others)
    return chosen


def matching(components: sparse.csr_array, rows: sparse.csr_array) -> Array:
    """Which of `rows` stands for each of the components: the pairs that correlate most, in sum."""
    from scipy.optimize import linear_sum_assignment  # slow, and not needed by every fit

    _, found = linear_sum_assignment(-np.abs((components @ rows.T).toarray()))
    return found
