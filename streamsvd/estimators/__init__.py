"""scikit-learn estimators: `SparseSVD` and `StreamingSparsePCA`. Samples are rows here."""

from streamsvd.estimators.sparse_pca import StreamingSparsePCA
from streamsvd.estimators.sparse_svd import SparseSVD

__all__ = ["SparseSVD", "StreamingSparsePCA"]
