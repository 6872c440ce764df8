"""How good components are, measured against the data in one pass."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg, sparse

from streamsvd.ingest import Preprocessing, StripReader
from streamsvd.kernels import Array
from streamsvd.sources import Source


@dataclass(frozen=True)
class Accuracy:
    """What one pass over the data says of the components.

    Attributes
    ----------
    accuracy : float or None
        The paper's measure: ``trace(U_p^T X V_p)`` over the sum of the `p` largest singular values
        of `X`, between 0 and 1. None without right vectors for this many samples, or when the
        singular values were not computed.
    captured_variance : float
        ``||U_p^T X||^2 / ||X||^2``, after centring and scaling.
    captured_of_best : float or None
        The same over what the best `p` components (PCA's) capture.
    orthogonality_error : float
        Largest entry of ``|U_p^T U_p - I|``.
    true_singular_values : (p,) array or None
        The `p` largest of `X`, from the eigenvalues of ``X X^T``: exact to about
        ``1e-16 s_1^2 / s_k``. None when the n x n matrix was over the limit.
    """

    accuracy: float | None
    captured_variance: float
    captured_of_best: float | None
    orthogonality_error: float
    true_singular_values: Array | None


def measure(
    components: sparse.csr_array,
    right: sparse.csr_array | None,
    source: Source,
    preprocessing: Preprocessing,
    dtype: np.dtype[np.generic],
    gram_limit: int,
    on_samples: Callable[[int], None] = lambda n: None,
) -> Accuracy:
    """Measure `components` (p, n) and `right` (p, N), if any, in one pass over `source`.

    Cost: a read of the source and ``n^2 N`` operations for the singular values, which are left out
    when the ``8 n^2`` bytes of the Gram matrix exceed `gram_limit`.
    """
    p, n = components.shape
    gram = np.zeros((n, n)) if 8 * n * n <= gram_limit else None
    columns = None
    if right is not None and right.shape[1] == source.n_samples:
        columns = right.tocsc()
    trace = captured = total = 0.0
    for start, strip in StripReader(source, dtype):
        preprocessing.apply(strip)
        x = strip.astype(np.float64, copy=False)
        if gram is None:
            captured += float(np.sum((components @ x) ** 2))
            total += float(np.vdot(x, x))
        else:
            gram += x @ x.T
        if columns is not None:
            v = columns[:, start : start + x.shape[1]]
            touched = np.flatnonzero(np.diff(v.indptr))
            trace += float(v[:, touched].multiply(components @ x[:, touched]).sum())
        on_samples(x.shape[1])
    values = None
    if gram is not None:
        values = largest_singular_values(gram, p)
        total = float(np.trace(gram))
        captured = float(components.multiply(components @ gram).sum())
    products = (components @ components.T).toarray()
    comparable = values is not None and columns is not None
    return Accuracy(
        accuracy=_ratio(trace, float(values.sum())) if comparable else None,  # type: ignore[union-attr]
        captured_variance=_ratio(captured, total) or 0.0,
        captured_of_best=None if values is None else _ratio(captured, float(np.sum(values**2))),
        orthogonality_error=float(np.max(np.abs(products - np.eye(p)))),
        true_singular_values=values,
    )


def write_scores(
    components: sparse.csr_array,
    preprocessing: Preprocessing,
    reader: StripReader,
    target: Any,
    on_samples: Callable[[int], None] = lambda n: None,
) -> None:
    """Write the scores of the samples of `reader` to their places in `target`.

    Samples are the columns of `target`, (p, N), or its rows, as they are in the source.
    """
    for start, strip in reader:
        preprocessing.apply(strip)
        scores = components @ strip.astype(np.float64, copy=False)
        where = slice(start, start + scores.shape[1])
        if reader.source.sample_axis:
            target[:, where] = scores
        else:
            target[where, :] = scores.T
        on_samples(scores.shape[1])


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def largest_singular_values(gram: Array, p: int) -> Array:
    """The `p` largest singular values from the Gram matrix, descending."""
    n = len(gram)
    values = linalg.eigh(gram, eigvals_only=True, subset_by_index=[n - p, n - 1])
    return np.sqrt(np.maximum(values[::-1], 0.0))
