"""One fit from end to end."""

from streamsvd.fitting.planning import plan_fit, resolve
from streamsvd.fitting.run import fit

__all__ = ["fit", "plan_fit", "resolve"]
