"""What a fit needs of the working matrix, wherever that is; which of its homes it gets.

`streamsvd.fitting.in_place` rewrites `X` here, in memory or in mapped files;
`streamsvd.fitting.reduced` works on ``X X^T`` in any of its forms; `streamsvd.cluster.engine`
leaves the columns of `X` to the workers of a cluster.
"""

from typing import Any, Protocol

from streamsvd.algorithm.block_log import Log
from streamsvd.algorithm.seam import Executor, Leading
from streamsvd.arrays import Array
from streamsvd.cluster.engine import ClusterColumns
from streamsvd.cluster.forms import Formed
from streamsvd.data.source import Source
from streamsvd.fitting.in_place import InPlace
from streamsvd.fitting.reduced import Reduced
from streamsvd.fitting.workspace import Workspace
from streamsvd.options import Options
from streamsvd.passes.ingest import Ingested
from streamsvd.plan import Plan
from streamsvd.problem import Problem
from streamsvd.progress import Progress
from streamsvd.refinement import Covariance


class Engine(Protocol):
    """The working matrix of a fit. Calls come in this order."""

    covariance: Covariance | None
    """``X X^T``, where that is worked on."""

    def prepare(self, log: Log) -> Ingested:
        """Read the source, and bring the working matrix to where the log stands."""

    @property
    def leading(self) -> Leading:
        """What the coordinator holds of it."""

    def begin(self) -> Executor:
        """Where the columns are moved from here on."""

    def end(self, lead: Array) -> None:
        """The moves are over; takes the leading columns (p, n) back."""

    def settle(self, ingested: Ingested, n_logged: int) -> None:
        """Leave what is kept on the disk in order."""

    def energies(self) -> Array:
        """Sums of squares of the first `p` rows, (p,)."""

    def release(self) -> None:
        """Leave nothing behind that is not kept; also after errors."""


def choose_engine(
    source: Source,
    problem: Problem,
    options: Options,
    plan: Plan,
    space: Workspace | None,
    client: Any,
    progress: Progress,
    made: Formed | None,
) -> Engine:
    """The engine that a fit works with; `made` is ``X X^T``, where it is there already."""
    if problem.is_reduced:
        return Reduced(source, problem, options, plan, client, progress, made)
    if client is not None:
        return ClusterColumns(client, source, problem, options, plan, progress)
    return InPlace(source, problem, options, plan, space, progress)
