"""Messages to actors and their answers: one frame each, straight to the worker where that works.

The proxies that Dask has for actors send each call to the scheduler, which passes it on, and the
answer back, unless the user's client was made with ``direct_to_workers=True``; and they send each
argument in two frames of its own.
"""

import asyncio
import logging
import pickle
from concurrent.futures import Future
from typing import Any

logger = logging.getLogger("streamsvd")

REACH_SECONDS = 5.0
"""How long a worker may take to answer a first call, before the scheduler is to pass calls on."""

SMALL_BYTES = 2**20
"""Messages of more are cut into frames that are not copied."""


class Line:
    """To the workers of `client`: straight to them as long as `is_direct`, else by its scheduler.

    The user's word counts, a client made with `direct_to_workers` true or false; else `reach` finds
    out.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._is_given = client.direct_to_workers is not None
        self.is_direct = not self._is_given or bool(client.direct_to_workers)

    def ask(self, address: str, key: str, message: bytes) -> "Future[bytes]":
        """Hand `message` to the actor `key` of the worker at `address`: see `Listener`."""
        answer = self._answer(address, key, message)
        try:
            return asyncio.run_coroutine_threadsafe(answer, self._client.loop.asyncio_loop)
        except RuntimeError:  # the client was closed
            answer.close()
            raise

    def reach(self, address: str, key: str) -> None:
        """Try the way to a new actor, `key` at `address`; the scheduler passes all on if it fails.

        It does behind a gateway; and another worker than ours may be at that address here. One that
        fails is enough: others behind the same wall are not waited for again.
        """
        if self._is_given or not self.is_direct:
            return
        future = self.ask(address, key, written("is_there"))
        try:
            future.result(REACH_SECONDS)
        except Exception as error:
            future.cancel()
            self.is_direct = False
            logger.info(
                "the worker at %s is not reached from here (%s): the scheduler passes all on",
                address,
                repr(error),
            )

    async def _answer(self, address: str, key: str, message: bytes) -> bytes:
        from distributed.actor import ProxyRPC
        from distributed.protocol import to_serialize

        client = self._client
        worker = client.rpc(address) if self.is_direct else ProxyRPC(client.scheduler, address)
        # in the frame of the call itself where it is small, as those of moves are: a fifth faster
        sent = message if len(message) < SMALL_BYTES else to_serialize(message)
        try:
            said = await worker.actor_execute(function="asked", actor=key, args=[sent])
        except OSError as error:  # some of which are a TimeoutError, as if there were no answer yet
            raise OSError(f"{address} does not answer: {error}") from error
        if said["status"] != "OK":
            raise said["exception"]
        return said["result"]


class Listener:
    """What hears the messages on the worker."""

    def asked(self, message: bytes) -> bytes:
        """Call a method; the answer."""
        method, args = pickle.loads(message)  # noqa: S301  # from the client, as its tasks are
        return pickle.dumps(getattr(self, method)(*args), protocol=5)

    def is_there(self) -> bool:
        """See `Line.reach`."""
        return True


def written(method: str, *args: Any) -> bytes:
    """A message: the name of a method, and what with."""
    return pickle.dumps((method, args), protocol=5)


def read(answer: bytes) -> Any:
    """What the method gave."""
    return pickle.loads(answer)  # noqa: S301  # from our worker
