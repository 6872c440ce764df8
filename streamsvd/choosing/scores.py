r"""How good components are on samples that they were not fitted to.

*Explained variance.* Of samples left out, with ``T = X X^T``, the components (columns of `U`)
reconstruct ``trace(U^T T U) / trace(T)``. The reconstruction of a feature uses that feature itself:
one more component never has less of it, so it cannot tell how many there are.

*Predicted variance.* Each feature of a sample is predicted from its other features alone (the
scheme that Bro, Kjeldahl, Smilde and Kiers recommend among those they compare: "Cross-validation of
component models: a critical look at current methods", Anal. Bioanal. Chem. 390, 2008; they predict
by least squares). The prediction is that of probabilistic PCA (Tipping and Bishop, 1999) with these
components: samples are normal with the covariance

    C = sum_c (v_c - s) u_c u_c^T + s I,

`v_c` the variance of the scores of component c where it was fitted, `s` what is left of the
variance there, over the features that are left. By Woodbury's identity

    s C^-1 = I - P,    P = sum_c w_c u_c u_c^T,    w_c = 1 - s / v_c,

and for any normal distribution the error of the best prediction of ``x_j`` from the rest is
``(C^-1 x)_j / (C^-1)_jj``. Summed up over the samples left out, the squared errors of feature j are

    e_j = ((I - P) T (I - P))_jj / (1 - h_j)^2,    h_j = P_jj,

so `T` is all that is needed of the samples, and no regression is made. Predicted variance is
``1 - sum_j e_j / trace(T)``: 0 for what predicts nothing, below 0 for what predicts worse than the
mean.

``w_c = 1`` for all c is prediction by least squares (then ``1 - h_j`` is what Sherman and Morrison
find of the normal equations without row j). It goes astray where a feature has most of the weight
of a component: the score of the component then follows from the small rest of it. With `w_c` the
prediction shrinks as the noise in that rest demands. A feature that is a component by itself is
predicted as 0 by either.

A component of noise costs predicted variance: its features say nothing of each other on new
samples. So it has a maximum in the number of components and in the fill, where explained variance
has none.
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.refinement import Refined

ALONE = 1e-6
"""A feature whose leverage is within this of 1 is predicted from nothing; rounding errors of the
quotient reach 1e-4 there."""


class Model(NamedTuple):
    """Components, and how far each is trusted."""

    components: sparse.csr_array
    """(p, n), orthonormal rows."""
    weights: Array
    """(p,) `w`, from 0 to 1."""

    @classmethod
    def of(cls, found: Refined, diagonal: Array, n_samples: int) -> "Model":
        """Of components found on ``X X^T`` of so many samples, and its diagonal."""
        variances = found.energies / n_samples
        rest = max(float(diagonal.sum()) / n_samples - float(variances.sum()), 0.0)
        noise = rest / max(int(np.count_nonzero(diagonal > 0.0)) - len(variances), 1)
        share = np.divide(noise, variances, out=np.ones(len(variances)), where=variances > noise)
        return cls(found.components, 1.0 - share)


def held_out_scores(left_out: Array, model: Model) -> tuple[float, float]:
    """Predicted and explained variance, as shares, of samples that were left out.

    Parameters
    ----------
    left_out : (n, n) array
        `T` of these samples, centred and scaled as those that were fitted to.
    model : Model

    Notes
    -----
    Cost: ``n`` operations for each nonzero of the components, and ``n p^2``.
    """
    total = float(np.trace(left_out))
    if total <= 0.0:
        return 0.0, 0.0
    rows = model.components
    images = rows @ left_out  # U^T T
    inner = rows @ images.T  # U^T T U
    weighted = sparse.diags_array(model.weights) @ rows
    leverage = weighted.multiply(rows).sum(axis=0)  # diagonals of P, T P and P T P
    cross = weighted.multiply(images).sum(axis=0)
    twice = weighted.multiply(inner @ weighted).sum(axis=0)
    variances = np.diag(left_out)
    free = 1.0 - leverage
    is_alone = free <= ALONE
    errors = (variances - 2.0 * cross + twice) / np.where(is_alone, 1.0, free) ** 2
    errors[is_alone] = variances[is_alone]
    return 1.0 - float(errors.sum()) / total, float(np.trace(inner)) / total
