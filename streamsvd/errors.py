"""What streamsvd raises on purpose. Every message states the value, the limit and the remedy."""


class StreamSVDError(Exception):
    """Base of all errors raised on purpose by streamsvd."""


class OptionError(StreamSVDError, ValueError):
    """An option, or a combination of options, that cannot be used."""


class SourceError(StreamSVDError, ValueError):
    """A source that cannot be read as a finite real matrix."""


class ResourceError(StreamSVDError, RuntimeError):
    """Too little memory or disk for the job, or a place that cannot be used for it."""
