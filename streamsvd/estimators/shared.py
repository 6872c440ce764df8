"""What both estimators share: everything but how they are fitted. Samples are rows here."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from streamsvd.arrays import Array
from streamsvd.data.kinds import is_known, open_data
from streamsvd.data.labels import named
from streamsvd.data.source import Source, is_a, mask_of, turned
from streamsvd.errors import OptionError
from streamsvd.options import Ask
from streamsvd.options.rules import FLAG, PRECISION
from streamsvd.progress import Progress
from streamsvd.result import SVDResult

TABLES = (("pandas", "DataFrame"), ("polars", "DataFrame"))


class SparseComponents(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """What both estimators share: everything but how they are fitted."""

    n_components: int | float | None
    sample_axis: int
    sample_dim: str | Sequence[str] | None
    layer: str | None
    feature_mask: Any
    missing: str
    missing_value: float | None
    missing_chunks: str
    decode: bool
    storage_options: dict[str, Any] | None
    whiten: bool
    sparse_components: bool
    scores_dtype: str | None
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
        self._check_own()
        self._result = self._solve(self._open(X, reset=True))
        return self

    def transform(self, X: Any) -> Array:
        """Scores of the samples, (n_samples, n_components), of `scores_dtype`; whitened if asked.

        Each sample's scores depend on that sample alone, bit for bit. Data on disk are read chunk
        by chunk; ``result_.transform(X, out)`` writes the scores of very many samples to disk.
        """
        check_is_fitted(self)
        source = self._open(X, reset=False)
        scores: Array = self.result_.transform(
            source, whiten=self.whiten, dtype=self.scores_dtype, progress=self.progress
        )
        return scores.T if source.sample_axis else scores

    def inverse_transform(self, X: Any) -> Array:
        """Samples (n_samples, n_features) from their scores (n_samples, n_components).

        As `SVDResult.inverse_transform`, which also writes very many samples to disk.
        """
        check_is_fitted(self)
        X = X if mask_of(X) is None else np.ma.asarray(X, dtype=float).filled(np.nan)
        scores = check_array(X, dtype=np.float64)
        samples: Array = self.result_.inverse_transform(
            scores, whiten=self.whiten, sample_axis=0, progress=self.progress
        )
        return samples

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The average logarithm of the likelihood of the samples, as of scikit-learn's PCA.

        See `SVDResult.score`; the share of the variance of `X` that the components hold is
        ``result_.accuracy(X).captured_variance``. One pass. Each sample counts as often as
        `sample_weight` says, by default once.
        """
        check_is_fitted(self)
        source = self._open(X, reset=False)
        return self.result_.score(source, sample_weights=sample_weight, progress=self.progress)

    def score_samples(self, X: Any) -> Array:
        """(n_samples,) what `score` is the average of."""
        check_is_fitted(self)
        return self.result_.score_samples(self._open(X, reset=False), progress=self.progress)

    def get_covariance(self) -> Array:
        """(n_features, n_features) covariance by probabilistic PCA on the components.

        See `SVDResult.get_covariance`; that of the data, whether or not scores are whitened.
        """
        check_is_fitted(self)
        return self.result_.get_covariance()

    def get_precision(self) -> Array:
        """(n_features, n_features) the inverse of `get_covariance`; refuses a singular one."""
        check_is_fitted(self)
        return self.result_.get_precision()

    # ------------------------------------------------------------------------ what was fitted

    @property
    def result_(self) -> SVDResult:
        """The result of the functions, with all else: the path, `at`, `refine`, `save`."""
        if self._result is None:
            raise AttributeError(f"this {type(self).__name__} is not fitted yet")
        return self._result

    @property
    def components_(self) -> Array | sparse.csr_array:
        """(n_components, n_features) orthonormal rows; CSR with ``sparse_components=True``.

        With `feature_weights` those of the weighted data: ``result_.patterns`` are maps in units.
        """
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
    def n_components_(self) -> int:
        """How many components there are, also where `n_components` is None or a share."""
        return self.result_.n_components

    @property
    def noise_variance_(self) -> float:
        """See `SVDResult.noise_variance`."""
        return self.result_.noise_variance

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
        for name in arguments.keys() - {"self"}:
            setattr(self, name, arguments[name])

    def _options(self) -> dict[str, Any]:
        """The parameters of the function; a subclass may have others of its own."""
        known = inspect.signature(self._solver).parameters
        return {name: value for name, value in vars(self).items() if name in known}

    def _check_own(self) -> None:
        """Check the parameters that the function does not have."""
        FLAG.check("whiten", self.whiten)
        if self.scores_dtype is not None:
            PRECISION.check("dtype", self.scores_dtype)

    def _solve(self, source: Source, **more: Any) -> SVDResult:
        return self._solver(source, **(self._options() | self._reading(source) | more))

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
            other = turned(source, self.n_features_in_) if self.sample_dim is None else ""
            raise OptionError(
                f"{source.name} has {source.n_features} features, but {type(self).__name__} is "
                f"expecting {self.n_features_in_} features{other}"
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
