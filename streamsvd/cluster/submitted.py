"""What one piece of work has on a cluster, and taking all of it away when the work ends."""

import logging
import uuid
import warnings
from typing import Any
from weakref import ref

logger = logging.getLogger("streamsvd")


def key_of(name: str) -> str:
    """A key that no other call has."""
    return f"streamsvd-{name}-{uuid.uuid4().hex[:8]}"


def _same(data: Any) -> Any:
    return data


class Submitted:
    """A context manager: what is submitted through it is gone from the cluster when it is left.

    Dask keeps a result as long as a future of it is alive, and an error, an actor's proxy or a
    cycle can keep a future alive until Python's collector comes by: on the workers that is memory.
    Futures that are let go before are released as usual.
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self._futures: list[ref[Any]] = []

    def __enter__(self) -> "Submitted":
        return self

    def __exit__(self, *exc: object) -> None:
        self.cancel()

    def submit(self, function: Any, *args: Any, **options: Any) -> Any:
        """As `Client.submit`, never with the result of another call."""
        return self._kept(self.client.submit(function, *args, pure=False, **options))

    def compute(self, lazy: Any) -> Any:
        """As `Client.compute`."""
        return self._kept(self.client.compute(lazy))

    def broadcast(self, data: Any) -> Any:
        """A future of data that many tasks take.

        The result of a task, which can be made again: what `Client.scatter` sends is lost with its
        workers, and it fails, or never returns, where one is killed meanwhile.
        """
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")
            return self.submit(_same, data, key=key_of("data"))

    def _kept(self, future: Any) -> Any:
        self._futures.append(ref(future))
        return future

    def cancel(self) -> None:
        """Take away what is there; a client that is closed has nothing any more.

        One by one, the last first: to cancel what others are made from, when these are known but no
        longer wanted, is an error that costs the client its connection to the scheduler.
        """
        alive = [future for made in reversed(self._futures) if (future := made()) is not None]
        self._futures.clear()
        try:
            for future in alive:
                self.client.cancel([future], force=True)
        except Exception as error:
            logger.debug("what was submitted could not be cancelled: %s", error)
