"""Progress of long work: a bar, a callable, or nothing."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

Progress = bool | None | Callable[[str, int, int], None]


EVERY = 0.1
"""Seconds between two calls of a user's function."""


@contextmanager
def progress_bar(
    progress: Progress, name: str, total: int, done: int = 0
) -> Iterator[Callable[[int], None]]:
    """A function that takes the number of units done since the last call.

    `progress`: True for a bar, False for nothing, None for a bar on a terminal, or a callable
    ``progress(name, done, total)``.
    """
    if callable(progress):
        count, last, report = done, 0.0, progress

        def advance(units: int) -> None:
            nonlocal count, last
            count += units
            now = time.monotonic()
            if count == total or now - last > EVERY:
                last = now
                report(name, count, total)

        yield advance
        return
    shown = sys.stderr.isatty() if progress is None else progress
    if not shown:  # not even a bar that shows nothing: tqdm has a lock that forks share
        yield lambda units: None
        return
    with tqdm(total=total, initial=done, desc=name, unit_scale=True) as bar:

        def advance_bar(units: int) -> None:
            bar.update(units)

        yield advance_bar
