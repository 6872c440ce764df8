"""scikit-learn estimators: `SparseSVD` and `StreamingSparsePCA`. Samples are rows here."""

import copy
import os
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from streamsvd.api import sparse_pca, sparse_svd
from streamsvd.arrays import Array
from streamsvd.data.kinds import is_known, open_data
from streamsvd.data.labels import Axis, named
from streamsvd.data.missing import as_fitted
from streamsvd.data.source import Source, is_a, mask_of
from streamsvd.errors import OptionError
from streamsvd.fitting.batches import begin_sum, with_batch
from streamsvd.options import Ask, Options
from streamsvd.passes.sample_sum import SampleSum
from streamsvd.passes.summed import SummedSamples
from streamsvd.progress import Progress
from streamsvd.result import SVDResult

TABLES = (("pandas", "DataFrame"), ("polars", "DataFrame"))


class _SparseComponents(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """What both estimators share: everything but how they are fitted."""

    n_components: int
    sample_axis: int
    sample_dim: str | Sequence[str] | None
    layer: str | None
    missing: str
    missing_value: float | None
    missing_chunks: str
    decode: bool
    storage_options: dict[str, Any] | None
    sparse_components: bool
    progress: Progress
    _result: SVDResult | None = None
    _solver: Callable[..., SVDResult]

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the components of `X`.

        Parameters
        ----------
        X : (n_samples, n_features) array, matrix or table, or data of any other kind
            All that `streamsvd.sparse_svd` reads. Samples are the rows of arrays, matrices and
            tables in memory, and where `sample_axis` or `sample_dim` say for all others.
        y
            Ignored.
        """
        self._result = self._solve(self._open(X, reset=True))
        return self

    def transform(self, X: Any) -> Array:
        """Scores of the samples, (n_samples, n_components).

        Each sample's scores depend on that sample alone, bit for bit. Data on disk are read chunk
        by chunk; ``result_.transform(X, out)`` writes the scores of very many samples to disk.
        """
        check_is_fitted(self)
        source = self._open(X, reset=False)
        scores: Array = self.result_.transform(source, progress=self.progress)
        return scores.T if source.sample_axis else scores

    def inverse_transform(self, X: Any) -> Array:
        """Samples (n_samples, n_features) from their scores (n_samples, n_components).

        In the units of the data, NaN in features without any value, unless each sample was centred
        or scaled by itself: what that took away is not in the scores, and they are refused.
        """
        check_is_fitted(self)
        fitted = self.result_.preprocessing
        if "samples" in (fitted.center, fitted.normalize):
            raise OptionError(
                "inverse_transform cannot undo the centring or scaling of each sample by itself "
                '(center="samples", normalize="samples"): multiply by components_ instead'
            )
        X = X if mask_of(X) is None else np.ma.asarray(X, dtype=float).filled(np.nan)
        scores = check_array(X, dtype=np.float64)
        if scores.shape[1] != self.result_.n_components:
            raise OptionError(
                f"scores have {scores.shape[1]} columns, but there are "
                f"{self.result_.n_components} components"
            )
        return (scores @ self.result_.components) * self.scale_ + self.mean_

    def score(self, X: Any, y: Any = None) -> float:
        """How much of `X` its reconstruction from the scores holds: 1 is all of it.

        ``1 - ||X - reconstruction||^2 / ||X||^2``, both after the centring and scaling of the fit:
        on the data of the fit the sum of `explained_variance_ratio_`. One pass.
        """
        check_is_fitted(self)
        source = self._open(X, reset=False)
        measured = self.result_.accuracy(source, gram_limit=1, progress=self.progress)
        return measured.captured_variance

    # ------------------------------------------------------------------------ what was fitted

    @property
    def result_(self) -> SVDResult:
        """The result of the functions, with all else: the path, `at`, `refine`, `save`."""
        if self._result is None:
            raise AttributeError(f"this {type(self).__name__} is not fitted yet")
        return self._result

    @property
    def components_(self) -> Array | sparse.csr_array:
        """(n_components, n_features) orthonormal rows; CSR with ``sparse_components=True``."""
        rows = self.result_.components
        return rows if self.sparse_components else rows.toarray()

    @property
    def explained_variance_(self) -> Array:
        """(n_components,) variances of the scores, divisor ``n_samples - 1``."""
        return self.result_.explained_variance

    @property
    def explained_variance_ratio_(self) -> Array:
        """(n_components,) the same over the total variance of all features."""
        return self.result_.explained_variance_ratio

    @property
    def singular_values_(self) -> Array:
        """(n_components,), see `SVDResult.singular_values`."""
        return self.result_.singular_values

    @property
    def mean_(self) -> Array:
        """(n_features,) what was subtracted; zeros unless ``center="features"``."""
        return self.result_.mean

    @property
    def scale_(self) -> Array:
        """(n_features,) what was divided by; ones unless ``normalize="features"``."""
        return self.result_.scale

    @property
    def n_iter_(self) -> int:
        """Transforms made, or block steps."""
        return self.result_.n_transforms

    @property
    def _n_features_out(self) -> int:
        return self.result_.n_components

    # -------------------------------------------------------------------------------- inside

    def _keep(self, arguments: dict[str, Any]) -> None:
        """The parameters as they were given, of which `__init__` makes attributes."""
        for name in self._get_param_names() & arguments.keys():
            setattr(self, name, arguments[name])

    def _solve(self, source: Source) -> SVDResult:
        options = self.get_params(deep=False)
        del options["sparse_components"]
        return self._solver(source, **(options | self._reading(source)))

    def _reading(self, source: Source) -> dict[str, Any]:
        """How the data of the fit are read, for the result to know."""
        return {
            "sample_axis": source.sample_axis,
            "sample_dim": self.sample_dim,
            "layer": self.layer,
        }

    def _open(self, X: Any, *, reset: bool) -> Source:
        """Check `X` as scikit-learn does, and open it."""
        if any(is_a(X, *kind) for kind in TABLES):  # not copied to an array as a whole
            validate_data(self, X, reset=reset, skip_check_array=True)
            return open_data(X, Ask(0))
        if not is_known(X):
            # the pass that reads the data finds what is not finite or masked, and says where
            mask = mask_of(X)
            X = validate_data(self, X, reset=reset, accept_sparse="csr", ensure_all_finite=False)
            return open_data(X if mask is None else np.ma.MaskedArray(X, mask), Ask(0))
        axis = self.sample_axis if self.sample_dim is None else None
        source = open_data(X, self._ask(axis))
        if reset:
            self.n_features_in_ = source.n_features
            self.__dict__.pop("feature_names_in_", None)
            if source.features is not None and source.features.names is not None:
                self.feature_names_in_ = source.features.names
        else:
            self._check_features(source)
        return source

    def _ask(self, axis: int | None) -> Ask:
        """How data that are no array or table in memory are read."""
        names = ("sample_dim", "layer", "missing_chunks", "storage_options", "decode")
        return Ask(axis, **{name: getattr(self, name) for name in names})

    def _check_features(self, source: Source) -> None:
        """Refuse data with other features than those of the fit."""
        if source.n_features != self.n_features_in_:
            raise OptionError(
                f"{source.name} has {source.n_features} features, but {type(self).__name__} is "
                f"expecting {self.n_features_in_} features; pass sample_axis="
                f"{1 - source.sample_axis} if samples are on the other axis"
            )
        if hasattr(self, "feature_names_in_"):
            source.check_names(named("feature", self.feature_names_in_))

    def __sklearn_is_fitted__(self) -> bool:
        return self._result is not None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing == "mean"
        return tags


class SparseSVD(_SparseComponents):
    """Sparse low-rank approximation by `streamsvd.sparse_svd`, as a scikit-learn estimator.

    Parameters
    ----------
    n_components : int
        From 1 to ``min(n_samples, n_features)``.
    n_transforms, algorithm, batch_size, selection, reduction, rank, fill_penalty, max_fill
        See `streamsvd.sparse_svd`.
    max_nonzeros, max_nonzeros_per_component, pivot, refine, effort, center, normalize, dtype, tol
        See `streamsvd.sparse_svd`.
    random_state, memory_limit, n_threads
        See `streamsvd.sparse_svd`.
    sample_axis : {0, 1}
        Axis of the samples in Zarr, Dask and HDF5 arrays and in paths. Those of arrays, matrices
        and tables in memory are always rows.
    sample_dim, layer, missing, missing_value, missing_chunks, decode
        See `streamsvd.sparse_svd`.
    storage_options, workspace, resume, progress
        See `streamsvd.sparse_svd`.
    sparse_components : bool
        Whether `components_` is a SciPy matrix instead of an array.

    Attributes
    ----------
    components_ : (n_components, n_features) array, or csr_array
        Orthonormal to rounding; exact zeros.
    explained_variance_, explained_variance_ratio_ : (n_components,) arrays
        Variances of the scores, divisor ``n_samples - 1`` as in scikit-learn's PCA (mean squares
        when the features were not centred), and their share of the total variance. They add up.
    singular_values_ : (n_components,) array
    mean_, scale_ : (n_features,) arrays
    n_iter_ : int
        Transforms made.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn; names also of what `streamsvd.sparse_svd` reads with names.
    result_ : SVDResult
        All else: the path, `at`, `refine`, `save`.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvd import SparseSVD
    >>> X = np.random.default_rng(0).standard_normal((500, 20))
    >>> SparseSVD(3, center="features").fit_transform(X).shape
    (500, 3)
    """

    _solver = staticmethod(sparse_svd)

    def __init__(
        self,
        n_components: int = 2,
        *,
        n_transforms: int | None = None,
        algorithm: str = "coordinate",
        batch_size: int = 1,
        selection: str | None = None,
        reduction: str | None = None,
        rank: int | None = None,
        fill_penalty: float = 0.0,
        max_fill: float | None = None,
        max_nonzeros: int | None = None,
        max_nonzeros_per_component: int | None = None,
        pivot: bool = False,
        refine: bool = False,
        effort: str = "normal",
        center: str | None = None,
        normalize: str | None = None,
        dtype: Any = None,
        sample_axis: int = 0,
        sample_dim: str | Sequence[str] | None = None,
        layer: str | None = None,
        missing: str = "error",
        missing_value: float | None = None,
        missing_chunks: str = "error",
        decode: bool = True,
        storage_options: dict[str, Any] | None = None,
        workspace: str | os.PathLike[str] | None = None,
        resume: bool = False,
        memory_limit: int | str | None = None,
        n_threads: int | None = None,
        tol: float = 0.0,
        random_state: int | None = None,
        sparse_components: bool = False,
        progress: Progress = False,
    ) -> None:
        self._keep(locals())


class StreamingSparsePCA(_SparseComponents):
    """Sparse principal components by `streamsvd.sparse_pca`, as a scikit-learn estimator.

    Of data as a whole, `fit`, or of batches that are not kept, `partial_fit`; with the same bits
    where both sum up the Gram matrix.

    Parameters
    ----------
    n_components : int
        From 1 to ``min(n_samples, n_features)``.
    max_fill, max_nonzeros, max_nonzeros_per_component, n_transforms
        See `streamsvd.sparse_pca`.
    reduction, rank
        See `streamsvd.sparse_pca`, and `partial_fit` for what they mean there.
    fill_penalty, pivot, refine, effort, center, normalize, tol
        See `streamsvd.sparse_pca`.
    sample_axis, sample_dim, layer, sparse_components, progress
        See `SparseSVD`.
    missing, missing_value, missing_chunks, decode
        See `streamsvd.sparse_pca`.
    storage_options, memory_limit, n_threads
        See `streamsvd.sparse_pca`.

    Attributes
    ----------
    components_, explained_variance_, explained_variance_ratio_, singular_values_, mean_, scale_
        As of `SparseSVD`; the divisor of `explained_variance_` is ``n_samples - 1``.
    n_iter_, n_features_in_, feature_names_in_, result_
        As of `SparseSVD`.

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

    def __init__(
        self,
        n_components: int = 2,
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
        sample_axis: int = 0,
        sample_dim: str | Sequence[str] | None = None,
        layer: str | None = None,
        missing: str = "error",
        missing_value: float | None = None,
        missing_chunks: str = "error",
        decode: bool = True,
        storage_options: dict[str, Any] | None = None,
        memory_limit: int | str | None = None,
        n_threads: int | None = None,
        tol: float = 1e-8,
        sparse_components: bool = False,
        progress: Progress = False,
    ) -> None:
        self._keep(locals())

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the components of `X`, as `SparseSVD.fit`; forgets all batches."""
        self._sum = None
        return super().fit(X, y)

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Add a batch of samples to those of earlier calls.

        The same bits however samples are cut into batches. The components are found when the first
        fitted attribute is read, from all batches until then; more may follow. After `fit`, which
        keeps no sums, the first batch starts anew. A batch that cannot be read to its end changes
        nothing.

        What batches are added up to is said by `reduction` when the first one comes:

        - ``"gram"``: the Gram matrix. Exact: the same bits as one `fit` of all batches together.
        - ``"factor"``: the product with a random matrix of `rank` columns (``20 n_components`` by
          default, and at least 200), from which a factor is made. As the samples are not there for
          another pass, `explained_variance_`, its ratio and `singular_values_` are those of the
          factor, not of the data: a little lower, or higher where these are noise;
          ``result_.is_exact`` is False. The total variance, `mean_` and `scale_` are exact.
          ``result_.refine(X)`` makes all exact, `score` measures. Sparse batches stay sparse, if
          the first one is.
        - None: the Gram matrix where there are at most 5000 features and it fits `memory_limit`, or
          with ``refine=False`` or ``missing="mean"``; else a factor.

        Parameters
        ----------
        X, y
            As for `fit`.

        Notes
        -----
        A sample costs ``n_features^2`` operations, or ``4 n_features rank`` for a factor. Memory:
        ``8 n_features^2`` bytes, or ``16 n_features rank``, more for very many samples, and twice
        that while components are found or a batch of several strips is added.
        """
        source = self._open(X, reset=self._sum is None)
        total = self._sum
        if total is None:
            options = Options.of_pca(self.get_params(deep=False), source.n_features)
            total = begin_sum(source.n_features, options)
            self._features = source.features
        source = as_fitted(source, None, self.missing_value)
        self._sum, self._result = with_batch(total, source), None
        return self

    @property
    def n_samples_seen_(self) -> int:
        """Samples of all batches, or of `fit`."""
        return self.result_.n_samples if self._sum is None else self._sum.n_samples

    @property
    def result_(self) -> SVDResult:
        """The result of `sparse_pca`; found when it is first read after `partial_fit`."""
        if self._result is None and self._sum is not None:
            source = SummedSamples(copy.deepcopy(self._sum))  # more may be added to the sum
            source.features = self._features
            self._result = self._solve(source)
        return super().result_

    def __sklearn_is_fitted__(self) -> bool:
        return self._sum is not None or self._result is not None
