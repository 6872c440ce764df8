"""Cross-validation from end to end: one read, then fits to sums of the sums of folds."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from dask.utils import format_bytes
from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.choosing.fits import fit_grid
from streamsvd.choosing.fold_sums import FoldedSamples, FoldSums, sum_folds
from streamsvd.choosing.folds import Folding
from streamsvd.choosing.grid import Grid
from streamsvd.choosing.memory import check_memory
from streamsvd.choosing.rule import GridPoint
from streamsvd.choosing.scores import Model, held_out_scores
from streamsvd.choosing.stability import stability_of
from streamsvd.choosing.validated import CrossValidation, chosen_of
from streamsvd.data import Source
from streamsvd.data.missing import Missing, filled
from streamsvd.data.weights import weights_of
from streamsvd.fitting import fit, resolve, with_means
from streamsvd.kernels.compiling import compiling_shown
from streamsvd.options.rules import MISSING_ENTRIES
from streamsvd.progress import Progress, progress_bar
from streamsvd.refinement import Refined
from streamsvd.result import SVDResult
from streamsvd.system import free_memory, n_cpus

logger = logging.getLogger("streamsvd")

TIE = 1e-6
"""What one search must explain more than another, relative to it, to be the better one."""


def cross_validate(
    source: Source, arguments: dict[str, Any], progress: Progress
) -> CrossValidation:
    """Run `streamsvd.sparse_pca_cv`."""
    with compiling_shown(progress):
        return _validated(source, arguments, progress)


def _validated(source: Source, arguments: dict[str, Any], progress: Progress) -> CrossValidation:
    began = time.monotonic()
    found, code = arguments["missing"], arguments["missing_value"]
    MISSING_ENTRIES.check("missing", found)
    given, arguments = arguments, arguments | {"missing": "error", "missing_value": None}
    folding = Folding(**{one.name: arguments[one.name] for one in fields(Folding)})
    grid = Grid.of(source, arguments)
    source.weigh(weights_of(source, arguments["feature_weights"]))
    labels = folding.labels(source.n_samples)
    missing = None
    if found == "mean":  # known before folds are summed up, which is one pass
        source, missing = with_means(source, code, progress)
        grid = Grid.of(source, arguments)
    else:
        source = filled(source, None, code)
    about = {name: given[name] for name in ("missing", "missing_value")}
    largest = max((one for row in grid.options for one in row), key=lambda o: o.n_components)
    most = largest.memory_bytes or free_memory() // 2
    problem = resolve(source, largest)
    if largest.normalize == "variables":
        source.scale_variables(source.features)
    sizes = [int(np.count_nonzero(labels == fold)) for fold in range(folding.folds)]
    peak = check_memory(problem, sizes, 2 * labels.nbytes, most)
    logger.info(
        "%d folds of %d samples; peak memory %s of %s",
        folding.folds, source.n_samples, format_bytes(peak), format_bytes(most),
    )  # fmt: skip
    n_threads = largest.n_threads or n_cpus()
    with progress_bar(progress, "folds", source.n_samples) as advance:
        asked = (largest.center, largest.scales, problem.strip_width(most), n_threads)
        sums = sum_folds(source, labels, *asked, advance)
    how = (n_threads, most, progress, missing, about)
    return _Validation(source, grid, folding, labels, sums, *how).done(began)


@dataclass
class _Validation:
    """The fits, once the data are summed up."""

    source: Source
    grid: Grid
    folding: Folding
    labels: Array
    sums: FoldSums
    n_threads: int
    memory_limit: int
    progress: Progress
    missing: Missing | None
    about: dict[str, Any]
    """What the settings say of what is missing."""

    def done(self, began: float) -> CrossValidation:
        """Do all of it."""
        grid, k = self.grid, self.folding.folds
        shape = (k, *grid.budgets.shape)
        predicted, explained = np.zeros(shape), np.zeros(shape)
        nonzeros = np.zeros(shape, dtype=np.int64)
        rows: list[list[sparse.csr_array]] = []
        n_fits = k * len(grid.n_components) + self.folding.half_samples + 1
        with progress_bar(self.progress, "fits", n_fits, unit="fits", is_steady=False) as advance:
            for fold in range(k):
                found, scores = self._without(fold, advance)
                predicted[fold], explained[fold] = scores
                nonzeros[fold] = [[one.components.nnz for one in some] for some in found]
                rows.append([one.components for some in found for one in some])
            points = grid.points()
            chosen = chosen_of(points, predicted.reshape(k, -1))
            others = [of_fold[points.index(chosen)] for of_fold in rows]
            if self.folding.half_samples:
                others = [self._on(half, chosen, advance) for half in self.folding.halves()]
            result = self._result(chosen, others)
            advance(1)
        seconds = time.monotonic() - began
        return CrossValidation(
            n_components=grid.n_components,
            max_fill=grid.max_fill,
            budgets=grid.budgets,
            predicted_variance=predicted,
            explained_variance=explained,
            n_nonzeros=nonzeros,
            fold_of=self.labels,
            result=replace(result, seconds=seconds),
            seconds=seconds,
        )

    def _without(
        self, fold: int, advance: Callable[[int], None]
    ) -> tuple[list[list[Refined]], Array]:
        """Fits of the whole grid to all folds but one; their scores (2, a, b) on that one."""
        gram, learned = self.sums.without(fold)
        diagonal, count = np.diag(gram).copy(), sum(self.sums.counts) - self.sums.counts[fold]
        grid = self.grid
        asked = (grid.n_components, grid.budgets, grid.cap, self.n_threads)
        found = fit_grid(gram, *asked, advance)
        del gram
        left_out = self.sums.held_out(fold, learned)
        models = [[Model.of(one, diagonal, count) for one in some] for some in found]
        scores = [[held_out_scores(left_out, one) for one in some] for some in models]
        return found, np.moveaxis(np.array(scores), -1, 0)

    def _on(
        self, folds: tuple[int, ...], point: GridPoint, advance: Callable[[int], None]
    ) -> sparse.csr_array:
        """The components of a fit to some folds, at one point of the grid."""
        gram, _ = self.sums.gram(folds)
        found = self._at(point, gram)
        advance(1)
        return found.components

    def _at(self, point: GridPoint, gram: Array) -> Refined:
        """The search at one point of the grid, by way of fewer components."""
        grid = self.grid
        j = grid.max_fill.index(point.max_fill)
        which = [i for i, p in enumerate(grid.n_components) if p <= point.n_components]
        numbers, budgets = [grid.n_components[i] for i in which], grid.budgets[which, j : j + 1]
        found = fit_grid(gram, numbers, budgets, grid.cap, self.n_threads)
        return found[numbers.index(point.n_components)][0]

    def _result(self, point: GridPoint, others: list[sparse.csr_array]) -> SVDResult:
        """The fit of all samples, for which the sums are used up.

        That of `streamsvd.sparse_pca`, or the search of the folds where this explains more.
        """
        i = self.grid.n_components.index(point.n_components)
        j = self.grid.max_fill.index(point.max_fill)
        options = replace(self.grid.options[i][j], memory_limit=self.memory_limit)
        made = fit(FoldedSamples(self.source, self.sums.total()), options, False)
        assert made.refined is not None  # noqa: S101  (as the options say)
        assert made.gram is not None  # noqa: S101  (as the options say)
        found = self._at(point, made.gram)
        if found.energies.sum() > (1.0 + TIE) * made.refined.energies.sum():
            made = replace(made, refined=found)
        made = replace(made, missing=self.missing, settings=made.settings | self.about)
        stability = stability_of(made.fitted_components, others)
        return replace(made, stability=made.widened(stability))
