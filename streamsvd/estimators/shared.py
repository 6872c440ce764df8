"""What both estimators share: everything but how they are fitted. Samples are rows here."""

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
from streamsvd.data.source import Source, is_a, mask_of
from streamsvd.errors import OptionError
from streamsvd.options import Ask
from streamsvd.options.rules import PRECISION
from streamsvd.progress import Progress
from streamsvd.result import SVDResult

TABLES = (("pandas", "DataFrame"), ("polars", "DataFrame"))


class SparseComponents(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """What both estimators share: everything but how they are fitted."""

    n_components: int | float
    sample_axis: int
    sample_dim: str | Sequence[str] | None
    layer: str | None
    feature_mask: Any
    missing: str
    missing_value: float | None
    missing_chunks: str
    decode: bool
    storage_options: dict[str, Any] | None
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
        if self.scores_dtype is not None:
            PRECISION.check("dtype", self.scores_dtype)
        self._result = self._solve(self._open(X, reset=True))
        return self

    def transform(self, X: Any) -> Array:
        """Scores of the samples, (n_samples, n_components), of `scores_dtype`.

        Each sample's scores depend on that sample alone, bit for bit. Data on disk are read chunk
        by chunk; ``result_.transform(X, out)`` writes the scores of very many samples to disk.
        """
        check_is_fitted(self)
        source = self._open(X, reset=False)
        scores: Array = self.result_.transform(
            source, dtype=self.scores_dtype, progress=self.progress
        )
        return scores.T if source.sample_axis else scores

    def inverse_transform(self, X: Any) -> Array:
        """Samples (n_samples, n_features) from their scores (n_samples, n_components).

        In the units of the data, NaN in features that are left out, unless each sample was centred
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
        scale = self.scale_
        if self.result_.feature_weights is not None:
            scale = scale / np.sqrt(self.result_.feature_weights)
        return (scores @ self.result_.components) * scale + self.mean_

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """How much of `X` its reconstruction from the scores holds: 1 is all of it.

        ``1 - ||X - reconstruction||^2 / ||X||^2``, both after the centring and scaling of the fit:
        on the data of the fit the sum of `explained_variance_ratio_`. One pass. Each sample counts
        as often as `sample_weight` says, by default once.
        """
        check_is_fitted(self)
        source = self._open(X, reset=False)
        measured = self.result_.accuracy(
            source, sample_weights=sample_weight, gram_limit=1, progress=self.progress
        )
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

    def _solve(self, source: Source, **more: Any) -> SVDResult:
        options = self.get_params(deep=False)
        del options["sparse_components"], options["scores_dtype"]
        return self._solver(source, **(options | self._reading(source) | more))

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
