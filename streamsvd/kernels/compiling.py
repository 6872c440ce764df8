"""The note that kernels are being compiled, for whoever waits for a first fit on a machine."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from numba.core import event

from streamsvd.progress import Progress, is_shown, show_line

PATIENCE = 2.0
"""Seconds of compiling, in all, that nobody needs to be told of."""

NOTE = "streamsvd is compiling itself for this machine, once: some seconds more"


@contextmanager
def compiling_shown(progress: Progress) -> Iterator[None]:
    """Say in one line, where a bar would be shown, that compiling takes longer than `PATIENCE`.

    Once a process. While a kernel is compiled a thread waits to say so; it has ended when the
    kernel is there. Nothing is done where kernels are loaded from the cache, or were compiled.
    """
    if not is_shown(progress):
        yield
        return
    with event.install_listener("numba:compile", _Watch()):
        yield


class _Watch(event.Listener):  # type: ignore[misc]
    """Adds up the time of compiling; kernels that are compiled for another one are part of it."""

    has_said = False
    """Of the process."""

    def __init__(self) -> None:
        self._depth, self._seconds, self._began = 0, 0.0, 0.0
        self._timer: threading.Timer | None = None

    def on_start(self, event: event.Event) -> None:
        """Compiling begins."""
        self._depth += 1
        if self._depth == 1 and not _Watch.has_said:
            self._began = time.monotonic()
            self._timer = threading.Timer(max(0.0, PATIENCE - self._seconds), _say)
            self._timer.daemon = True
            self._timer.start()

    def on_end(self, event: event.Event) -> None:
        """Compiling has ended."""
        self._depth -= 1
        if self._depth == 0 and self._timer is not None:
            self._timer.cancel()
            self._timer.join()
            self._timer = None
            self._seconds += time.monotonic() - self._began


def _say() -> None:
    if not _Watch.has_said:
        _Watch.has_said = True
        show_line(NOTE)
