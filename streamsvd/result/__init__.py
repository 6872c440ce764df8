"""What a fit gives: components, the path, files, text, pictures. The only matplotlib."""

from streamsvd.result.solution import History
from streamsvd.result.svd_result import SVDResult

__all__ = ["History", "SVDResult"]
