"""More variance from sparse orthonormal components, all refined at once under one budget."""

from streamsvd.refinement.bounds import Beyond, pca_bound, upper_bound
from streamsvd.refinement.covariance import Covariance, Factor, Gram, Samples
from streamsvd.refinement.search import Refined, refine, refine_path, repolish

__all__ = [
    "Beyond",
    "Covariance",
    "Factor",
    "Gram",
    "Refined",
    "Samples",
    "pca_bound",
    "refine",
    "refine_path",
    "repolish",
    "upper_bound",
]
