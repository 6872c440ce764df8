"""`sparse_svd` as a scikit-learn estimator."""

import os
from collections.abc import Sequence
from typing import Any

from streamsvd.api import sparse_svd
from streamsvd.estimators.shared import SparseComponents
from streamsvd.progress import Progress


class SparseSVD(SparseComponents):
    """Sparse low-rank approximation by `streamsvd.sparse_svd`, as a scikit-learn estimator.

    Parameters
    ----------
    n_components : int, float or None
        From 1 to ``min(n_samples, n_features)``, which None stands for, or a share of the
        variance, see `streamsvd.sparse_svd`.
    n_transforms, algorithm, batch_size, selection, reduction, rank, fill_penalty, max_fill
        See `streamsvd.sparse_svd`.
    max_nonzeros, max_nonzeros_per_component, pivot, refine, effort, center, normalize, dtype, tol
        See `streamsvd.sparse_svd`.
    feature_weights, random_state, memory_limit, n_threads
        See `streamsvd.sparse_svd`.
    sample_axis : {0, 1}
        Axis of the samples in Zarr, Dask and HDF5 arrays and in paths. Those of arrays, matrices
        and tables in memory are always rows.
    sample_dim, layer, feature_mask, missing, missing_value, missing_chunks, decode
        See `streamsvd.sparse_svd`.
    storage_options, workspace, resume, progress
        See `streamsvd.sparse_svd`.
    whiten : bool
        Whether `transform` divides the scores of each component by their standard deviation, see
        `SVDResult.transform`: each has variance 1, and they stay as correlated as they are.
    sparse_components : bool
        Whether `components_` is a SciPy matrix instead of an array.
    scores_dtype : {None, "float32", "float64"}
        Of what `transform` gives: float64 by default, also of float32 data, where scikit-learn's
        PCA gives float32.

    Attributes
    ----------
    components_ : (n_components, n_features) array, or csr_array
        Orthonormal to rounding; exact zeros.
    explained_variance_, explained_variance_ratio_ : (n_components,) arrays
        Variances of the scores, divisor ``n_samples - 1`` as in scikit-learn's PCA (mean squares
        when the features were not centred), and their share of the total variance. They add up.
    singular_values_ : (n_components,) array
    n_components_ : int
    noise_variance_ : float
        Of the probabilistic model, see `SVDResult.get_covariance`.
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
        n_components: int | float | None = 2,
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
        feature_weights: Any = None,
        dtype: Any = None,
        sample_axis: int = 0,
        sample_dim: str | Sequence[str] | None = None,
        layer: str | None = None,
        feature_mask: Any = None,
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
        whiten: bool = False,
        sparse_components: bool = False,
        scores_dtype: str | None = None,
        progress: Progress = False,
    ) -> None:
        self._keep(locals())
