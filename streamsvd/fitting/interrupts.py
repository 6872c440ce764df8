"""SIGINT, SIGTERM, SIGHUP: at once where nothing is lost, at a safe point where work is kept."""

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

logger = logging.getLogger("streamsvd")


class StopRequest:
    """Whether the user asked to stop.

    Attributes
    ----------
    deferred : bool
        While set, a first signal is only noted in `signal`; a second one acts at once.
    signal : int or None
        The signal that came.
    message : str
        What to tell the user when it acts at once.
    """

    def __init__(self) -> None:
        self.deferred = False
        self.signal: int | None = None
        self.message = ""

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        again = self.signal is not None
        # Noted in any case: an exception that is raised inside a callback of some library is lost.
        self.signal = number
        if again or not self.deferred:
            raise_for(number, self.message)


def raise_for(number: int, message: str = "") -> None:
    """Leave as the signal would: `KeyboardInterrupt`, or exit with status 128 + the signal."""
    if message:
        logger.warning(message)
    if number == signal.SIGINT:
        raise KeyboardInterrupt(message)
    raise SystemExit(128 + number)


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Handle SIGINT, SIGTERM and SIGHUP inside the block, so that files are left in order.

    Handlers that the program has set itself are left alone, and so is everything outside the main
    thread, where signals cannot be handled.
    """
    request = StopRequest()
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number, usual in (
            (signal.SIGINT, signal.default_int_handler),
            (signal.SIGTERM, signal.SIG_DFL),
            (signal.SIGHUP, signal.SIG_DFL),  # the terminal was closed; ignored under nohup
        ):
            if signal.getsignal(number) is usual:
                before[number] = signal.signal(number, request.handle)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
