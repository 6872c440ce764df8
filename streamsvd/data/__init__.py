"""Whatever a user calls data becomes a source, read a strip of samples at a time."""

from streamsvd.data.kinds import open_data
from streamsvd.data.source import Source

__all__ = ["Source", "open_data"]
