"""The actors of a fit on a Dask cluster: called all at once, and made again when they are lost."""

import logging
from collections.abc import Sequence
from typing import Any

from streamsvd.cluster.line import Line, read, written
from streamsvd.cluster.submitted import Submitted, key_of
from streamsvd.cluster.waiting import Advance, Lost, answer_of, wait_for_workers
from streamsvd.cluster.worker import Columns, Share
from streamsvd.errors import ResourceError

logger = logging.getLogger("streamsvd")

MOST_LOSSES = 20
"""Of the same columns one after the other: then they are what kills the workers."""


class Actors:
    """An actor for each share of the columns, on the workers of `client`."""

    def __init__(self, client: Any, shares: Sequence[Share]) -> None:
        self._client, self._shares = client, shares
        self._submitted, self._line = Submitted(client), Line(client)
        self._actors: list[Any] = [None] * len(shares)  # their futures
        self._addresses = [""] * len(shares)
        self._losses = [0] * len(shares)

    def _catch_up(self, k: int) -> None:
        """Bring a new actor to where all are."""
        raise NotImplementedError

    def _all(self, method: str, *args: Any, advance: Advance | None = None) -> list[Any]:
        """Call a method of all actors at once; those that are lost are made again."""
        return self._each(method, [args] * len(self._shares), advance)

    def _each(
        self,
        method: str,
        args: Sequence[tuple[Any, ...] | None],
        advance: Advance | None = None,
    ) -> list[Any]:
        """As `_all`, each with what is in `args` for it; None there is no call, and the answer."""
        same: dict[int, bytes] = {}  # what goes to several is written once
        for own in args:
            if own is not None and id(own) not in same:
                same[id(own)] = written(method, *own)
        messages = {k: same[id(own)] for k, own in enumerate(args) if own is not None}
        futures = {k: self._start(k, message) for k, message in messages.items()}
        answers: list[Any] = [None] * len(args)
        for k, future in futures.items():
            answers[k] = read(self._answer(k, future, messages[k]))
            if advance is not None:
                advance(self._shares[k].stop - self._shares[k].start)
        return answers

    def _start(self, k: int, message: bytes) -> Any:
        try:
            if self._actors[k] is None:
                self._make(k)
            actor = self._actors[k]
            if actor.status not in ("finished", "pending"):
                return None  # its worker is known to be gone
            return self._line.ask(self._addresses[k], actor.key, message)
        except (Lost, OSError, RuntimeError):
            return None

    def _answer(self, k: int, future: Any, message: bytes) -> bytes:
        while True:
            try:
                answer = self._wait(k, future)
                self._losses[k] = 0
                return answer
            except Lost as lost:
                logger.warning("worker %s is lost; its columns are made again", lost)
                self._restore(k)
                future = self._start(k, message)

    def _wait(self, k: int, future: Any) -> bytes:
        """The answer of the actor `k`, from what `_start` gave."""
        if future is None:
            raise Lost(self._addresses[k])
        try:
            return answer_of(self._client, future, self._addresses[k])
        except Lost:
            future.cancel()  # or it would go on looking for the worker
            raise

    def _make(self, k: int) -> None:
        """An actor for the share `k`, on the worker with the fewest."""
        there = wait_for_workers(self._client)
        held = {address: self._addresses.count(address) for address in there}
        address = min(sorted(held), key=held.__getitem__)
        future = self._submitted.submit(
            Columns, self._shares[k], actor=True, workers=[address], allow_other_workers=False,
            key=key_of(f"columns-{k}"),
        )  # fmt: skip
        self._addresses[k] = address
        answer_of(self._client, future, address)
        self._line.reach(address, future.key)
        self._actors[k] = future

    def _restore(self, k: int) -> None:
        """Make the columns of the share `k` again, as far as all have come."""
        while True:
            self._losses[k] += 1
            if self._losses[k] > MOST_LOSSES:
                share = self._shares[k]
                raise ResourceError(
                    f"the worker with samples {share.start} to {share.stop - 1} was lost "
                    f"{MOST_LOSSES} times in a row; see the logs of the workers, give them more "
                    "memory or more disk, or add workers"
                )
            try:
                self._actors[k], self._addresses[k] = None, ""
                self._make(k)
                self._catch_up(k)
                return
            except Lost as lost:
                logger.warning("worker %s is lost too", lost)

    def _call(self, k: int, method: str, *args: Any) -> Any:
        return read(self._wait(k, self._start(k, written(method, *args))))

    def _remove(self) -> None:
        """Remove all, and what they have on disk, as far as they are there."""
        for k, actor in enumerate(self._actors):
            if actor is not None:
                try:
                    self._call(k, "close")
                except Exception as error:  # whatever ended the fit: there may be no cluster left
                    logger.debug("columns %d could not be removed: %s", k, error)
        self._actors = [None] * len(self._shares)
        self._submitted.cancel()
