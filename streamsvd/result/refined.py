"""A solution that can be refined."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, Unpack, cast

import numpy as np
from dask.utils import format_bytes

from streamsvd.arrays import Array
from streamsvd.data import Source
from streamsvd.errors import OptionError, ResourceError
from streamsvd.kernels.compiling import compiling_shown
from streamsvd.options import Options, Reading
from streamsvd.options.rules import one_of
from streamsvd.progress import Progress
from streamsvd.refinement import Gram
from streamsvd.result.certificate import Certificate
from streamsvd.result.certifying import STEPS, certificate_of, certified
from streamsvd.result.modelled import Modelled
from streamsvd.result.refining import Work, measure_exactly, refined_at, refitted
from streamsvd.system import free_memory


@dataclass(frozen=True, eq=False, repr=False)
class Refinable(Modelled):
    """What more variance can be had within a budget."""

    def refine(
        self,
        X: Any = None,
        *,
        max_fill: float | None = None,
        max_nonzeros: int | None = None,
        max_nonzeros_per_component: int | None = None,
        effort: str = "normal",
        n_threads: int | None = None,
        client: Any = None,
        progress: Progress = None,
        **reading: Unpack[Reading],
    ) -> Self:
        """Raise the explained variance of the components within a budget of nonzeros.

        All components move at once; they stay orthonormal to rounding and exactly sparse, and
        explain at least as much as before, or as the last point of the path within a budget that
        is smaller. They are no longer a product of the transforms of the log: `refined` says so,
        and `path_components` keeps those. The method is described in `streamsvd.refinement`.

        Parameters
        ----------
        X : path, zarr.Array or array, optional
            The data of the fit, for one more pass; not needed right after ``reduction="gram"`` or
            ``"samples"``. After ``"factor"`` the pass makes the variances exact.
        max_fill, max_nonzeros : float, int, optional
            Budget of all components together, as a share of ``p n`` or a count; as many as there
            are now by default.
        max_nonzeros_per_component : int, optional
            The most that each of them may have.
        effort : {"normal", "high"}
            ``"high"`` starts from the solution of a convex relaxation too (see
            `streamsvd.refinement.relaxation`; of the 1000 features that PCA explains most, where
            there are more): 30 times all eigenvalues of the Gram matrix. Never explains less; up to
            1000 features `certificate` is there at once.
        n_threads : int, optional
            Threads that multiply, and search where there are thousands of features; all processors
            by default. The same bits for any number.
        client : distributed.Client, optional
            Make the passes on a Dask cluster; the search is made here.
        progress, **reading
            As in `transform`.

        Notes
        -----
        On the covariance in the form of the fit; after a fit in place in the form that
        `sparse_pca` would choose. Time grows with the budget.
        """
        limits = {
            "max_fill": max_fill,
            "max_nonzeros": max_nonzeros,
            "max_nonzeros_per_component": max_nonzeros_per_component,
            "effort": effort,
            "n_threads": n_threads,
        }
        budget = self._budget(**limits)
        cap, work = max_nonzeros_per_component, Work.by(n_threads, client, progress)
        return self._refined([budget], cap, effort, X, work, reading)[0]

    def refine_path(
        self,
        X: Any = None,
        *,
        max_fill: Sequence[float],
        max_nonzeros_per_component: int | None = None,
        effort: str = "normal",
        n_threads: int | None = None,
        client: Any = None,
        progress: Progress = None,
        **reading: Unpack[Reading],
    ) -> list[Self]:
        """`refine` at many budgets: how much variance each fill explains.

        From the largest budget down, each answer a start of the next, so that a path costs little
        more than its largest points one by one.

        Parameters
        ----------
        X, max_nonzeros_per_component, effort, n_threads, client, progress, **reading
            As in `refine`.
        max_fill : sequence of float
            Shares of ``p n``, in any order.

        Returns
        -------
        list of SVDResult
            One for each of `max_fill`, in their order.
        """
        cap = max_nonzeros_per_component
        limits: dict[str, Any] = {"max_nonzeros_per_component": cap, "effort": effort}
        limits["n_threads"] = n_threads
        budgets = [self._budget(max_fill=fill, **limits) for fill in max_fill]
        work = Work.by(n_threads, client, progress)
        return self._refined(budgets, cap, effort, X, work, reading)

    def certificate(
        self,
        X: Any = None,
        *,
        effort: str | None = None,
        n_threads: int | None = None,
        client: Any = None,
        progress: Progress = None,
        **reading: Unpack[Reading],
    ) -> Certificate:
        """How much better any sparse components could be: a bound that is proven.

        No orthonormal components, as many as these and with as many nonzeros in all, explain more
        of the variance than `Certificate.bound`, wherever they are: from the dual of a convex
        relaxation, see `streamsvd.refinement.relaxation`. Print it for one line; the summary of the
        result has it from then on.

        Parameters
        ----------
        X : path, zarr.Array or array, optional
            The data of the fit, for one more pass; not needed right after ``reduction="gram"`` or
            ``"samples"``.
        effort : {None, "low", "normal", "high"}
            0, 40 or 120 steps of the relaxation: more make the bound tighter. By default the
            certificate that is there already, of an earlier call or of ``effort="high"`` in the
            fit; else ``"normal"``.
        n_threads, client, progress, **reading
            As in `refine`.

        Notes
        -----
        Up to 1000 features: all eigenvalues of the Gram matrix for each step, seconds; memory of
        eight such matrices. Beyond, the few millions of its entries that are largest say what they
        can: ``n^2 N / 2`` operations on samples, and some eigenvalues of sparse matrices, a minute
        for tens of thousands of features. That is tight for small budgets; for large ones the
        bound is what PCA explains, or all of the variance: that says nothing, and no better one is
        known to us. After ``reduction="factor"`` one more pass looks at the 3000 features of
        largest variance, and bounds the others by their variances alone.
        """
        one_of(None, *STEPS).check("effort", effort)
        Options(n_components=self.n_components, n_threads=n_threads)
        if self.certified is None or effort is not None:
            source = None if X is None else self._open(X, reading)
            work = Work.by(n_threads, client, progress)
            with compiling_shown(progress):
                found = certified(self, source, work, effort or "normal")
            object.__setattr__(self, "certified", found)  # what was learned, not another result
        assert self.certified is not None  # noqa: S101
        return self.certified

    def _budget(self, **limits: Any) -> int:
        """The nonzeros that refined components may have."""
        options = Options(n_components=self.n_components, **limits)
        cap, most = options.max_nonzeros_per_component, int(np.diff(self._rows.indptr).max())
        if cap is not None and cap < most:
            raise OptionError(
                f"max_nonzeros_per_component={cap} is less than the {most} nonzeros of a component "
                "to start from; start from an earlier point, see at(fill=...)"
            )
        return options.budget(self.n_fitted) or self.n_nonzeros

    def _refined(
        self,
        budgets: list[int],
        cap: int | None,
        effort: str,
        X: Any,
        work: Work,
        reading: Reading,
    ) -> list[Self]:
        began, bytes_read, seconds = time.monotonic(), self.bytes_read, self.seconds
        source = None if X is None else self._open(X, reading)
        before = 0 if source is None else source.bytes_read
        with compiling_shown(work.progress):
            found = refined_at(self, budgets, cap, effort, source, work)
        if source is not None and bytes_read is not None:
            bytes_read += source.bytes_read - before
        if seconds is not None:
            seconds += time.monotonic() - began
        before_it = replace(
            self, certified=None, stability=None, seconds=seconds, bytes_read=bytes_read
        )
        made = []
        for one, budget in zip(found, budgets, strict=True):
            more = replace(before_it, refined=one)
            if one.bound is not None:
                more = replace(more, certified=certificate_of(more, one.bound, budget))
            made.append(more)
        return made

    def adjusted_variance(
        self,
        X: Any = None,
        *,
        progress: Progress = None,
        **reading: Unpack[Reading],
    ) -> Array:
        """Variance of the scores of each component beyond those of the components before it.

        That of Zou, Hastie and Tibshirani ("Sparse principal component analysis", 2006, section
        3.4), for correlated scores. As the components are orthonormal, `explained_variance` is the
        variance that they reconstruct, and the sum of this one is never larger.

        Parameters
        ----------
        X : path, zarr.Array or array, optional
            The data of the fit, for one more pass; not needed right after ``reduction="gram"``.
        progress, **reading
            As in `transform`.

        Returns
        -------
        (p,) array
            Divisor `freedom`.
        """
        if self.gram is not None:
            rows = self.fitted_components
            products = rows @ (rows @ self.gram).T  # S S^T, of the scores S
        elif X is None:
            raise OptionError("adjusted_variance() needs the data of the fit: pass it as X")
        else:
            source = self._open(X, reading)
            work = Work.by(None, None, progress)
            exact = measure_exactly(self, source, work, components=self.fitted_components)
            products = exact.scores
        values, vectors = np.linalg.eigh(products)
        root = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
        triangle = np.linalg.qr(root, mode="r")  # that of S^T = Q R
        return np.diag(triangle) ** 2 / self.freedom

    def _gram_of(self, source: Source, progress: Progress) -> Array:
        need, free = 8 * self.n_fitted**2, free_memory()
        if need > free:
            raise ResourceError(
                f"X X^T of {self.n_fitted} features takes {format_bytes(need)} of memory, and "
                f"{format_bytes(free)} are free; use fewer features or a larger machine"
            )
        made = refitted(self, source, Work.by(None, None, progress), "gram")
        return cast(Gram, made).matrix
