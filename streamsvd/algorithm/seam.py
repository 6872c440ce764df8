"""The seam between the algorithm and the columns: what it asks of them, wherever they are."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np

from streamsvd.arrays import Array
from streamsvd.matrix.partition import Partition


class Executor(Protocol):
    """Where the partitions live."""

    @property
    def here(self) -> Partition | None:
        """The one that has all columns at hand in this process, where there is one."""

    def broadcast(self, method: Callable[..., Any], *args: Any) -> list[Any]:
        """Call `method`, of `Partition`, of each; the answers in the order of the columns."""

    def close(self) -> None:
        """End threads, if there are any."""


class SerialExecutor:
    """Partitions in this process, one after the other: the default, and easy to step through."""

    def __init__(self, partitions: Sequence[Partition]) -> None:
        self.partitions = partitions
        is_one = len(partitions) == 1 and partitions[0].is_at_hand
        self.here = partitions[0] if is_one else None

    def broadcast(self, method: Callable[..., Any], *args: Any) -> list[Any]:
        """Call `method` of each partition."""
        return [method(partition, *args) for partition in self.partitions]

    def close(self) -> None:
        """Nothing to end."""


class ThreadExecutor:
    """Partitions in this process, each on a thread: overlaps the page reads of mapped blocks."""

    here = None

    def __init__(self, partitions: Sequence[Partition]) -> None:
        self.partitions = partitions
        self._pool = ThreadPoolExecutor(len(partitions), thread_name_prefix="streamsvd")

    def broadcast(self, method: Callable[..., Any], *args: Any) -> list[Any]:
        """Call `method` of all partitions at once."""
        futures = [self._pool.submit(method, partition, *args) for partition in self.partitions]
        return [future.result() for future in futures]

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()


def executor_of(partitions: Sequence[Partition]) -> Executor:
    """A thread for each partition, where there are several."""
    return ThreadExecutor(partitions) if len(partitions) > 1 else SerialExecutor(partitions)


class Leading(Protocol):
    """The part of a working matrix that the coordinator holds, wherever the rest is."""

    n_features: int
    n_samples: int
    dtype: np.dtype[Any]

    def rows(self, n_rows: int, stop: int) -> Array:
        """The first rows, columns below `stop`."""

    def columns(self, stop: int) -> Array:
        """The columns below `stop`."""

    def diagonal(self) -> Array:
        """The diagonal."""
