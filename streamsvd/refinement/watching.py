"""Cycles of a search, told to whoever watches, from the thread that began it."""

import threading

from streamsvd.progress import Advance


class Cycles:
    """How many there were, and what the best point explains.

    Parameters
    ----------
    advance : callable
        Told of them.
    total : float
        What all components would explain.
    """

    def __init__(self, advance: Advance, total: float) -> None:
        self._advance, self._total = advance, total
        self._thread = threading.get_ident()
        self._found: list[float] = []  # appended to by all threads
        self._told, self._best, self._about = 0, 0.0, ""

    def begin(self, about: str = "") -> None:
        """A search begins; `about` it."""
        self._best, self._about = 0.0, about

    def add(self, explained: float) -> None:
        """A cycle has ended, in any thread, with what is explained now."""
        self._found.append(explained)
        if threading.get_ident() == self._thread:
            self.tell()

    def tell(self) -> None:
        """Tell of what was found meanwhile."""
        found = self._found[self._told :]
        self._told += len(found)
        self._best = max([self._best, *found])
        share = 100 * self._best / self._total if self._total else 0.0
        self._advance(len(found), f"{share:.1f}% explained{self._about}")

    def relaxation(self, step: int, steps: int) -> None:
        """Tell of a step of the convex relaxation."""
        self._advance(0, f"step {step} of {steps} of a relaxation{self._about}")
