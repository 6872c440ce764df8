"""`sparse_pca`: from data to sparse principal components."""

from collections.abc import Sequence
from typing import Any

from streamsvd.data import open_data
from streamsvd.data.masks import taking_part
from streamsvd.fitting import choose_form, fit
from streamsvd.options import Ask, Options
from streamsvd.progress import Progress
from streamsvd.result import SVDResult


def sparse_pca(
    X: Any,
    n_components: int | float | None,
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
    sample_axis: int | None = None,
    sample_dim: str | Sequence[str] | None = None,
    layer: str | None = None,
    feature_mask: Any = None,
    center: str | None = "features",
    normalize: str | None = None,
    feature_weights: Any = None,
    sample_weights: Any = None,
    missing: str = "error",
    missing_value: float | None = None,
    missing_chunks: str = "error",
    decode: bool = True,
    storage_options: dict[str, Any] | None = None,
    memory_limit: int | str | None = None,
    n_threads: int | None = None,
    tol: float = 1e-8,
    client: Any = None,
    progress: Progress = None,
) -> SVDResult:
    """Sparse principal components within a budget of nonzeros, for any number of features.

    `sparse_svd` with ``center="features"``, a reduction, ``selection="gain"``, a fill penalty and a
    pivot, then refined: the components with the most explained variance that we know how to find,
    orthonormal to rounding and exactly sparse. One pass over the data; three with a factor.

    Parameters
    ----------
    X, n_components, sample_axis, sample_dim, layer, normalize
        As in `sparse_svd`.
    feature_mask, feature_weights, sample_weights
        As in `sparse_svd`.
    missing, missing_value, missing_chunks, decode
        As in `sparse_svd`.
    storage_options, memory_limit, n_threads, client, progress
        As in `sparse_svd`.
    max_fill, max_nonzeros : float, int, optional
        Budget of nonzeros of all components together, as a share of ``p n`` or a count. When no
        budget is given: 5 %, or five a component where that is more (below 100 features).
    max_nonzeros_per_component : int, optional
        The most nonzeros of each component.
    reduction : {None, "gram", "samples", "factor"}
        The form of ``X X^T``, see `sparse_svd`. By default the one that suits the data and
        `memory_limit`: ``"gram"`` where n x n fits and is quick (or without `refine`),
        ``"samples"`` where these are few, else ``"factor"``, which tells no share that
        `n_components` may be. Which, and why, is logged (logger
        ``streamsvd``, level INFO) and in ``settings``.
    rank : int, optional
        Of the factor, see `sparse_svd`.
    n_transforms, fill_penalty, pivot, tol
        Of the greedy path, as in `sparse_svd`. The budget ends the path by default, or transforms
        that gain less than `tol` of the total variance, or 5000 of them on ``"samples"`` and
        ``"factor"``.
    refine : bool
        See `SVDResult.refine`.
    effort : {"normal", "high"}
        ``"high"`` searches from the solution of a convex relaxation too: often half a percent or a
        percent more of the variance, never less, for some seconds more up to a thousand features;
        and proves how near the optimum the answer is, see `SVDResult.certificate`.
    center : {"features", "samples", None}
        ``"features"`` makes it PCA.

    Returns
    -------
    SVDResult
        `explained_variance` of each component is exact; the components being orthonormal, they add
        up. ``at(...)`` gives the greedy components of any point of the path,
        `SVDResult.refine_path` refined ones at other budgets, smaller or larger.

    Notes
    -----
    Memory: two n x n matrices of float64, more while very many samples are read; or, in bytes,
    ``16 n N + 384 n p``; or about ``40 n r`` and buffers, r the rank. Time: one read and ``n^2 N``
    operations, or one read, or three and ``8 n N r``; then a search of seconds to a minute, longer
    for more nonzeros.

    Examples
    --------
    >>> import numpy as np
    >>> import streamsvd
    >>> X = np.random.default_rng(0).standard_normal((20, 500))
    >>> result = streamsvd.sparse_pca(X, 3, max_fill=0.2)
    >>> result.n_nonzeros
    12
    """
    arguments = locals()
    source = taking_part(open_data(X, Ask.among(arguments)), feature_mask)
    options = choose_form(source, Options.of_pca(arguments, source.n_features))
    return fit(source, options, progress, client)
