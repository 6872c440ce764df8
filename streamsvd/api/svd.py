"""`sparse_svd`, and `plan_svd` that tells what it will take."""

import os
from collections.abc import Sequence
from typing import Any

from streamsvd.data import open_data
from streamsvd.data.masks import taking_part
from streamsvd.fitting import fit, plan_fit, resolve, weighed
from streamsvd.options import Ask, Options
from streamsvd.plan import Plan
from streamsvd.progress import Progress
from streamsvd.result import SVDResult


def sparse_svd(
    X: Any,
    n_components: int | float | None,
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
    sample_axis: int | None = None,
    sample_dim: str | Sequence[str] | None = None,
    layer: str | None = None,
    feature_mask: Any = None,
    center: str | None = None,
    normalize: str | None = None,
    feature_weights: Any = None,
    sample_weights: Any = None,
    dtype: Any = None,
    missing: str = "error",
    missing_value: float | None = None,
    missing_chunks: str = "error",
    decode: bool = True,
    storage_options: dict[str, Any] | None = None,
    workspace: str | os.PathLike[str] | None = None,
    resume: bool = False,
    overwrite_x: bool = False,
    memory_limit: int | str | None = None,
    n_threads: int | None = None,
    tol: float = 0.0,
    random_state: int | None = None,
    client: Any = None,
    progress: Progress = None,
) -> SVDResult:
    r"""Sparse low-rank approximation by iterative coordinate descent.

    Finds orthonormal `U` (n x n) and `V` (N x N), each a product of `n_transforms` Givens rotations
    or reflections, that greedily maximise ``trace(W^T U^T X V)``, where `W` picks the first `p`
    diagonal entries. The first `p` columns of `U` are the components: orthonormal to rounding
    whatever the number of transforms, and exactly zero wherever no transform reached.

    Parameters
    ----------
    X : path, zarr.Array, (n, N) array, table, xarray.DataArray or AnnData
        Data of n features by N samples: a path or URL of a Zarr array (also one inside a group or
        a zip file, ``"group.zarr/path/inside"``), an ``.h5ad``, HDF5, NetCDF 4 (``"x.nc/name"``)
        or ``.npy`` file, an open Zarr array, a NumPy, Dask or HDF5 array or what can be made one,
        a CSR or CSC matrix of SciPy, a table of pandas, polars or pyarrow, an xarray.DataArray, an
        AnnData in memory, backed or in Zarr. A list of DataArrays, or a Dataset, are several
        variables of the same samples, whose features stand side by side. Never written.
    n_components : int, float or None
        `p`, from 1 to ``min(n, N)``, which None stands for, of the features that take part and
        have a value. Between 0 and 1, a share of the variance: the fewest
        components of PCA, which are dense, that explain more than that, counted as in scikit-learn;
        sparse ones within a budget explain less. From the eigenvalues of ``X X^T``, once it is
        summed up: with ``reduction="gram"`` (``4 n^3 / 3`` operations) or ``"samples"``; only then
        is it known, and checked, what so many take. `SVDResult.n_components` tells the number.
    n_transforms : int, optional
        Transforms to make; ``round(10 p log2(n))`` by default, as in the author's script. More
        transforms fit better and fill the components more; see `SVDResult.at`. With
        ``reduction="gram"`` and a budget of nonzeros, the budget ends the run by default. With
        ``algorithm="block"``: block steps, ``round(10 log2(n))`` by default.
    algorithm : {"coordinate", "block"}
        ``"coordinate"``: the paper's Algorithm 1, a pair (i, j) a transform. ``"block"``: its
        Remark 4, each step the SVD of a block of ``2 p`` rows and columns: ``0..p-1``, the `p`
        columns of largest score, and the lowest unused indices when those are fewer. Far fewer
        steps for the same trace, by BLAS, but less sparse: a step joins up to ``2 p`` supports.
    batch_size : int
        Transforms that are picked at a time, at most `n_components`: of each row's best pair, best
        first, those that share no index. 1 is Algorithm 1 to the letter. More hide the latency of a
        cluster, or of a disk; a batch is applied in order, as if its pairs had come one by one, and
        has the same bits wherever it runs. Other pairs are taken than with 1, since those of a
        batch do not wait for each other's effect.
    selection : {"nuclear", "gain", "kogbetliantz", "random"}, optional
        Score of a pair (i, j), ``i < p``, ``i < j``. ``"nuclear"`` (the default): the paper's, what
        the trace of the 2x2 block gains. ``"gain"`` (the default on the Gram matrix): what the
        objective gains, which does not see ``j >= p``. ``"kogbetliantz"``: ``|X[i, j]| + |X[j,
        i]|``. ``"random"``: pairs drawn with `random_state`; the two latter are the paper's
        baselines. The score of a column, in block steps, is the best of its pairs.
    reduction : {None, "gram", "samples", "factor"}
        None rewrites `X`. ``"gram"`` reads it once and runs the same loop on ``X X^T``, which must
        fit in memory twice (``16 n^2`` bytes; three or four times while very many samples are
        read): one pass, no working store, better components for as many transforms; no right
        vectors. For any number of features there are two more forms of ``X X^T``, for refined
        components (``refine=True``, and a budget); transforms are made among the 2000 features
        that the leading components explain most, 5000 of them by default. ``"samples"``: the data
        themselves, in memory, for few samples; exact. ``"factor"``: ``B B^T + diag(d)`` of a
        `rank`, from two passes over the data; one more makes the variances exact, those of the
        path being those of the factor. Memory: ``16 n N + 384 n p`` bytes, or about ``40 n r`` and
        buffers; `plan_svd` tells.
    rank : int, optional
        `r`, columns of the factor; ``10 p`` by default, and at least 50. More is nearer to
        ``X X^T``, of which the leading part is all that matters.
    fill_penalty : float
        `alpha`: scores are divided by ``(1 + new)**alpha``, `new` being the nonzeros that a pair
        would add to the components. Not for block steps.
    max_fill, max_nonzeros : float, int, optional
        Budget of nonzeros of all components together, as a share of ``p n`` or a count. Pairs that
        would pass it are no candidates; block steps end before the first that would.
    max_nonzeros_per_component : int, optional
        The most nonzeros of each component; not for block steps.
    pivot : bool
        Start from the `p` features of largest energy instead of the first `p`; a permutation, which
        costs no fill.
    refine : bool
        Refine the components at the end, see `SVDResult.refine`; needs the Gram matrix (one more
        pass without ``reduction="gram"``).
    effort : {"normal", "high"}
        Of `refine`, see there.
    sample_axis : {0, 1}, optional
        0 for samples as rows. By default 1, but 0 for tables and AnnData.
    sample_dim : str or sequence of str, optional
        Dimension of the samples in an xarray.DataArray, or several; the others are features. Also
        of a Zarr array, of any number of dimensions, that has names of them, as xarray writes it;
        one of three or more without names takes ``sample_axis=0``.
    layer : str, optional
        Layer of an AnnData to take instead of `X`.
    feature_mask : array of bool, DataArray, Series, list of str, or str, optional
        Features that take part: one boolean for each; an xarray.DataArray over their dimensions, or
        some of them, aligned by name and coordinates; names; or the name of a column of booleans
        in the `var` of an AnnData, such as ``"highly_variable"``. Everything is as of ``X[mask]``:
        the budget is a share of ``p`` times these, the total variance is theirs, samples are
        centred and scaled over them, and nobody asks what is in the others. Components keep all `n`
        features, zero outside of the mask, where means and scales are NaN; see
        `SVDResult.left_out`. Memory and work are those of ``X[mask]``; chunks are read whole.
    center, normalize : {None, "features", "samples"}
        Centre, then scale. Features: to mean 0, to variance 1 (divisor N). Samples: each by its
        own mean over the features and its own Euclidean norm (the paper does both).
        ``normalize="variables"``, of several variables: each as a whole, by one number, to a total
        variance of 1 over its features.
    feature_weights : array, DataArray, Series or "coslat", optional
        What the variance of each feature counts, above 0; after centring and scaling, the values
        are multiplied by the roots. An array (n,), or of the shape that the features have; a
        DataArray over some of their dimensions; ``"coslat"``: the cosine of the latitude, where the
        data have one, the areas of its grid cells. Components, scores and variances are those
        of the weighted data; `SVDResult.patterns` are maps in the units of the data. See
        `streamsvd.data.weights`.
    sample_weights : (N,) array, DataArray or Series, optional
        How many times each sample counts, 0 or more, also fractions: the result is that of samples
        that are repeated. Means, scales and variances are weighted, their number is the sum W of
        the weights (divisors W, and W - 1 of `SVDResult.explained_variance`). With a `reduction`
        alone. Scores do not depend on them. See `streamsvd.passes.weighted`.
    dtype : {None, "float32", "float64"}
        Precision of the working matrix. By default float32 for float32 and for 8- and 16-bit
        types, else float64; packed numbers are of the type that they are decoded to. The
        transforms and components are float64 in any case.
    missing : {"error", "mean"}
        What becomes of missing entries: NaN, masked, or `missing_value`. ``"error"``: refused, with
        the place of the first. ``"mean"``: each is the mean of its feature over the samples that
        have a value, in the data as they are, so that it adds nothing once features are centred;
        variances that features are scaled by are over what is present. Features without any value
        are left out, and named in the log: their loadings are zero. One pass more, over moments,
        where anything is missing (always, with a `workspace`, a `client`, or without
        ``center="features"``). `SVDResult.n_missing` and `left_out` tell; `transform` and all else
        that reads samples fills them by the same means. See `streamsvd.data.missing`.
    missing_value : float, optional
        A code that stands for a missing entry beside NaN, such as -1; of packed numbers a value
        that they are decoded to.
    missing_chunks : {"error", "fill"}
        Whether chunks that are not in the store, or were never written to an HDF5 dataset, read as
        its fill value.
    decode : bool
        Whether the numbers of a Zarr array or an HDF5 dataset are decoded as its attributes say
        (CF: `scale_factor`, `add_offset`, `_FillValue`, `missing_value`, `valid_range`,
        `valid_min`, `valid_max`, `_Unsigned`), with the bits of xarray, one strip at a time. False
        takes them as they are stored.
    storage_options : dict, optional
        Of the file system of a URL such as ``s3://bucket/x.zarr``, credentials for example; never
        written anywhere.
    workspace : path, optional
        Folder for the working store of a Zarr source (``n N`` numbers of the working precision) and
        the log of transforms, from which a stopped or killed run can go on; kept. It must be new,
        empty, or that of an earlier run with ``resume=True``. Without it nothing is kept: the
        working matrix is in memory where that fits `memory_limit`, else in a temporary folder (see
        `tempfile.gettempdir`) that is removed at the end. While a fit runs, its files must be left
        alone: the working store is mapped, and the operating system ends a process whose mapped
        file is truncated (SIGBUS), which cannot be caught; it then goes on as after a crash.
    resume : bool
        Go on with the run in `workspace`, if there is one: the source and the options must be the
        same, except `n_transforms` (more transforms extend a finished run), `memory_limit`,
        `n_threads` and `progress`. The result has the same bits as that of an uninterrupted run;
        an extended run with a `batch_size` above 1 begins a new batch where the first one ended.
        After a clean stop (the end, Ctrl-C, SIGTERM) the working store is read once, compared with
        the checksums of that stop, and taken up as it is; after a crash, or where it is damaged,
        the source is ingested again and the log replayed in one pass. Fewer transforms than were
        made give the result of so many, with a pass over the source for its explained variance,
        which is then the same to rounding; the workspace keeps its log.
    overwrite_x : bool
        Work in `X` itself instead of a copy, which destroys its content: a writeable C-contiguous
        NumPy array, or a local Zarr array without compression whose chunks hold all features; of
        the working precision and with samples as columns. Such a Zarr array is marked before the
        first write, and refused as a source from then on.
    memory_limit : int or str, optional
        Bytes, or a size such as ``"2GiB"``, that the fit may take beyond what the process has
        already; half of what is free by default, container and process limits respected. What the
        fit will need is known before it starts, and it is refused when that is more.
    n_threads : int, optional
        Threads: of the transforms, 1 by default, for block steps and for working stores larger
        than the page cache (pairs of one that fits are rotated faster by one thread); or that
        multiply, all processors by default, on the way to the Gram matrix. The result has the same
        bits for any number.
    tol : float
        Stop when the best score is not above `tol` times the Frobenius norm of the data (on the
        Gram matrix: its square). The default stops only when no pair has a positive score.
    random_state : int, optional
        Seed of ``selection="random"``; drawn afresh, and recorded, when not given (it must be for
        a run that can be resumed).
    client : distributed.Client, optional
        Run on a Dask cluster: columns of `X` on the workers, pairs picked here, with the same bits
        as in one process; on the way to the Gram matrix, tasks. The source must be a store that the
        workers can open (for ``reduction="gram"`` also a Dask array). A worker that is lost is made
        up for by the others; `memory_limit` is that of each worker.
    progress : bool or callable, optional
        True for progress bars, False for none; by default those on a terminal or in a notebook, of
        what takes longer than half a second. A callable is given ``(stage, done, total)``; `total`
        is 0 where nobody knows it.

    Returns
    -------
    SVDResult

    Raises
    ------
    OptionError, SourceError, ResourceError
        All `StreamSVDError`, before any work where that is possible.

    Notes
    -----
    Memory: the working matrix where it fits; else at most ``p (n + N)`` numbers for scores and the
    first p rows, about as much for the components and right vectors, and two strips of samples.
    Time: one read of the source and one write of the working store, then for each transform two
    rows of it (N numbers each), or only two columns when ``j >= n``. The plan is logged (logger
    ``streamsvd``, level INFO).

    Block steps read and write ``2 p`` rows and ``2 p`` columns each, ``8 p^2 N`` operations, and
    log ``64 p^2`` bytes. The null space that their SVD leaves free beyond the rows is that of the
    author's code, see `streamsvd.algorithm.block_steps.block_factors`.

    The result has the same bits for any chunking of the source and any number of threads; that of
    block steps on one machine, since matrix products differ between processors.

    References
    ----------
    C. Rusu, "An iterative coordinate descent algorithm to compute sparse low-rank approximations",
    IEEE Signal Processing Letters, 2021: Algorithm 1, scores of Result 2, block steps
    of Remark 4.

    Examples
    --------
    >>> import numpy as np
    >>> import streamsvd
    >>> X = np.random.default_rng(0).standard_normal((20, 500))
    >>> result = streamsvd.sparse_svd(X, 3, n_transforms=40, center="features")
    >>> result.components.shape
    (3, 20)
    """
    return fit(X, Options.of(locals()), progress, client)


def plan_svd(X: Any, n_components: int | float | None, **options: Any) -> Plan:
    """What `sparse_svd` with these arguments will take, without doing any of it.

    Parameters
    ----------
    X, n_components, **options
        As for `sparse_svd`.

    Returns
    -------
    Plan
        Memory, disk, and bytes moved by a transform, of one component where `n_components` is a
        share; print ``plan_svd(...).describe()``.

    Raises
    ------
    ResourceError
        When the fit would be refused, with the figures and the remedy.
    """
    options.pop("progress", None)
    client = options.pop("client", None)
    checked = Options(**{"n_components": n_components, **options})
    source = taking_part(open_data(X, Ask.of(checked)), checked.feature_mask)
    checked = weighed(source, checked)
    return plan_fit(source, resolve(source, checked), checked, client)
