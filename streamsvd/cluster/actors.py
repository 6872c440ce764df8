"""The actors of a fit on a Dask cluster: called all at once, and made again when they are lost."""

import logging
from collections.abc import Sequence
from typing import Any

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
        self._submitted = Submitted(client)
        self._futures: list[Any] = [None] * len(shares)
        self._actors: list[Any] = [None] * len(shares)
        self._addresses = [""] * len(shares)
        self._losses = [0] * len(shares)

    def _catch_up(self, k: int) -> None:
        """Bring a new actor to where all are."""
        raise NotImplementedError

    def _all(self, method: str, *args: Any, advance: Advance | None = None) -> list[Any]:
        """Call a method of all actors at once; those that are lost are made again."""
        futures = [self._start(k, method, *args) for k in range(len(self._shares))]
        answers = []
        for k, future in enumerate(futures):
            answers.append(self._answer(k, future, method, *args))
            if advance is not None:
                advance(self._shares[k].stop - self._shares[k].start)
        return answers

    def _start(self, k: int, method: str, *args: Any) -> Any:
        try:
            if self._actors[k] is None:
                self._make(k)
            return getattr(self._actors[k], method)(*args)
        except (Lost, OSError, RuntimeError):
            return None

    def _answer(self, k: int, future: Any, method: str, *args: Any) -> Any:
        while True:
            try:
                if future is None:
                    raise Lost(self._addresses[k])
                answer = answer_of(self._client, future, self._addresses[k])
                self._losses[k] = 0
                return answer
            except Lost as lost:
                logger.warning("worker %s is lost; its columns are made again", lost)
                self._restore(k)
                future = self._start(k, method, *args)

    def _make(self, k: int) -> None:
        """An actor for the share `k`, on the worker with the fewest."""
        there = wait_for_workers(self._client)
        held = {address: self._addresses.count(address) for address in there}
        address = min(sorted(held), key=held.__getitem__)
        future = self._submitted.submit(
            Columns, self._shares[k], actor=True, workers=[address], allow_other_workers=False,
            key=key_of(f"columns-{k}"),
        )  # fmt: skip
        self._futures[k] = future
        self._addresses[k] = address
        self._actors[k] = answer_of(self._client, future, address)

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
        future = self._start(k, method, *args)
        if future is None:
            raise Lost(self._addresses[k])
        return answer_of(self._client, future, self._addresses[k])

    def _remove(self) -> None:
        """Remove all, and what they have on disk, as far as they are there."""
        for k, actor in enumerate(self._actors):
            if actor is not None:
                try:
                    answer_of(self._client, actor.close(), self._addresses[k])
                except Exception as error:  # whatever ended the fit: there may be no cluster left
                    logger.debug("columns %d could not be removed: %s", k, error)
        self._actors = [None] * len(self._shares)
        self._submitted.cancel()
