"""`sparse_svd`: from data to sparse orthonormal components."""

import itertools
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from streamsvd import kernels
from streamsvd.coordinator import Coordinator
from streamsvd.errors import OptionError
from streamsvd.executor import Executor, SerialExecutor, ThreadExecutor
from streamsvd.ingest import Moments, ingest
from streamsvd.kernels import Array
from streamsvd.options import Options, Progress, working_dtype, workspace_path
from streamsvd.partition import Partition
from streamsvd.progress import progress_bar
from streamsvd.result import SVDResult
from streamsvd.solver import algorithm_1, random_pairs
from streamsvd.store import Source, open_source
from streamsvd.transforms import TransformLog
from streamsvd.version import __version__
from streamsvd.working import WorkingMatrix

SELECTION_CODES = {
    "nuclear": kernels.NUCLEAR,
    "gain": kernels.GAIN,
    "kogbetliantz": kernels.KOGBETLIANTZ,
    "random": kernels.NUCLEAR,
}


def sparse_svd(
    X: Any,
    n_components: int,
    *,
    n_transforms: int | None = None,
    selection: str = "nuclear",
    sample_axis: int = 1,
    center: str | None = None,
    normalize: str | None = None,
    dtype: Any = None,
    missing_chunks: str = "error",
    workspace: str | os.PathLike[str] | None = None,
    overwrite_x: bool = False,
    memory_limit: int | str | None = None,
    n_threads: int | None = None,
    tol: float = 0.0,
    random_state: int | None = None,
    progress: Progress = None,
) -> SVDResult:
    r"""Sparse low-rank approximation by iterative coordinate descent.

    Finds orthonormal `U` (n x n) and `V` (N x N), each a product of `n_transforms` Givens rotations
    or reflections, that greedily maximise ``trace(W^T U^T X V)``, where `W` picks the first `p`
    diagonal entries. The first `p` columns of `U` are the components: orthonormal to rounding
    whatever the number of transforms, and exactly zero wherever no transform reached.

    Parameters
    ----------
    X : str, os.PathLike, zarr.Array or (n, N) array
        Data of n features by N samples: a path to a Zarr array (also one inside a group,
        ``"group.zarr/path/inside"``), an open Zarr array, or a NumPy array. Never written.
    n_components : int
        `p`, from 1 to ``min(n, N)``.
    n_transforms : int, optional
        Transforms to make; ``round(10 p log2(n))`` by default, as in the author's script. More
        transforms fit better and fill the components more; see `SVDResult.at`.
    selection : {"nuclear", "gain", "kogbetliantz", "random"}
        Score of a pair (i, j), ``i < p``, ``i < j``. ``"nuclear"``: the paper's, what the trace of
        the 2x2 block gains. ``"gain"``: what the objective gains, which does not see ``j >= p``.
        ``"kogbetliantz"``: ``|X[i, j]| + |X[j, i]|``. ``"random"``: pairs drawn with
        `random_state`; the two latter are the paper's baselines.
    sample_axis : {0, 1}
        0 for arrays with samples as rows.
    center, normalize : {None, "features", "samples"}
        Centre, then scale. Features: to mean 0, to variance 1 (divisor N). Samples: each by its
        own mean over the features and its own Euclidean norm (the paper does both).
    dtype : {None, "float32", "float64"}
        Precision of the working matrix. By default float32 for float32 and for 8- and 16-bit
        types, else float64. The transforms and components are float64 in any case.
    missing_chunks : {"error", "fill"}
        Whether chunks that are not in the store read as its fill value.
    workspace : path, optional
        Folder for the working store of a Zarr source, ``n N`` numbers of `dtype`; it must be new or
        empty and is kept. By default a temporary folder (see `tempfile.gettempdir`), removed at
        the end. NumPy arrays are worked on in a copy in memory.
    overwrite_x : bool
        Work in `X` itself instead of a copy, which destroys its content; for NumPy arrays that are
        writeable, C-contiguous, of the working precision and with samples as columns.
    memory_limit : int or str, optional
        Bytes, or a size such as ``"2GiB"``, that the working memory may take.
    n_threads : int, optional
        Threads that rewrite rows, 1 by default. The result has the same bits for any number.
    tol : float
        Stop when the best score is not above `tol` times the Frobenius norm of the data. The
        default stops only when no pair has a positive score.
    random_state : int, optional
        Seed of ``selection="random"``; drawn afresh, and recorded, when not given.
    progress : bool or callable, optional
        True for a progress bar, False for none; by default a bar on a terminal. A callable is
        given ``(stage, done, total)``.

    Returns
    -------
    SVDResult

    Raises
    ------
    OptionError, SourceError, ResourceError
        All `StreamSVDError`, before any work where that is possible.

    Notes
    -----
    Memory: beside the working store, ``p (n + N)`` numbers at most and a strip of samples. Time:
    one read of the source and one write of the working store, then for each transform two rows of
    it (N numbers each), or only two columns when ``j >= n``.

    The result has the same bits for any chunking of the source and any number of threads.

    References
    ----------
    C. Rusu, "An iterative coordinate descent algorithm to compute sparse low-rank approximations",
    IEEE Signal Processing Letters, 2021: Algorithm 1, scores of Result 2.

    Examples
    --------
    >>> import numpy as np
    >>> import streamsvd
    >>> X = np.random.default_rng(0).standard_normal((20, 500))
    >>> result = streamsvd.sparse_svd(X, 3, n_transforms=40, center="features")
    >>> result.components.shape
    (3, 20)
    """
    options = Options(
        n_components=n_components,
        n_transforms=n_transforms,
        selection=selection,
        sample_axis=sample_axis,
        center=center,
        normalize=normalize,
        dtype=dtype,
        missing_chunks=missing_chunks,
        workspace=workspace,
        overwrite_x=overwrite_x,
        memory_limit=memory_limit,
        n_threads=n_threads,
        tol=tol,
        random_state=random_state,
    )
    source = open_source(X, sample_axis, missing_chunks=missing_chunks)
    options.check_shape(source.n_features, source.n_samples)
    with _working_matrix(X, source, options) as working:
        return _fit(source, working, options, progress)


