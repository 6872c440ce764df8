"""A sum whose order depends on the number of its terms alone."""

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

from streamsvd.sizes import FAN_IN


class SumTree:
    """Sums of nodes that come in order, `FAN_IN` of them to a node of the next level.

    Holds one partial sum for each level, ``log(nodes) / log(FAN_IN)`` of them.

    Parameters
    ----------
    plus : callable, optional
        ``plus(total, node)`` gives the total with one node more, which may be `total` itself. By
        default of arrays; of futures the nodes may be anywhere.
    """

    def __init__(self, plus: Callable[[Any, Any], Any] = operator.iadd) -> None:
        self._plus = plus
        self._sums: list[Any] = []
        self._counts: list[int] = []

    def add(self, node: Any, level: int = 0) -> None:
        """Add the next node of a level. It belongs to the tree from then on."""
        while len(self._sums) <= level:
            self._sums.append(None)
            self._counts.append(0)
        total = self._sums[level]
        total = self._sums[level] = node if total is None else self._plus(total, node)
        self._counts[level] += 1
        if self._counts[level] == FAN_IN:
            self._sums[level], self._counts[level] = None, 0
            self.add(total, level + 1)

    def total(self) -> Any:
        """The sum of all; the last call to make."""
        return reduce(self._plus, (part for part in reversed(self._sums) if part is not None))
