"""How transforms are made, by pairs or by block steps: one of two ways to fill a log.

The only place of a run that asks which of the two it is.
"""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from streamsvd.algorithm.algorithm_1 import algorithm_1, random_pairs
from streamsvd.algorithm.block_log import BlockLog
from streamsvd.algorithm.block_steps import (
    BlockCoordinator,
    block_algorithm,
    make_block_coordinator,
    random_blocks,
)
from streamsvd.algorithm.compiled import algorithm_1_here
from streamsvd.algorithm.coordinator import Coordinator, make_coordinator
from streamsvd.algorithm.log import TransformLog
from streamsvd.algorithm.seam import Executor, Leading
from streamsvd.algorithm.supports import BlockSupports, Supports
from streamsvd.arrays import Array
from streamsvd.matrix.partition import Partition
from streamsvd.options import Options
from streamsvd.problem import Problem

AfterStep = Callable[[int], bool]


class Method(Protocol):
    """What fills a log."""

    log: Any

    def take_up(self, leading: Leading, executor: Executor) -> None:
        """Get ready to go on from where the working matrix, and the log, stand."""

    def run(self, executor: Executor, threshold: float, after_step: AfterStep) -> str:
        """Make transforms; see `algorithm_1`.

        Says why they ended, as there, or ``"budget"`` where a limit of nonzeros allows no other.
        """

    @property
    def done(self) -> int:
        """How much of what ends the run: transforms, or nonzeros where a budget of these does."""

    @property
    def lead(self) -> Array:
        """(p, n) the leading columns, as they are now."""


class Pairs:
    """Algorithm 1: a pair of rows and columns a transform."""

    def __init__(self, problem: Problem, options: Options) -> None:
        self._problem, self._options = problem, options
        self.log = TransformLog(problem.n_components, problem.n_features, problem.n_columns)
        self._coordinator: Coordinator
        self._supports: Supports | None = None

    def take_up(self, leading: Leading, executor: Executor) -> None:
        """Build the coordinator and its scores."""
        problem, options = self._problem, self._options
        p, n = problem.n_components, leading.n_features
        if problem.counts_fill:
            most = p * n if problem.budget is None else problem.budget
            cap = options.max_nonzeros_per_component
            self._supports = Supports(p, n, problem.fill_penalty, most, cap)
            self._supports.replay(self.log)
        self._coordinator = make_coordinator(
            leading, p, problem.selection, self._supports, problem.is_reduced
        )
        self._coordinator.start_up(executor.broadcast(Partition.start_up))

    def run(self, executor: Executor, threshold: float, after_step: AfterStep) -> str:
        """Make transforms; see `Method`."""
        problem, coordinator = self._problem, self._coordinator
        batch, m = self._options.batch_size, problem.n_transforms
        picks: Iterator[tuple[int, int, float]] | None = None
        if problem.selection == "random":
            picks = random_pairs(coordinator, executor, problem.seed, len(self.log))
        if picks is None and executor.here is not None:
            why = algorithm_1_here(
                coordinator, executor.here, self.log, m, threshold, batch, after_step
            )
        else:
            why = algorithm_1(
                coordinator, executor, self.log, m, threshold, batch, picks, after_step
            )
        return "budget" if why == "converged" and coordinator.is_held_back(threshold) else why

    @property
    def done(self) -> int:
        """How much of what ends the run: transforms, or nonzeros where a budget of these does."""
        ends = self._options.ends_with_budget(self._problem.n_features)
        return self._supports.n_nonzeros if ends and self._supports else len(self.log)

    @property
    def lead(self) -> Array:
        """(p, n) the leading columns, as they are now."""
        return self._coordinator.lead


class Blocks:
    """Its block form: 2p rows and columns a step."""

    def __init__(self, problem: Problem, options: Options) -> None:
        self._problem = problem
        self.log = BlockLog(problem.n_components, problem.n_features, problem.n_columns)
        self._coordinator: BlockCoordinator

    def take_up(self, leading: Leading, executor: Executor) -> None:
        """Build the coordinator."""
        problem = self._problem
        self._coordinator = make_block_coordinator(
            leading, problem.n_components, problem.selection, problem.is_reduced
        )

    def run(self, executor: Executor, threshold: float, after_step: AfterStep) -> str:
        """Make steps; see `block_algorithm`."""
        problem, coordinator, log = self._problem, self._coordinator, self.log
        picks = supports = None
        if problem.selection == "random":
            picks = random_blocks(coordinator, problem.seed, len(log))
        if problem.budget is not None:
            supports = BlockSupports(log.n_components, log.n_features, problem.budget)
            supports.replay(log)
        return block_algorithm(
            coordinator, executor, log, problem.n_transforms, threshold, picks, after_step, supports
        )

    @property
    def done(self) -> int:
        """Steps."""
        return len(self.log)

    @property
    def lead(self) -> Array:
        """(p, n) the leading columns, as they are now."""
        return self._coordinator.lead


METHODS: dict[str, type[Pairs] | type[Blocks]] = {"coordinate": Pairs, "block": Blocks}
