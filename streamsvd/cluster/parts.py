"""What a share of the columns is sent of a call of all, and what comes back: both ends of it.

Nobody is sent what others hold, or asked who has nothing to do. Of a move ``(i, j)`` a worker needs
the pair and the left factor where it has rows to turn, ``j < n``; the right factor and the column
i, n numbers, where it holds column j; else nothing. So a move beyond the rows concerns one worker.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from streamsvd.arrays import Array
from streamsvd.matrix.partition import Partition, Report

Args = tuple[Any, ...]


class Columns(Protocol):
    """Columns ``start..stop-1``, as both ends know them."""

    start: int
    stop: int
    n_components: int
    n_features: int


class Part:
    """One share, as the coordinator knows it."""

    def __init__(
        self, start: int, stop: int, n_components: int, n_features: int, dtype: np.dtype[Any]
    ) -> None:
        self.start, self.stop = start, stop
        self.n_components, self.n_features = n_components, n_features
        self._dtype = dtype
        self._tails = np.empty(0), np.empty(0)

    def begin(self, report: Report) -> Report:
        """Take the first report, which has all rows' largest tail entries."""
        self._tails = report.tail_value, report.tail_where
        return report

    def sent(self, method: str, args: Args) -> Args | None:
        """What is sent of the arguments of a method of `Partition`; None where it is not asked."""
        match method, args:
            case "apply", (pairs, g, h, columns):
                held = holds(self, pairs)
                mine = held | (pairs[:, 1] < self.n_features)
                return (pairs[mine], g[mine], h[held], columns[held]) if mine.any() else None
            case "entry", (_, j):
                return args if self.start <= j < self.stop else None
            case "take_columns", (indices,):
                own = indices[self._own(indices)]
                return (own,) if len(own) else None
            case "best_columns", (selection, lead, diag):
                return (selection, *self._scored(lead, diag)) if selection >= 0 else None
            case "apply_block", (selection, rows, g, indices, columns, lead, diag):
                own, scored = self._own(indices), self._scored(lead, diag)
                scored = scored if selection >= 0 else (lead[:, :0], diag[:0], diag[:0])
                return selection, rows, g, indices[own], columns[:, own], *scored
        raise NotImplementedError(method)

    def told(self, method: str, args: Args, answer: Any) -> Any:
        """The answer of the method itself, from what came back: None from who was not asked."""
        match method:
            case "apply":
                return self._report(args[0], answer)
            case _ if answer is not None:
                return answer
            case "entry":
                return 0.0
            case "take_columns":
                return np.empty((self.n_features, 0), dtype=self._dtype)
        return np.empty(0), np.empty(0, dtype=np.int64)

    def _report(self, pairs: Array, answer: Report | None) -> Report:
        value, where = self._tails
        if answer is None:
            return Report(self.start, value, where)
        rows = slice(None) if answer.held else list(answer.rows)
        value[rows], where[rows] = answer.tail_value, answer.tail_where
        held = np.flatnonzero(holds(self, pairs)).tolist()
        return answer._replace(tail_value=value, tail_where=where, held=held)

    def _own(self, indices: Array) -> slice:
        """Where in `indices`, ascending, those are that are held."""
        return slice(*np.searchsorted(indices, [self.start, self.stop]))

    def _scored(self, lead: Array, diag: Array) -> Args:
        """What the scores of the columns held need of `lead` and `diag`; see `_whole`."""
        own = head(self)
        return lead[:, own], diag[: self.n_components], diag[own]


def holds(columns: Columns, pairs: Array) -> Array:
    """(k,) which of `pairs` (k, 2) have their column j among these; not the coordinator's."""
    j = pairs[:, 1]
    return (max(columns.n_components, columns.start) <= j) & (j < columns.stop)


def head(columns: Columns) -> slice:
    """The head columns among these; not the coordinator's."""
    start = max(columns.n_components, columns.start)
    return slice(start, max(start, min(columns.n_features, columns.stop)))


# ----------------------------------------------------------------------------------- on the worker


def apply(partition: Partition, pairs: Array, g: Array, h: Array, columns: Array) -> Report:
    """See `Part.sent`: `h` and `columns` are of the moves whose column j is held.

    The largest tail entries of all rows come back where there are such moves, else of `rows`.
    """
    held, count = holds(partition, pairs), len(pairs)
    all_h = np.empty((count, 2, 2))
    all_columns = np.empty((count, partition.n_features), dtype=columns.dtype)
    all_h[held], all_columns[held] = h, columns
    report = partition.apply(pairs, g, all_h, all_columns)
    rows = slice(None) if report.held else list(report.rows)
    start = head(partition).start
    head_rows = report.head_rows
    return report._replace(
        start=start,
        tail_value=report.tail_value[rows].copy(),
        tail_where=report.tail_where[rows].copy(),
        head_rows=None if head_rows is None else head_rows[:, start - partition.start :].copy(),
        columns=report.columns if report.held else None,
    )


def best_columns(
    partition: Partition, selection: int, lead: Array, first: Array, own: Array
) -> tuple[Array, Array]:
    """See `Part.sent`."""
    return partition.best_columns(selection, *_whole(partition, lead, first, own))


def apply_block(
    partition: Partition,
    selection: int,
    rows: Array,
    g: Array,
    indices: Array,
    columns: Array,
    *scored: Array,
) -> tuple[Array, Array]:
    """See `Part.sent`."""
    whole = _whole(partition, *scored) if selection >= 0 else scored[:2]
    return partition.apply_block(selection, rows, g, indices, columns, *whole)


def _whole(partition: Partition, lead: Array, first: Array, own: Array) -> tuple[Array, Array]:
    """`lead` (p, n) and `diag` (n,), zero where they concern columns that others hold."""
    p, n = partition.n_components, partition.n_features
    whole, diag = np.zeros((p, n), dtype=lead.dtype), np.zeros(n, dtype=first.dtype)
    whole[:, head(partition)], diag[:p], diag[head(partition)] = lead, first, own
    return whole, diag


CALLS: dict[str, Callable[..., Any]] = {
    "apply": apply,
    "entry": Partition.entry,
    "take_columns": Partition.take_columns,
    "best_columns": best_columns,
    "apply_block": apply_block,
}
"""What a worker does when a method of its `Partition` is called."""
