"""More variance from sparse orthonormal components, all refined at once under one budget."""

from streamsvd.refinement.bounds import Beyond, upper_bound
from streamsvd.refinement.covariance import Covariance, Factor, Gram, Samples
from streamsvd.refinement.search import Refined, refine, refine_path, repolish

__all__ = [
    "Beyond",
    "Covariance",
    "Factor",
    "Gram",
    "Refined",
    "Samples",
    "refine",
    "refine_path",
    "repolish",
    "upper_bound",
]
