"""Sparse orthonormal components, and the path that led to them: all that follows from the log."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from scipy import sparse

from streamsvd.algorithm.block_log import BlockLog
from streamsvd.arrays import Array
from streamsvd.errors import OptionError
from streamsvd.result.fitted import Fitted
from streamsvd.result.signs import signed_rows, signs_of


class History(NamedTuple):
    """The path of a fit, one entry after each transform."""

    trace: Array
    """(m,) the objective: sum of the first p diagonal entries; never decreases."""
    n_nonzeros: Array
    """(m,) nonzeros of the components, counted from the supports."""
    fill: Array
    """(m,) the same as a share of ``p n``."""
    explained_variance: Array
    """(m,) share of the total variance captured; NaN where it is not known."""


@dataclass(frozen=True, eq=False, repr=False)
class Components(Fitted):
    """Sparse orthonormal components of a matrix `X` of n features by N samples.

    Everything follows from the transform log; sparse matrices are built on first use and kept.
    `streamsvd.SVDResult` adds what is done with data, files and pictures.
    """

    @cached_property
    def components(self) -> sparse.csr_array:
        """(p, n) components as rows, by decreasing singular value.

        Orthonormal to rounding and exactly zero off their supports, and for features that are left
        out. The loading of largest absolute value is positive (the first on ties).
        """
        return self.widened(self.fitted_components)

    def widened(self, rows: sparse.csr_array) -> sparse.csr_array:
        """Rows over the features of the fit as rows over all."""
        if self._kept is None:
            return rows
        entries = (rows.data, self._kept[rows.indices], rows.indptr)
        return sparse.csr_array(entries, shape=(rows.shape[0], self.n_features))

    @cached_property
    def fitted_components(self) -> sparse.csr_array:
        """(p, n_fitted) the same for the features of the fit alone."""
        rows = self._rows
        return signed_rows(rows, self._order, signs_of(rows))

    @cached_property
    def right(self) -> sparse.csr_array:
        """(p, N) right vectors as rows, orthonormal.

        ``components @ X @ right.T`` has `singular_values` on its diagonal. Not there after
        ``reduction="gram"`` or `refine`.
        """
        if self.is_reduced or self.refined is not None:
            raise OptionError(
                "there are no right vectors on X X^T or after refine(); use transform(X) for the "
                "scores, or fit without reduction"
            )
        signs = signs_of(self._rows) * np.where(self._diagonal < 0, -1.0, 1.0)
        return signed_rows(self.log.right_vectors(self.n_transforms), self._order, signs)

    @property
    def singular_values(self) -> Array:
        """(p,) diagonal of ``U_p^T X V_p``, descending; at most those of `X`, in sum.

        After ``reduction="gram"`` or `refine`: the norms of the rows of ``U_p^T X``.
        """
        if self.is_reduced or self.refined is not None:
            return np.sqrt(np.maximum(self._energies, 0.0))[self._order]
        return np.abs(self._diagonal)[self._order]

    @cached_property
    def _diagonal(self) -> Array:
        return self.log.diagonal(self.initial_diagonal, self.n_transforms)

    @cached_property
    def _energies(self) -> Array:
        """(p,) sums of squares of the rows of ``U_p^T X``, not sorted; NaN where not known."""
        if self.refined is not None:
            return self.refined.energies
        if self.is_reduced:
            return self._diagonal
        if self.n_transforms == len(self.log):
            return self.final_energies
        return np.full(self.n_components, np.nan)

    @cached_property
    def _order(self) -> Array:
        sizes = self._diagonal if self.refined is None else self._energies
        return np.argsort(-np.abs(sizes), kind="stable")

    @cached_property
    def _rows(self) -> sparse.csr_array:
        if self.refined is not None:
            return self.refined.components
        return self.log.components(self.n_transforms)

    @property
    def mean_stability(self) -> Array | None:
        """(p,) how often the nonzeros of each component are chosen, on average; see `stability`."""
        if self.stability is None:
            return None
        chosen = self.stability.multiply(self.components.astype(bool)).sum(axis=1)
        return np.asarray(chosen / np.diff(self.components.indptr))

    @property
    def n_nonzeros(self) -> int:
        """Nonzeros of the components."""
        return int(self._rows.nnz)

    @property
    def fill(self) -> float:
        """Nonzeros of the components as a share of ``p n``, n the features of the fit."""
        return self.n_nonzeros / (self.n_components * self.n_fitted)

    @property
    def is_exact(self) -> bool:
        """Whether variances are those of the data.

        Not along the path of ``reduction="factor"``, nor after batches that were summed up to a
        factor (`StreamingSparsePCA.partial_fit`): they are those of the factor, until `refine` is
        given the data, or `accuracy` measures.
        """
        if self.refined is not None:
            return self.refined.is_exact
        return bool(self.settings["reduction"] != "factor")


@dataclass(frozen=True, eq=False, repr=False)
class Solution(Components):
    """The same with what was missing, and the path that led to them."""

    @property
    def explained_variance(self) -> Array:
        """(p,) variance of the scores of each component, divisor `freedom`; NaN where not known.

        The components are orthonormal, so these add up. They are variances proper when features
        were centred, mean squares otherwise. Known at the end of a fit, see `is_exact`; elsewhere
        on the path `accuracy` measures the sum in one pass.
        """
        return self._energies[self._order] / self.freedom

    @property
    def freedom(self) -> float:
        """``N - 1``, or ``W - 1`` of samples that are weighted: the divisor of variances."""
        return max(self.n_samples - 1, 1) if self.weight is None else self.weight - 1.0

    @property
    def explained_variance_ratio(self) -> Array:
        """(p,) `explained_variance` over the total variance of the features of the fit."""
        total = self.total_energy / self.freedom
        return self.explained_variance / total if total > 0 else np.zeros(self.n_components)

    @property
    def left_out(self) -> Array:
        """Features outside of `feature_mask`, or without any value, ascending.

        Their loadings are zero, means and scales NaN. The variance of them is not in the total, nor
        are they in the share that a fill is.
        """
        kept = np.arange(self.n_features) if self._kept is None else self._kept
        return np.setdiff1d(np.arange(self.n_features), kept)

    @property
    def n_missing(self) -> int | None:
        """Values that were missing, of features that are not `left_out`; None if none could be."""
        return None if self.missing is None else self.missing.n_filled

    def map_of_components(self, first: int = 0, last: int | None = None) -> Array:
        """(p, n) array of the components ``first..last-1``, NaN at features that are left out."""
        whole = self.components[first:last].toarray()
        whole[:, self.left_out] = np.nan
        return whole

    @property
    def feature_weights(self) -> Array | None:
        """(n,) what the variance of each feature counts, None where all count the same."""
        weights = self.preprocessing.weights
        return None if weights is None else self._of_all(weights)

    @property
    def patterns(self) -> sparse.csr_array:
        """(p, n) `components` in the units of the data: what a score of one adds to them.

        Components times the scale over the root of the weights of the features, if there are any:
        ``mean + transform(X).T @ patterns`` are the samples again, as far as the components tell.
        Times the root of `explained_variance`: what one standard deviation of the scores adds.
        Not of what centring or scaling of each sample by itself took away.
        """
        rows, divisor = self.components, self.preprocessing.divisor
        if divisor is None:
            return rows
        scaled = rows.data * self._of_all(divisor)[rows.indices]
        return sparse.csr_array((scaled, rows.indices, rows.indptr), shape=rows.shape)

    @cached_property
    def path_components(self) -> sparse.csr_array:
        """(p, n) components of the path at `n_transforms`: `components` before `refine`."""
        return replace(self, refined=None).components

    @property
    def pairs(self) -> Array:
        """(m, 2) the pairs (i, j) of the transforms, in order; rows of the working matrix.

        After a pivot, row r is feature ``log.order[r]``. Block steps have ``log.indices`` instead.
        """
        if isinstance(self.log, BlockLog):
            raise OptionError("block steps have no pairs: see log.indices")
        return self.log.pairs[: self.n_transforms]

    @cached_property
    def history(self) -> History:
        """Trace, nonzeros, fill and explained variance after each transform."""
        k = self.n_transforms
        nonzeros = self.log.n_nonzeros(k)
        trace = self.log.trace(self.initial_diagonal, k)
        explained = np.full(k, np.nan)
        if self.is_reduced and self.total_energy > 0:
            explained = trace / self.total_energy
        elif k and k == len(self.log):
            explained[-1] = replace(self, refined=None).explained_variance_ratio.sum()
        fill = nonzeros / (self.n_components * self.n_fitted)
        return History(trace, nonzeros, fill, explained)

    def path(self) -> Array:
        """The whole path as a table: a structured array of ``len(log) + 1`` rows.

        Fields ``transforms``, ``n_nonzeros``, ``fill``, ``explained_variance`` (a share of the
        total; NaN where not known). `at` gives the result of any row.
        """
        history = replace(self, n_transforms=len(self.log)).history
        fields = [("transforms", "i8"), ("n_nonzeros", "i8")]
        fields += [("fill", "f8"), ("explained_variance", "f8")]
        table = np.empty(len(self.log) + 1, dtype=fields)
        table["transforms"] = np.arange(len(table))
        table["n_nonzeros"] = np.append(self.n_components, history.n_nonzeros)
        table["fill"] = table["n_nonzeros"] / (self.n_components * self.n_fitted)
        start = np.nan
        if self.is_reduced and self.total_energy > 0:
            start = self.initial_diagonal.sum() / self.total_energy
        table["explained_variance"] = np.append(start, history.explained_variance)
        return table

    def at(
        self,
        k: int | None = None,
        *,
        fill: float | None = None,
        explained_variance: float | None = None,
    ) -> Self:
        """The result at another point of the path, not refined.

        Parameters
        ----------
        k : int
            After the first `k` transforms.
        fill : float
            The last point with at most this share of nonzeros.
        explained_variance : float
            The first point that explains at least this share of the total variance; where that is
            known along the path (``reduction="gram"``).
        """
        if sum(value is not None for value in (k, fill, explained_variance)) != 1:
            raise OptionError("at() takes one of k, fill and explained_variance")
        if fill is not None:
            k = self._last_within(fill)
        elif explained_variance is not None:
            k = self._first_explaining(explained_variance)
        last = len(self.log)
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 0 <= k <= last:
            raise OptionError(
                f"k must be an integer from 0 to the {last} transforms made; got {k!r}"
            )
        return replace(self, n_transforms=int(k), refined=None, certified=None, stability=None)

    def _last_within(self, fill: float) -> int:
        within = np.flatnonzero(self.path()["fill"] <= fill)
        if not len(within):
            least = 1 / self.n_fitted
            raise OptionError(f"fill={fill} is below the {least:.3g} that the path starts with")
        return int(within[-1])

    def _first_explaining(self, share: float) -> int:
        if not self.is_reduced:
            raise OptionError(
                'explained variance along the path is known after reduction="gram" only; use k or '
                "fill, and accuracy(X)"
            )
        explained = self.path()["explained_variance"]
        enough = np.flatnonzero(explained >= share)
        if not len(enough):
            raise OptionError(
                f"explained_variance={share} is not reached: the path ends at {explained[-1]:.4g}"
            )
        return int(enough[0])
