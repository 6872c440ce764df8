"""What users call: from data to sparse orthonormal components."""

from streamsvd.api.cross_validation import sparse_pca_cv
from streamsvd.api.pca import sparse_pca
from streamsvd.api.svd import plan_svd, sparse_svd

__all__ = ["plan_svd", "sparse_pca", "sparse_pca_cv", "sparse_svd"]
