"""Sparse low-rank approximation of data larger than memory."""

from streamsvd.api import plan_svd, sparse_pca, sparse_svd
from streamsvd.errors import OptionError, ResourceError, SourceError, StreamSVDError
from streamsvd.metrics import Accuracy
from streamsvd.result import SVDResult
from streamsvd.solution import History
from streamsvd.version import __version__

__all__ = [
    "Accuracy",
    "History",
    "OptionError",
    "ResourceError",
    "SVDResult",
    "SourceError",
    "StreamSVDError",
    "__version__",
    "plan_svd",
    "sparse_pca",
    "sparse_svd",
]
