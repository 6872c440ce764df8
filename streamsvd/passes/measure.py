"""How good components are, measured against the data in one pass."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg, sparse

from streamsvd.arrays import Array
from streamsvd.errors import OptionError
from streamsvd.passes.moments import Moments, add_up
from streamsvd.passes.preprocessing import Preprocessing
from streamsvd.passes.strips import StripReader
from streamsvd.passes.weighted import weigh_samples


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
    captured_by_component : (p,) array
        The share of each component in it: they add up.
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
    captured_by_component: Array
    captured_of_best: float | None
    orthogonality_error: float
    true_singular_values: Array | None


@dataclass(frozen=True)
class Sums:
    """What a pass over samples adds up.

    Attributes
    ----------
    captured : (p,) array
        Sums of squares of the rows of ``U_p^T X``; of no meaning with `gram`, which has them.
    total : float
        ``||X||^2``; of no meaning with `gram`.
    trace : float
        ``trace(U_p^T X V_p)``.
    gram : (n, n) array or None
        ``X X^T``.
    """

    captured: Array
    total: float
    trace: float
    gram: Array | None

    def __add__(self, other: "Sums") -> "Sums":
        gram = None if self.gram is None or other.gram is None else self.gram + other.gram
        trace = self.trace + other.trace
        return Sums(self.captured + other.captured, self.total + other.total, trace, gram)


def sum_up(
    components: sparse.csr_array,
    preprocessing: Preprocessing,
    reader: StripReader,
    right: sparse.csc_array | None,
    with_gram: bool,
    on_samples: Callable[[int], None] = lambda n: None,
) -> Sums:
    """`Sums` over the samples of `reader`, whose right vectors are `right` (p, any), if any.

    Samples count as often as their source says they weigh.
    """
    p, n = components.shape
    gram = np.zeros((n, n)) if with_gram else None
    trace, total, captured = 0.0, 0.0, np.zeros(p)
    for start, strip in reader:
        preprocessing.apply(strip)
        x = strip.astype(np.float64, copy=False)
        weigh_samples(x, reader.source.weights_of_samples(start, start + x.shape[1]))
        if gram is None:
            captured += np.sum((components @ x) ** 2, axis=1)
            total += float(np.vdot(x, x))
        else:
            gram += x @ x.T
        if right is not None:
            v = right[:, start - reader.start : start - reader.start + x.shape[1]]
            touched = np.flatnonzero(np.diff(v.indptr))
            trace += float(v[:, touched].multiply(components @ x[:, touched]).sum())
        on_samples(x.shape[1])
    return Sums(captured, total, trace, gram)


def accuracy_of(components: sparse.csr_array, sums: Sums, has_right: bool) -> Accuracy:
    """What the sums over all samples say of `components` (p, n)."""
    p, values = components.shape[0], None
    total, captured = sums.total, sums.captured
    if sums.gram is not None:
        values = largest_singular_values(sums.gram, p)
        total = float(np.trace(sums.gram))
        captured = np.asarray(components.multiply(components @ sums.gram).sum(axis=1))
    products = (components @ components.T).toarray()
    accuracy = None
    if values is not None and has_right:
        accuracy = _ratio(sums.trace, float(values.sum()))
    return Accuracy(
        accuracy=accuracy,
        captured_variance=_ratio(float(captured.sum()), total) or 0.0,
        captured_by_component=captured / total if total > 0 else np.zeros(p),
        captured_of_best=None if values is None else _ratio(captured.sum(), np.sum(values**2)),
        orthogonality_error=float(np.max(np.abs(products - np.eye(p)))),
        true_singular_values=values,
    )


def score_energies(
    components: sparse.csr_array,
    preprocessing: Preprocessing,
    reader: StripReader,
    on_samples: Callable[[int], None] = lambda n: None,
) -> Array:
    """Sums of squares of the scores of all samples, (p,); the same bits for any chunking."""
    p = components.shape[0]
    moments = Moments(p, reader.source.n_samples, np.zeros(p))
    for start, strip in reader:
        preprocessing.apply(strip)
        scores = components @ strip.astype(np.float64, copy=False)
        moments.add(start, np.ascontiguousarray(scores))
        on_samples(scores.shape[1])
    return add_up(moments.leaves)[1]


def write_scores(
    components: sparse.csr_array,
    preprocessing: Preprocessing,
    reader: StripReader,
    target: Any,
    on_samples: Callable[[int], None] = lambda n: None,
) -> None:
    """Write the scores of the samples of `reader` to their places in `target`.

    Samples are the columns of `target`, (p, N), or its rows, as they are in the source. They are
    computed in float64, and rounded to the type of `target`.
    """
    for start, strip in reader:
        preprocessing.apply(strip)
        scores = components @ strip.astype(np.float64, copy=False)
        _write(target, start, scores, reader, "scores")
        on_samples(scores.shape[1])


def write_samples(
    patterns: sparse.csr_array,
    mean: Array,
    reader: StripReader,
    target: Any,
    width: int,
    on_samples: Callable[[int], None] = lambda n: None,
) -> None:
    """Write the samples whose scores `reader` gives: ``mean + patterns.T @ scores``.

    As `write_scores` writes scores, `width` of them at a time; `patterns` are (p, n).
    """
    columns = patterns.T.tocsr()
    for start, scores in reader:
        stop = start + scores.shape[1]
        for cut in range(start - start % width, stop, width):
            first, last = max(cut, start), min(cut + width, stop)
            samples = columns @ scores[:, first - start : last - start]
            samples += mean[:, None]
            _write(target, first, samples, reader, "samples")
            on_samples(last - first)


def _write(target: Any, start: int, made: Array, reader: StripReader, what: str) -> None:
    """Write what was made of the samples `start` and on, as columns, as samples are in the source.

    Refuses numbers beyond the type of `target`.
    """
    dtype = np.dtype(target.dtype)
    with np.errstate(over="ignore"):
        found = made.astype(dtype, copy=False)
    if np.isinf(found).any() and not np.isinf(made).any():
        raise OptionError(
            f"{what} as large as {np.nanmax(np.abs(made)):.3g} are beyond {dtype}: leave dtype= "
            "out, or rescale the data"
        )
    where = slice(start, start + made.shape[1])
    if reader.source.sample_axis:
        target[:, where] = found
    else:
        target[where, :] = found.T


def _ratio(part: float, whole: float) -> float | None:
    return float(part / whole) if whole > 0 else None


def largest_singular_values(gram: Array, p: int) -> Array:
    """The `p` largest singular values from the Gram matrix, descending."""
    n = len(gram)
    values = linalg.eigh(gram, eigvals_only=True, subset_by_index=[n - p, n - 1])
    return np.sqrt(np.maximum(values[::-1], 0.0))
