"""`sparse_pca_cv`: how many components, and how sparse."""

from collections.abc import Sequence
from typing import Any

from streamsvd.choosing import CrossValidation, cross_validate
from streamsvd.data import open_data
from streamsvd.data.masks import taking_part
from streamsvd.options import Ask
from streamsvd.progress import Progress


def sparse_pca_cv(
    X: Any,
    n_components: int | Sequence[int],
    *,
    max_fill: float | Sequence[float],
    folds: int = 5,
    split: str = "random",
    groups: Any = None,
    half_samples: int = 0,
    random_state: int = 0,
    max_nonzeros_per_component: int | None = None,
    sample_axis: int | None = None,
    sample_dim: str | Sequence[str] | None = None,
    layer: str | None = None,
    feature_mask: Any = None,
    center: str | None = "features",
    normalize: str | None = None,
    feature_weights: Any = None,
    missing: str = "error",
    missing_value: float | None = None,
    missing_chunks: str = "error",
    decode: bool = True,
    storage_options: dict[str, Any] | None = None,
    memory_limit: int | str | None = None,
    n_threads: int | None = None,
    progress: Progress = None,
) -> CrossValidation:
    """How many components and how sparse, by cross-validation from one pass over the data.

    For each fold of the samples the whole grid is fitted to the others and scored on the fold, all
    from sums of one Gram matrix a fold. The simplest point of the grid (fewest nonzeros, then
    fewest components) whose predicted variance is within one standard error of the best is chosen,
    and fitted to all samples as by `sparse_pca` on the Gram matrix, or by the search of the folds
    where that explains more. The scores, and why predicted variance tells how many components there
    are while explained variance does not, are described in `streamsvd.choosing.scores`.

    Parameters
    ----------
    X, sample_axis, sample_dim, layer, feature_mask, normalize, feature_weights
        As in `sparse_pca`.
    missing_chunks, decode
        As in `sparse_pca`. A Dask array, too, is read by this process.
    storage_options
        As in `sparse_pca`.
    missing, missing_value
        As in `sparse_pca`: means, and the shares of values that scales are over, are those of all
        samples, also of the fold left out, from a pass before the others.
    n_components, max_fill : int, float or sequence
        The grid: numbers of components, and budgets as a share of ``p n``.
    folds : int
        `k`, at least 2.
    split : {"random", "blocked"}
        Folds drawn at random, or runs of samples one after the other, for series in time.
    groups : (N,) array, optional
        Labels; samples of one group stay in one fold, folds of sizes as equal as that allows.
    half_samples : int
        Stability is measured over as many fits on half of the folds (four folds or more), each
        begun afresh, instead of over the fits without one fold. Halves come in pairs that share no
        samples, and none comes twice.
    random_state : int
        Seed of the folds and the halves.
    max_nonzeros_per_component : int, optional
        The most nonzeros of each component, at every point of the grid.
    center : {"features", "samples", None}
        ``"features"`` makes it PCA; samples left out are centred and scaled by the means and scales
        of the others.
    memory_limit, n_threads, progress
        As in `sparse_svd`; multiplied and searched on all processors by default.

    Returns
    -------
    CrossValidation
        Scores of every fold and point of the grid, and `result`, with its
        `SVDResult.stability`: how often each feature is chosen in each component over the fits
        (Meinshausen and Buehlmann, 2010), components matched by correlation.

    Raises
    ------
    OptionError, SourceError, ResourceError
        All `StreamSVDError`, before any work where that is possible.

    Notes
    -----
    Cost: one read of the data and ``n^2 N`` operations, then the search of the grid for each fold,
    fills warm-started from larger ones and numbers of components from smaller, and one fit of the
    chosen point: less than k + 1 times one fit of the grid by `SVDResult.refine_path`. Half samples
    add a search of one fill each. Memory: ``8 (k + 3) n^2`` bytes; while reading ``8 k n^2``, twice
    or three times where a fold has very many samples (see `sizes.gram_sums`), and 32 MiB a fold.
    The same bits for any chunking and any number of threads.

    Fits without one of k folds share most of their samples, so that stability over them is on the
    high side. The theory of stability selection is of halves: `half_samples` of some dozens, from
    ten folds or more.

    Examples
    --------
    >>> import numpy as np
    >>> import streamsvd
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((20, 500))
    >>> X[:4] += 2 * rng.standard_normal(500)
    >>> X[4:8] += 3 * rng.standard_normal(500)
    >>> cv = streamsvd.sparse_pca_cv(X, [1, 2, 3], max_fill=[0.1, 0.2, 0.4])
    >>> cv.chosen.n_components, cv.chosen.max_fill
    (2, 0.2)
    """
    arguments = locals()
    source = taking_part(open_data(X, Ask.among(arguments)), feature_mask)
    return cross_validate(source, arguments, progress)
