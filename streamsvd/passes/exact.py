"""What is exactly true of components and of a few features, from one pass over the source.

Their covariances are Gram matrices of few rows: of the scores ``U^T X``, and of the features
themselves. Both are summed up as the Gram matrix of all is, so the bits are the same for any
chunking and any number of threads.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.data.source import Source
from streamsvd.kernels.sparse import normalize_sparse
from streamsvd.passes.centring import finish_gram
from streamsvd.passes.gram import GramSum
from streamsvd.passes.preprocessing import Preprocessing
from streamsvd.passes.strips import stays_sparse, sum_strips
from streamsvd.sizes import batch_samples


@dataclass(frozen=True)
class Exact:
    """What one pass says of components and features; with ``A = X X^T``, centred and scaled.

    Attributes
    ----------
    scores : (p, p) array
        ``U^T A U``: the covariance of the scores times N.
    gram : (m, m) array
        The rows and columns of `A` that belong to the features asked for.
    """

    scores: Array
    gram: Array


def exact_of(
    source: Source,
    preprocessing: Preprocessing,
    components: sparse.csr_array | None = None,
    features: Array | None = None,
    *,
    width: int | None = None,
    n_threads: int = 1,
    on_samples: Callable[[int], None] = lambda n: None,
) -> Exact:
    """The covariance of the scores, and the Gram matrix of a few features, in one pass.

    Parameters
    ----------
    components : (p, n) CSR matrix, optional
        Sparse components, as rows.
    features : (m,) array of int, optional
        m up to some thousands.
    preprocessing : Preprocessing
        As fitted to this source.

    Notes
    -----
    Cost: one read of the source, ``(m + p)^2 N`` operations, and two for each entry of the
    components and sample. Memory: ``16 (m + p)^2`` bytes, a batch of ``m + p`` rows and two strips.
    """
    rows = Rows(source, preprocessing, components, features)
    with rows.empty_sum(n_threads) as total:
        strips = rows.of(sum_strips(source, rows.are_sparse, width), on_samples)
        total.extend(strips, weights=source.sample_weights)
        return rows.finish(total.node(), total.n_counted)


class Rows:
    """The features asked for, and below them the scores, of samples that come in strips."""

    def __init__(
        self,
        source: Source,
        preprocessing: Preprocessing,
        components: sparse.csr_array | None,
        features: Array | None,
    ) -> None:
        n = source.n_features
        asked = (preprocessing.center, preprocessing.normalize)
        self.are_sparse = stays_sparse(source, asked[0]) and asked != ("features", "samples")
        self.features = np.zeros(0, dtype=np.intp) if features is None else np.asarray(features)
        if components is None:
            components = sparse.csr_array((0, n))
        self.size = len(self.features) + components.shape[0]
        # Samples that are changed by all of their features are changed first, and as a whole.
        self._whole = preprocessing if "samples" in asked and not self.are_sparse else None
        used = np.union1d(self.features, components.indices).astype(np.intp)
        self._used = used if self._whole is None else np.arange(n)
        self._pick = np.searchsorted(self._used, self.features)
        self._loadings = sparse.csr_array(components[:, self._used])
        self._mean, self._scale = np.zeros(n), np.ones(n)
        if self._whole is None and asked[0] == "features":
            self._mean = preprocessing.mean
        if self._whole is None and preprocessing.divisor is not None:
            self._scale = preprocessing.divisor
        # scores of samples that are centred are so but for rounding: that is taken away too
        self._center = "features" if asked[0] == "features" and asked[1] != "samples" else None
        self._normalizes = self.are_sparse and asked[1] == "samples"
        self._weights = sparse.csr_array(components / self._scale).T.tocsr()
        self._of_mean = self._weights.T @ self._mean

    def empty_sum(self, n_threads: int = 1) -> GramSum:
        """To which the rows of all samples are added."""
        return GramSum(self.size, self._center, None, n_threads, np.zeros(self.size))

    def finish(self, node: Array, n_samples: float) -> Exact:
        """What the sum says, once all are there."""
        n, m = self.size, len(self.features)
        learned = Preprocessing.unlearned(self._center, None, n)
        matrix, _ = finish_gram(node, learned, np.zeros(n), n_samples, "the samples")
        return Exact(matrix[m:, m:].copy(), matrix[:m, :m].copy())

    def of(
        self, strips: Iterable[Any], on_samples: Callable[[int], None] = lambda n: None
    ) -> Iterator[Array]:
        """The rows (m + p, c) of strips, as many samples at a time as fit in a batch."""
        most = batch_samples(self.size)
        for strip in strips:
            count = strip.shape[0 if self.are_sparse else 1]
            if self._normalizes:
                normalize_sparse(strip.indptr, strip.data)
            if self._whole is not None:
                strip = strip.astype(np.float64, copy=False)  # the caller's to change
                self._whole.apply(strip)
            for first in range(0, count, most):
                part = slice(first, min(first + most, count))
                if self.are_sparse:
                    yield self._sparse_rows(strip[part])
                else:
                    yield self._dense_rows(strip[:, part])
            on_samples(count)

    def _dense_rows(self, strip: Array) -> Array:
        used = self._used
        x = strip[used].astype(np.float64, copy=False)
        x -= self._mean[used, None]
        x /= self._scale[used, None]
        return np.concatenate([x[self._pick], self._loadings @ x])

    def _sparse_rows(self, strip: sparse.csr_array) -> Array:
        wanted = self.features
        x = strip[:, wanted].toarray().T
        x = (x - self._mean[wanted, None]) / self._scale[wanted, None]
        scores = (strip @ self._weights).toarray().T - self._of_mean[:, None]
        return np.concatenate([x, scores])
