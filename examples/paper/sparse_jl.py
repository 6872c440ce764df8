"""Sparse Johnson-Lindenstrauss projections: random, without a look at the data."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def sparse_jl(n_features: int, n_components: int, s: int, random: np.random.Generator) -> Array:
    """(n, p) projection with exactly `s` nonzeros ``+-1 / sqrt(s)`` for each feature.

    Rows are unit vectors, and the expectation of ``|P^T x|^2`` is ``|x|^2``. The fill is ``s / p``.

    D. M. Kane and J. Nelson, "Sparser Johnson-Lindenstrauss transforms", Journal of the ACM 61,
    2014: the construction that draws positions without replacement.
    """
    if not 1 <= s <= n_components:
        raise ValueError(f"s must be from 1 to n_components={n_components}; got {s}")
    places = random.permuted(np.tile(np.arange(n_components), (n_features, 1)), axis=1)[:, :s]
    signs = random.choice([-1.0, 1.0], size=places.shape)
    projection = np.zeros((n_features, n_components))
    np.put_along_axis(projection, places, signs / np.sqrt(s), axis=1)
    return projection
