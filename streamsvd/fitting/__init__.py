"""One fit from end to end."""

from streamsvd.fitting.missing import with_means
from streamsvd.fitting.planning import choose_form, plan_fit, resolve, weighed
from streamsvd.fitting.run import fit

__all__ = ["choose_form", "fit", "plan_fit", "resolve", "weighed", "with_means"]
