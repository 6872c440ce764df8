"""The options of a fit and of reading its data, and every rule on a value."""

from streamsvd.options.options import LIMITS, Options
from streamsvd.options.reading import Ask, Reading

__all__ = ["LIMITS", "Ask", "Options", "Reading"]
