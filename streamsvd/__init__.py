"""Sparse low-rank approximation of data larger than memory."""

from typing import TYPE_CHECKING, Any

from streamsvd.api import plan_svd, sparse_pca, sparse_pca_cv, sparse_svd
from streamsvd.choosing import CrossValidation
from streamsvd.errors import (
    OptionError,
    ResourceError,
    SourceError,
    StreamSVDError,
    StreamSVDWarning,
)
from streamsvd.passes import Accuracy
from streamsvd.result import History, SVDResult
from streamsvd.version import __version__

if TYPE_CHECKING:
    from streamsvd.estimators import SparseSVD, StreamingSparsePCA


__all__ = [
    "Accuracy",
    "CrossValidation",
    "History",
    "OptionError",
    "ResourceError",
    "SVDResult",
    "SourceError",
    "SparseSVD",
    "StreamSVDError",
    "StreamSVDWarning",
    "StreamingSparsePCA",
    "__version__",
    "plan_svd",
    "sparse_pca",
    "sparse_pca_cv",
    "sparse_svd",
]


def __getattr__(name: str) -> Any:
    """The estimators, and with them scikit-learn, are imported when they are used."""
    if name in ("SparseSVD", "StreamingSparsePCA"):
        from streamsvd import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
