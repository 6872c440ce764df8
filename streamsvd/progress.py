"""Progress of long work: a bar, a callable, or nothing."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from typing import Any, Protocol

from tqdm import tqdm

Progress = bool | None | Callable[[str, int, int], None]


EVERY = 0.1
"""Seconds between two calls of a user's function."""

DELAY = 0.5
"""Seconds that work must take for a bar that was not asked for."""

SETTLED = 1.0
"""Seconds of work after which it is said how long the rest will take: the first moments compile."""


class Advance(Protocol):
    """Takes the units done since the last call, and what else there is to say."""

    def __call__(self, units: int, note: str = "") -> None:
        """Tell it."""


def progress_of_passes(
    progress: Progress, name: str, n_samples: int, n_passes: int = 1
) -> AbstractContextManager[Advance]:
    """Of passes over samples."""
    unit = "samples" if n_passes == 1 else f"samples, in {n_passes} passes"
    return progress_bar(progress, name, n_passes * n_samples, unit=unit)


@contextmanager
def progress_bar(
    progress: Progress,
    name: str,
    total: int | None,
    done: int = 0,
    *,
    unit: str = "samples",
    is_steady: bool = True,
) -> Iterator[Advance]:
    """A function that takes the number of units done since the last call.

    Parameters
    ----------
    progress : bool, callable or None
        True for a bar, False for nothing, None for a bar on a terminal or in a notebook of what
        takes longer than `DELAY`, or a callable ``progress(name, done, total)``; `total` is then 0
        where nobody knows it.
    name : str
        Of the stage.
    total : int or None
        Units that end it; None where nobody knows.
    done : int
        Units that were done before.
    unit : str
        What is counted; ``"bytes"`` are shown in powers of 1024.
    is_steady : bool
        Whether the units done tell how long those left will take, which is only then said.
    """
    if callable(progress):
        with _told(progress, name, total or 0, done) as advance:
            yield advance
    elif not is_shown(progress):  # not even a bar that shows nothing: tqdm has a lock for forks
        yield lambda units, note="": None
    else:
        delay = DELAY if progress is None else 0.0
        with _bar(name, total, done, unit, is_steady, delay) as advance:
            yield advance


def is_shown(progress: Progress) -> bool:
    """Whether there is something to look at: by default on a terminal and in notebooks."""
    if progress is None:
        return sys.stderr.isatty() or _in_notebook()
    return progress is True


def show_line(text: str) -> None:
    """A line among the bars that are there; also from another thread than theirs."""
    tqdm.write(text, file=sys.stderr)


@contextmanager
def _told(
    report: Callable[[str, int, int], None], name: str, total: int, done: int
) -> Iterator[Advance]:
    """Calls of a user's function: every now and then, and at the end."""
    count, told, last = done, done, 0.0

    def advance(units: int, note: str = "") -> None:
        nonlocal count, told, last
        count += units
        now = time.monotonic()
        if count != told and (count == total or now - last > EVERY):
            last, told = now, count
            report(name, count, total)

    yield advance
    if count != told:
        report(name, count, total)


@contextmanager
def _bar(
    name: str, total: int | None, done: int, unit: str, is_steady: bool, delay: float
) -> Iterator[Advance]:
    is_bytes = unit == "bytes"
    of = "{n_fmt}" if total is None else "{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}"
    counted = "iB" if is_bytes else f" {unit}"
    line, left = f"{{desc}}: {of}{counted} [{{elapsed}}", "<{remaining}"
    began: float | None = None
    with _kind_of_bar()(
        total=total,
        initial=done,
        desc=name,
        unit_scale=is_bytes or (total or 0) > 99_999,
        unit_divisor=1024 if is_bytes else 1000,
        bar_format=line + "{postfix}]",
        miniters=0,  # notes are news too
        smoothing=0.0,  # the mean of all that was done tells more than the last moment
        delay=delay,
    ) as bar:

        def advance(units: int, note: str = "") -> None:
            nonlocal began
            now = time.monotonic()
            began = now if began is None else began
            if is_steady and total is not None and now - began > SETTLED:
                bar.bar_format = line + left + "{postfix}]"
            if note:
                bar.set_postfix_str(note, refresh=False)
            bar.update(units)

        yield advance


def _kind_of_bar() -> Any:
    """That of notebooks where these can show it."""
    if _in_notebook() and find_spec("ipywidgets"):
        from tqdm.notebook import tqdm as widget

        return widget
    return tqdm


def _in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"