def _fit(source: Source, working: WorkingMatrix, options: Options, progress: Progress) -> SVDResult:
    n, n_samples, p = source.n_features, source.n_samples, options.n_components
    with progress_bar(progress, "ingest", n_samples) as advance:
        preprocessing, energies = ingest(
            source, working, options.center, options.normalize, advance
        )
    total = float(energies.sum())
    partitions = _partitions(working, p, options.n_threads or 1)
    coordinator = _coordinator(working, partitions, p, SELECTION_CODES[options.selection])
    initial = coordinator.diag[:p].astype(np.float64)
    m = options.transforms_for(n)
    log = TransformLog(p, n, n_samples, m)
    executor: Executor
    executor = SerialExecutor(partitions) if len(partitions) == 1 else ThreadExecutor(partitions)
    seed, picks = options.random_state, None
    if options.selection == "random":
        seed = secrets.randbits(32) if seed is None else seed
        picks = random_pairs(coordinator, executor, seed)
    try:
        with progress_bar(progress, "transforms", m) as advance:
            coordinator.start_up(executor.broadcast("start_up"))
            stopped = algorithm_1(
                coordinator, executor, log, m, options.tol * total**0.5, picks, advance
            )
    finally:
        executor.close()
    working.write(0, np.ascontiguousarray(coordinator.left.T))
    return SVDResult(
        log=log,
        n_transforms=len(log),
        initial_diagonal=initial,
        total_energy=total,
        final_energies=_row_energies(working, p),
        preprocessing=preprocessing,
        sample_axis=options.sample_axis,
        dtype=working.dtype,
        stopped=stopped,
        settings=_settings(options, m, seed),
    )


def _partitions(working: WorkingMatrix, p: int, n_threads: int) -> list[Partition]:
    """The blocks, in as many runs as threads have something to do."""
    count = min(n_threads, len(working.blocks))
    bounds = np.linspace(0, len(working.blocks), count + 1).astype(int).tolist()
    return [
        Partition(
            working.blocks[a:b],
            a * working.width,
            min(b * working.width, working.n_samples),
            p,
        )
        for a, b in itertools.pairwise(bounds)
    ]


def _coordinator(
    working: WorkingMatrix, partitions: list[Partition], p: int, selection: int
) -> Coordinator:
    n, n_samples = working.n_features, working.n_samples
    shared = min(n, n_samples)
    head = np.zeros((p, n), dtype=working.dtype)
    head[:, :shared] = working.rows(p, shared)
    diag = np.zeros(n, dtype=working.dtype)
    diag[:shared] = working.diagonal()
    left = np.array(working.columns(p).T, order="C")
    starts = [partition.start for partition in partitions]
    return Coordinator(left, head, diag, n_samples, selection, starts)


def _row_energies(working: WorkingMatrix, p: int) -> Array:
    """Sums of squares of the first `p` rows, (p,)."""
    moments = Moments(np.zeros(p))
    for start, stop, block in working:
        moments.add(start, block[:p], stop - start)
    return moments.totals()[1]


@contextmanager
def _working_matrix(x: Any, source: Source, options: Options) -> Iterator[WorkingMatrix]:
    """The working matrix in memory for arrays, else on disk in the workspace."""
    dtype = working_dtype(source.dtype, options.dtype)
    if isinstance(x, np.ndarray):
        if options.workspace is not None:
            raise OptionError("workspace= is for Zarr sources; arrays are worked on in memory")
        if options.overwrite_x:
            yield WorkingMatrix([_own_memory(x, dtype, options.sample_axis)], source.n_samples)
        else:
            yield WorkingMatrix.in_memory(source.n_features, source.n_samples, dtype)
        return
    if options.overwrite_x:
        raise OptionError("overwrite_x=True is for NumPy arrays only")
    if options.workspace is not None:
        folder = workspace_path(options.workspace)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise OptionError(f"workspace {folder} is not an empty folder; give a new one")
        folder.mkdir(parents=True, exist_ok=True)
        yield _on_disk(folder, source, dtype)
        return
    folder = Path(tempfile.mkdtemp(prefix="streamsvd-"))
    try:
        yield _on_disk(folder, source, dtype)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _on_disk(folder: Path, source: Source, dtype: np.dtype[Any]) -> WorkingMatrix:
    return WorkingMatrix.on_disk(folder / "x.zarr", source.n_features, source.n_samples, dtype)


def _own_memory(x: Array, dtype: np.dtype[Any], sample_axis: int) -> Array:
    fits = x.dtype == dtype and x.flags.c_contiguous and x.flags.writeable and sample_axis == 1
    if not fits:
        raise OptionError(
            f"overwrite_x=True needs a writeable C-contiguous {dtype} array with samples as "
            f"columns; got {x.dtype}, C-contiguous: {x.flags.c_contiguous}, writeable: "
            f"{x.flags.writeable}, sample_axis={sample_axis}; leave it out to work on a copy"
        )
    return x


def _settings(options: Options, n_transforms: int, seed: int | None) -> dict[str, Any]:
    settings = asdict(options) | {"n_transforms": n_transforms, "random_state": seed}
    for name in ("workspace", "overwrite_x", "memory_limit", "n_threads", "dtype"):
        del settings[name]
    return settings | {"streamsvd": __version__}
