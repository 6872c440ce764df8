"""What goes over the wires of a Dask cluster of this machine, counted where it is sent and read."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import cloudpickle


class Counts(NamedTuple):
    """So far, of all workers together."""

    trips: int
    """Calls of actors, each with its answer."""
    asked: int
    """Bytes of these calls, as they come in at the workers."""
    answered: int
    """Bytes of the answers, as they leave."""
    sent: int
    """Bytes that anyone sent to anyone, signs of life too; once for each stretch of the way."""

    def since(self, other: "Counts") -> "Counts":
        """What has been added."""
        return Counts(*(now - then for now, then in zip(self, other, strict=True)))


def _begin() -> None:
    """Count what this process reads and sends over TCP."""
    from distributed.comm import tcp

    counts, size = dict.fromkeys(Counts._fields, 0), ContextVar("size", default=0)
    kind, from_frames = tcp.TCP, tcp.from_frames
    read, write = kind.read, kind.write

    async def counted_frames(frames: Any, **options: Any) -> Any:
        size.set(8 * (len(frames) + 2) + sum(memoryview(frame).nbytes for frame in frames))
        return await from_frames(frames, **options)

    async def counted_read(self: Any, *args: Any, **options: Any) -> Any:
        message = await read(self, *args, **options)
        self.is_call = isinstance(message, dict) and message.get("op") == "actor_execute"
        if self.is_call:
            counts["trips"] += 1
            counts["asked"] += size.get()
        return message

    async def counted_write(self: Any, *args: Any, **options: Any) -> Any:
        n_bytes = await write(self, *args, **options)
        counts["sent"] += n_bytes
        if getattr(self, "is_call", False):
            counts["answered"] += n_bytes
        return n_bytes

    kind.counts, kind.uncounted = counts, (read, write, from_frames)
    kind.read, kind.write, tcp.from_frames = counted_read, counted_write, counted_frames


def _end() -> None:
    from distributed.comm import tcp

    tcp.TCP.read, tcp.TCP.write, tcp.from_frames = tcp.TCP.uncounted


def _counts() -> Any:
    from distributed.comm import tcp

    return tcp.TCP.counts


class Wire:
    """The wires between a client, its workers, and a scheduler in the process of the client."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def counts(self) -> Counts:
        """Of the workers that are there, and of this process."""
        ends = [_counts(), *self._client.run(_counts).values()]
        return Counts(*(sum(end[name] for end in ends) for name in Counts._fields))


@contextmanager
def counted(client: Any) -> Iterator[Wire]:
    """Count from here on; workers that come later are not counted, and may not ask."""
    here = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(here)  # workers may not find this file
    try:
        client.run(_begin)
        _begin()
        try:
            yield Wire(client)
        finally:
            _end()
            client.run(_end)
    finally:
        cloudpickle.unregister_pickle_by_value(here)
