r"""Probabilistic PCA on sparse components: a normal distribution, and how likely samples are by it.

With the components `u_k` as orthonormal columns, samples that are centred, scaled and weighted as
in the fit are taken for

.. math::

    y = \sum_k u_k t_k + e, \qquad
    t_k \sim N(0, \lambda_k - \sigma^2), \quad e \sim N(0, \sigma^2 I),

with independent scores `t`, so that their covariance is
:math:`\sum_k (\lambda_k - \sigma^2) u_k u_k^T + \sigma^2 I`: the model of Tipping and Bishop
("Probabilistic principal component analysis", 1999) with the axes given. Of all distributions that
have the components for axes and one variance in all directions beyond them, the most likely one has
for :math:`\lambda_k` the variance of the scores on component k, which is the explained variance,
whether or not the scores are correlated; sparse components are not eigenvectors, and what their
scores have in common is not in the model. Where every entry may be other than zero the components
are those of PCA, and the model is scikit-learn's. As there, :math:`\sigma^2` is what is left of the
variance over ``min(n, N) - p``, and a component that explains less than that counts as noise.

Data `x` are :math:`m + D y` with the means and scales of the fit, so their covariance is
:math:`D C D` and their density that of `y` over :math:`\det D`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.errors import OptionError
from streamsvd.passes.preprocessing import Preprocessing
from streamsvd.passes.strips import StripReader


@dataclass(frozen=True, eq=False)
class Density:
    """The distribution of samples.

    Attributes
    ----------
    components : (p, n) csr_array
        Orthonormal rows.
    variances : (p,) array
        Of the scores; below `noise` counts as that.
    noise : float
        Variance in all directions beyond the components.
    divisor : (n,) array or None
        What values are divided by once they are centred; None where that is nothing.
    """

    components: sparse.csr_array
    variances: Array
    noise: float
    divisor: Array | None

    def covariance(self) -> Array:
        """(n, n) of the data, in their units."""
        above = np.maximum(self.variances - self.noise, 0.0)
        scales = np.ones(self.components.shape[1]) if self.divisor is None else self.divisor
        made = self._spread(above, scales)
        made[np.diag_indices(len(made))] += self.noise * scales**2
        return made

    def precision(self) -> Array:
        """(n, n) the inverse of `covariance`; refuses one that is singular."""
        variances, noise = self._regular()
        scales = np.ones(self.components.shape[1]) if self.divisor is None else 1 / self.divisor
        if noise == 0.0:
            return self._spread(1 / variances, scales)
        made = self._spread(1 / variances - 1 / noise, scales)
        made[np.diag_indices(len(made))] += scales**2 / noise
        return made

    def _spread(self, values: Array, scales: Array) -> Array:
        """``U diag(values) U^T``, its rows and columns times `scales`."""
        rows = self.components.multiply(scales).tocsr()
        return (rows.T @ sparse.diags_array(values) @ rows).toarray()

    def _regular(self) -> tuple[Array, float]:
        """Variances of the scores and the noise, of a distribution that has a density."""
        (p, n), noise = self.components.shape, self.noise
        variances = np.maximum(self.variances, noise)
        if (noise == 0.0 and p < n) or variances.min() == 0.0:
            raise OptionError(
                f"the covariance of {p} components and no noise beyond them is singular for {n} "
                "features, so it has no inverse, and samples no likelihood: ask for fewer "
                f"components than min(n_features, n_samples), {p} or more here"
            )
        return variances, noise

    def of_samples(
        self,
        preprocessing: Preprocessing,
        reader: StripReader,
        on_samples: Callable[[int], None] = lambda n: None,
    ) -> Iterator[tuple[int, Array]]:
        """The logarithms of the densities of samples, with the number of the first, in strips.

        ``2 n`` operations a sample, and four for each nonzero of the components.
        """
        variances, noise = self._regular()
        rows, (p, n) = self.components, self.components.shape
        volume = n * np.log(2 * np.pi) + np.log(variances).sum()
        if noise > 0.0:
            volume += (n - p) * np.log(noise)
        if self.divisor is not None:
            volume += 2 * np.log(self.divisor).sum()
        for start, strip in reader:
            preprocessing.apply(strip)
            y = strip.astype(np.float64, copy=False)
            scores = rows @ y
            distances = np.einsum("kj,kj,k->j", scores, scores, 1 / variances)
            if noise > 0.0:
                y -= rows.T @ scores
                distances += np.einsum("ij,ij->j", y, y) / noise
            yield start, -0.5 * (volume + distances)
            on_samples(y.shape[1])
