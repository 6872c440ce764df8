"""What streamsvd raises on purpose. Every message states the value, the limit and the remedy."""

import sys
import warnings


class StreamSVDError(Exception):
    """Base of all errors raised on purpose by streamsvd."""


class OptionError(StreamSVDError, ValueError):
    """An option, or a combination of options, that cannot be used."""


class SourceError(StreamSVDError, ValueError):
    """A source that cannot be read as a finite real matrix."""


class ResourceError(StreamSVDError, RuntimeError):
    """Too little memory or disk for the job, or a place that cannot be used for it."""


class StreamSVDWarning(UserWarning):
    """Data that are read as was asked, but hardly as was meant."""


def warn(message: str) -> None:
    """Warn, at the line outside of streamsvd that called it."""
    frame, level = sys._getframe(), 1
    while frame.f_back and str(frame.f_globals.get("__name__")).startswith("streamsvd."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, StreamSVDWarning, stacklevel=level)
