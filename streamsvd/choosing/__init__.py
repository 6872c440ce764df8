"""How many components, how sparse, how sure: cross-validation and stability, from one pass."""

from streamsvd.choosing.rule import GridPoint
from streamsvd.choosing.run import cross_validate
from streamsvd.choosing.validated import CrossValidation

__all__ = ["CrossValidation", "GridPoint", "cross_validate"]
