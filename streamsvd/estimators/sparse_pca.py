"""`sparse_pca` as a scikit-learn estimator, also of batches."""

import copy
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from streamsvd.api import sparse_pca
from streamsvd.arrays import Array
from streamsvd.data.labels import Axis
from streamsvd.data.masks import taking_part
from streamsvd.data.missing import filled
from streamsvd.data.weights import record_of, sample_weights_of, weights_of
from streamsvd.errors import OptionError
from streamsvd.estimators.shared import SparseComponents
from streamsvd.fitting.batches import begin_sum, sum_of, with_batch
from streamsvd.options import Options
from streamsvd.passes.sample_sum import SampleSum
from streamsvd.passes.summed import SummedSamples
from streamsvd.progress import Progress
from streamsvd.result import SVDResult


class StreamingSparsePCA(SparseComponents):
    """Sparse principal components by `streamsvd.sparse_pca`, as a scikit-learn estimator.

    Of data as a whole, `fit`, or of batches that are not kept, `partial_fit`; with the same bits
    where both sum up the Gram matrix.

    Parameters
    ----------
    n_components : int, float or None
        From 1 to ``min(n_samples, n_features)``, which None stands for, or a share of the
        variance, see `streamsvd.sparse_svd`.
    max_fill, max_nonzeros, max_nonzeros_per_component, n_transforms
        See `streamsvd.sparse_pca`.
    reduction, rank
        See `streamsvd.sparse_pca`, and `partial_fit` for what they mean there.
    fill_penalty, pivot, refine, effort, center, normalize, feature_weights, tol
        See `streamsvd.sparse_pca`.
    sample_axis, sample_dim, layer, whiten, sparse_components, scores_dtype, progress
        See `SparseSVD`.
    feature_mask, missing, missing_value, missing_chunks, decode
        See `streamsvd.sparse_pca`.
    storage_options, memory_limit, n_threads
        See `streamsvd.sparse_pca`.

    Attributes
    ----------
    components_, explained_variance_, explained_variance_ratio_, singular_values_, mean_, scale_
        As of `SparseSVD`; the divisor of `explained_variance_` is ``n_samples - 1``.
    n_components_, noise_variance_, n_iter_, n_features_in_, feature_names_in_, result_
        As of `SparseSVD`.
    n_samples_seen_ : int
        Samples of `fit` and of the batches since.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvd import StreamingSparsePCA
    >>> X = np.random.default_rng(0).standard_normal((500, 20))
    >>> StreamingSparsePCA(3, max_fill=0.2).fit(X).components_.shape
    (3, 20)
    """

    _solver = staticmethod(sparse_pca)
    _sum: SampleSum | None = None
    _features: Axis | None = None
    _mask: Array | None = None
    _asked: int | float | None = None  # `n_components` of the call before

    def __init__(
        self,
        n_components: int | float | None = 2,
        *,
        max_fill: float | None = None,
        max_nonzeros: int | None = None,
        max_nonzeros_per_component: int | None = None,
        n_transforms: int | None = None,
        reduction: str | None = None,
        rank: int | None = None,
        fill_penalty: float = 0.5,
        pivot: bool = True,
        refine: bool = True,
        effort: str = "normal",
        center: str | None = "features",
        normalize: str | None = None,
        feature_weights: Any = None,
        sample_axis: int = 0,
        sample_dim: str | Sequence[str] | None = None,
        layer: str | None = None,
        feature_mask: Any = None,
        missing: str = "error",
        missing_value: float | None = None,
        missing_chunks: str = "error",
        decode: bool = True,
        storage_options: dict[str, Any] | None = None,
        memory_limit: int | str | None = None,
        n_threads: int | None = None,
        tol: float = 1e-8,
        whiten: bool = False,
        sparse_components: bool = False,
        scores_dtype: str | None = None,
        progress: Progress = False,
    ) -> None:
        self._keep(locals())

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Find the components of `X`, as `SparseSVD.fit`; forgets all batches.

        `sample_weight`, (n_samples,), says how many times each sample counts, see
        `streamsvd.sparse_svd`.
        """
        self._check_own()
        self._result = self._solve(self._open(X, reset=True), sample_weights=sample_weight)
        self._sum, self._asked = None, self.n_components
        self._features, self._mask = self._result.features, self._result.feature_mask
        self.n_samples_seen_ = self._result.n_samples
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Add a batch of samples to those of earlier calls.

        The same bits however samples are cut into batches. The components are found when the first
        fitted attribute is read, from all batches until then; more may follow. After a `fit` on the
        Gram matrix they are added to its samples, the same to rounding; other fits keep no sums,
        and are not gone on from. A batch that cannot be read to its end changes nothing.

        What batches are added up to is said by `reduction` when the first one comes:

        - ``"gram"``: the Gram matrix. Exact: the same bits as one `fit` of all batches together.
        - ``"factor"``: the product with a random matrix of `rank` columns (``20 n_components`` by
          default, and at least 200), from which a factor is made. As the samples are not there for
          another pass, `explained_variance_`, its ratio and `singular_values_` are those of the
          factor, not of the data: a little lower, or higher where these are noise;
          ``result_.is_exact`` is False. The total variance, `mean_` and `scale_` are exact.
          ``result_.refine(X)`` makes all exact, ``result_.accuracy(X)`` measures. Sparse
          batches stay sparse, if the first one is.
        - None: the Gram matrix where there are at most 5000 features and it fits `memory_limit`, or
          with ``refine=False`` or ``missing="mean"``; else a factor.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`.

        Notes
        -----
        A sample costs ``n_features^2`` operations, or ``4 n_features rank`` for a factor. Memory:
        ``8 n_features^2`` bytes, or ``16 n_features rank``, more for very many samples, and twice
        that while components are found or a batch of several strips is added.
        """
        self._check_own()
        total, is_first = self._sum, not self.__sklearn_is_fitted__()
        if not is_first and self.n_components != self._asked:
            raise OptionError(
                f"n_components={self.n_components!r} was {self._asked!r} in the call before, and "
                "is one for all batches: set it back, or fit all of them anew"
            )
        source = self._open(X, reset=is_first)
        counts = None if sample_weight is None else sample_weights_of(source, sample_weight)
        if total is None and self._result is not None:
            total = sum_of(self._result, self.n_threads)
        # the mask of all batches is that of the first
        mask = self.feature_mask if is_first else self._mask
        source = taking_part(source, mask)
        source.weigh(weights_of(source, self.feature_weights))
        weights = source.present.weights
        if total is None:
            options = Options.of_pca(self._options(), source.n_features)
            total = begin_sum(source.n_features, options, weights)
            self._features, self._mask = source.features, source.mask
        elif record_of(None, total.weights) != record_of(None, weights):
            raise OptionError(
                "the batches were added with other feature_weights: add them again, or give the "
                "same"
            )
        source = filled(source, None, self.missing_value)
        self._sum, self._result = with_batch(total, source, counts), None
        self._asked, self.n_samples_seen_ = self.n_components, self._sum.n_samples
        return self

    @property
    def result_(self) -> SVDResult:
        """The result of `sparse_pca`; found when it is first read after `partial_fit`."""
        if self._result is None and self._sum is not None:
            source = SummedSamples(copy.deepcopy(self._sum))  # more may be added to the sum
            source.features, source.mask = self._features, self._mask
            if self._mask is not None:
                source.present = source.present._replace(places=np.flatnonzero(self._mask))
            self._result = self._solve(source)
        return super().result_

    def __sklearn_is_fitted__(self) -> bool:
        return self._sum is not None or self._result is not None
