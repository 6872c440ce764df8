"""On a Dask cluster of processes: the same bits, also when workers are killed."""

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from distributed import Client, Event, LocalCluster
from helpers import differences, normal, write_zarr
from scipy import sparse
from test_sparse_pca import changed

from streamsvd import (
    OptionError,
    ResourceError,
    SourceError,
    SVDResult,
    plan_svd,
    sparse_pca,
    sparse_svd,
)
from streamsvd.cli import commands
from streamsvd.cluster import actors, engine, line, tasks, waiting
from streamsvd.cluster.factor import cluster_exact, cluster_factor
from streamsvd.data.kinds import open_data
from streamsvd.fitting import planning
from streamsvd.options import Ask
from streamsvd.passes.exact import exact_of
from streamsvd.passes.factor import factor_of
from streamsvd.passes.sum_tree import SumTree
from streamsvd.refinement import Factor
from streamsvd.sizes import FAN_IN, product_leaf

N, SAMPLES, P, M = 30, 3000, 4, 120

pytestmark = [
    pytest.mark.filterwarnings("ignore:Port .* is already in use"),
    pytest.mark.filterwarnings("ignore:Sending large graph"),
    # of the port that distributed looks for, and does not close
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def three() -> Iterator[Client]:
    """Three workers, which their nannies start again when they are killed."""
    with (
        LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=":0") as made,
        Client(made) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    X = normal(N, SAMPLES) * np.linspace(1, 3, N)[:, None] + np.linspace(-5, 9, N)[:, None]
    return write_zarr(tmp_path_factory.mktemp("cluster") / "x.zarr", X, (N, 170))


def folders_of(client: Client) -> list[str]:
    """What the workers have in their directories."""
    folders = client.run(lambda dask_worker: dask_worker.local_directory)
    return [p.name for folder in folders.values() for p in Path(folder).glob("streamsvd-*")]


def keys_of(client: Client) -> list[str]:
    """What the scheduler knows of our work; it takes a moment to forget."""
    began = time.monotonic()
    while True:
        keys = client.run_on_scheduler(lambda dask_scheduler: list(map(str, dask_scheduler.tasks)))
        ours = [key for key in keys if "streamsvd" in key]
        if not ours or time.monotonic() - began > 10:
            return ours
        time.sleep(0.05)


def test_files_of_hdf5_are_opened_by_the_workers(three: Client, tmp_path: Path) -> None:
    """Dense and sparse, by their paths."""
    h5py = pytest.importorskip("h5py")
    X = np.where(normal(N, 200) > 0.5, normal(N, 200), 0)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("dense", data=X, chunks=(N, 17))
        rows = file.create_group("rows")
        rows.attrs["encoding-type"], rows.attrs["shape"] = "csr_matrix", [200, N]
        for part in ("data", "indices", "indptr"):
            rows.create_dataset(part, data=getattr(sparse.csr_array(X.T), part))
    made = sparse_svd(tmp_path / "x.h5" / "dense", P, n_transforms=9, client=three)
    assert differences(made, sparse_svd(X, P, n_transforms=9)) == []
    for source, axis in ((tmp_path / "x.h5" / "dense", 1), (tmp_path / "x.h5" / "rows", 0)):
        reduced = sparse_pca(source, P, max_fill=0.3, sample_axis=axis, client=three)
        assert changed(reduced, sparse_pca(X, P, max_fill=0.3)) == []


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "features": {"center": "features", "normalize": "features"},
    "samples": {"center": "samples", "normalize": "samples"},
    "both": {"center": "features", "normalize": "samples", "selection": "gain"},
    "pivot": {"center": "features", "pivot": True, "fill_penalty": 0.3, "max_nonzeros": 60},
    "batches": {"batch_size": 4, "center": "samples"},
    "pivot, batches": {"batch_size": 3, "pivot": True, "fill_penalty": 0.3, "max_nonzeros": 60},
    "block": {"algorithm": "block", "n_transforms": 12, "center": "features"},
    "block, pivot": {"algorithm": "block", "n_transforms": 9, "pivot": True, "dtype": "float32"},
    "block, random": {
        "algorithm": "block",
        "n_transforms": 8,
        "selection": "random",
        "random_state": 3,
    },
    "random": {"selection": "random", "random_state": 3, "dtype": "float32"},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_same_bits(three: Client, store: Path, name: str) -> None:
    options = {"n_transforms": M} | OPTIONS[name]
    made = sparse_svd(store, P, client=three, **options)
    assert differences(made, sparse_svd(store, P, **options)) == []
    assert folders_of(three) == []


@pytest.mark.parametrize("batch_size", [1, P])
def test_workers_are_sent_what_they_need(
    three: Client, tmp_path: Path, batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call of all where rows are turned, else of those that hold a column; nothing twice."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "examples" / "benchmarks")
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "examples")
    from cluster import traffic

    n, samples = 300, 1200
    path = write_zarr(tmp_path / "x.zarr", normal(n, samples), (n, 100))
    bounds = engine.share_bounds(open_data(path, Ask(1)), 3)
    batches, counts = traffic(three, path, P, 40, batch_size)
    trips = n_bytes = 0
    for pairs in batches:
        holders = np.searchsorted(bounds, pairs[:, 1], side="right")
        trips += 3 if (pairs[:, 1] < n).any() else len(set(holders))
        for _, j in pairs:
            n_bytes += 2 * 8 * n * (j >= P)  # column i, there and back
            n_bytes += 8 * (n - P) * ((j < n) + (j < P))  # head rows
    assert counts.trips == trips
    beside = counts.asked + counts.answered - n_bytes
    assert 0 < beside < 1500 * trips  # pairs, factors, tails, and what wraps them


@pytest.mark.parametrize("way", ["refused", "no answer", "another worker", "not to be used"])
def test_workers_behind_a_gateway(
    three: Client, store: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler passes calls on, where the client is kept from the workers."""
    tried, scheduler = [], three.scheduler.address
    monkeypatch.setattr(line, "REACH_SECONDS", 0.2)
    with Client(scheduler, direct_to_workers=False if way == "not to be used" else None) as client:
        connect, addresses = client.rpc.connect, sorted(client.scheduler_info()["workers"])

        async def kept(address: str, *args: Any, **options: Any) -> Any:
            if address == scheduler:
                return await connect(address, *args, **options)
            tried.append(address)
            match way:
                case "another worker":
                    other = addresses[addresses.index(address) - 1]
                    return await connect(other, *args, **options)
                case "no answer":
                    await asyncio.sleep(60)
            raise OSError("no way")

        monkeypatch.setattr(client.rpc, "connect", kept)
        made = sparse_svd(store, P, n_transforms=30, batch_size=2, client=client)
    assert len(tried) == (way != "not to be used")
    assert differences(made, sparse_svd(store, P, n_transforms=30, batch_size=2)) == []
    assert folders_of(three) == []


@pytest.mark.parametrize("reduction", [None, "gram", "factor"])
@pytest.mark.parametrize("center", [None, "features"])
def test_weights_of_features(
    three: Client, store: Path, reduction: str | None, center: str | None
) -> None:
    options: dict[str, Any] = {"reduction": reduction, "center": center, "n_transforms": 30}
    options["feature_weights"] = np.linspace(0.2, 3, N)
    if reduction == "factor":
        options |= {"refine": True, "max_fill": 0.2, "rank": 12}
    made = sparse_svd(store, P, client=three, **options)
    assert differences(made, sparse_svd(store, P, **options)) == []
    measured, known = made.accuracy(store, client=three), made.accuracy(store)
    assert measured.captured_variance == pytest.approx(known.captured_variance, rel=1e-12)


@pytest.mark.parametrize("reduction", ["gram", "factor"])
@pytest.mark.parametrize("kind", ["zarr", "dask", "missing"])
def test_weights_of_samples(
    three: Client, store: Path, tmp_path: Path, reduction: str, kind: str
) -> None:
    """Each task has its part of the weights; the first sample counts nothing."""
    weights = np.random.default_rng(0).uniform(0, 3, SAMPLES)
    weights[0] = 0
    options: dict[str, Any] = {"refine": True, "max_fill": 0.2, "center": "features"}
    options |= {"reduction": reduction, "sample_weights": weights, "n_transforms": 30}
    source: Any = store
    if kind == "dask":
        source = da.from_zarr(store)
    elif kind == "missing":
        X = np.array(zarr.open_array(store)[:])
        X[np.random.default_rng(1).random(X.shape) < 0.1] = np.nan
        source, options["missing"] = write_zarr(tmp_path / "x.zarr", X, (N, 170)), "mean"
    made = sparse_svd(source, P, client=three, **options)
    assert differences(made, sparse_svd(source, P, **options)) == []
    if kind != "dask":
        measured = made.accuracy(source, sample_weights=weights, client=three)
        assert measured.captured_variance == pytest.approx(
            made.explained_variance_ratio.sum(), rel=1e-9
        )


def test_same_bits_of_an_array_with_a_relative_path(
    three: Client, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers have other working directories."""
    three.run(os.chdir, "/")
    monkeypatch.chdir(store.parent)
    array = zarr.open_array(store.name, mode="r")
    made = sparse_svd(array, P, n_transforms=20, client=three)
    assert differences(made, sparse_svd(store, P, n_transforms=20)) == []
    made = sparse_pca(store.name, P, max_fill=0.2, client=three)
    assert differences(made, sparse_pca(store, P, max_fill=0.2)) == []


def test_a_cube_has_the_same_bits(three: Client, tmp_path: Path) -> None:
    """Of three dimensions, in place and by tasks, with scores."""
    values = normal(200, 8).reshape(200, 4, 2)
    dims = ("time", "lat", "lon")
    path = write_zarr(tmp_path / "x.zarr", values, (16, 3, 2), dimension_names=dims)
    asked: dict[str, Any] = {"sample_dim": "time", "center": "features"}
    made = sparse_svd(path, 2, n_transforms=9, client=three, **asked)
    assert differences(made, sparse_svd(path, 2, n_transforms=9, **asked)) == []
    asked |= {"reduction": "gram", "n_transforms": 9}
    made = sparse_svd(path, 2, client=three, **asked)
    assert differences(made, sparse_svd(path, 2, **asked)) == []
    scores = made.transform(path, tmp_path / "scores", client=three)
    np.testing.assert_array_equal(scores[:], made.transform(path))


def test_packed_numbers_and_masks(three: Client, tmp_path: Path) -> None:
    """Workers decode what they read, or say what is missing as one process does."""
    X = np.round(normal(N, SAMPLES) * 1000).astype("i2")
    attributes = {"scale_factor": 0.01, "add_offset": 20.0, "_FillValue": -32768}
    path = write_zarr(tmp_path / "x.zarr", X, (N, 170), attributes=attributes)
    values = X.astype("f8") * 0.01 + 20.0
    for options in ({"center": "features"}, {"reduction": "gram"}):
        options |= {"n_transforms": 40}
        made = sparse_svd(path, P, client=three, **options)
        assert differences(made, sparse_svd(values, P, **options)) == []
        raw = sparse_svd(path, P, client=three, decode=False, dtype="float64", **options)
        assert differences(raw, sparse_svd(X, P, dtype="float64", **options)) == []
    scores = made.transform(path, tmp_path / "scores.zarr", client=three)
    np.testing.assert_array_equal(scores[...], made.transform(values))
    zarr.open_array(path, mode="r+")[7, 2000] = -32768
    bad = np.ma.MaskedArray(values)
    bad[7, 2000] = np.ma.masked
    bad = da.from_array(bad, chunks=(N, 170))
    for x, words in (
        (path, r"\(-32768, its _FillValue\) at feature 7"),
        (bad, "masked value at f"),
    ):
        with pytest.raises(SourceError, match=rf"{words}.* sample 2000"):
            sparse_pca(x, P, reduction="gram", max_fill=0.2, client=three)


@pytest.mark.parametrize("name", ["features", "batches", "block"])
@pytest.mark.parametrize("hold_rows", [True, False])
def test_same_bits_from_disk(
    three: Client, store: Path, monkeypatch: pytest.MonkeyPatch, name: str, hold_rows: bool
) -> None:
    """Shares that do not fit into the memory of a worker are in its directory."""
    planned, seen = planning.make_plan, []

    def on_disk(problem: Any, **where: Any) -> Any:
        plan = planned(problem, **where | {"place": "disk"})
        held = 0 if name == "block" else 1 + hold_rows
        made = replace(plan, hold_rows=hold_rows, chunk_width=700, held_columns=held)
        seen.append(made)
        return made

    monkeypatch.setattr(planning, "make_plan", on_disk)
    options = {"n_transforms": M} | OPTIONS[name]
    made = sparse_svd(store, P, client=three, **options)
    assert not seen[0].in_memory
    assert differences(made, sparse_svd(store, P, **options)) == []
    assert folders_of(three) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_fewer_workers_and_samples_than_features(workers: int, tmp_path: Path) -> None:
    few = write_zarr(tmp_path / "few.zarr", normal(N, 20), (N, 7))
    many = write_zarr(tmp_path / "many.zarr", normal(6, 400), (6, 33))
    with (
        LocalCluster(n_workers=workers, threads_per_worker=2, dashboard_address=":0") as made,
        Client(made) as client,
    ):
        for path, p in ((few, 3), (many, 6)):
            here = sparse_svd(path, p, n_transforms=40)
            assert differences(sparse_svd(path, p, n_transforms=40, client=client), here) == []


# ------------------------------------------------------------------------------- reduction


@pytest.mark.parametrize("kind", ["zarr", "dask", "csr"])
@pytest.mark.parametrize("center", ["features", "samples"])
def test_gram_has_the_same_bits(
    three: Client, store: Path, tmp_path: Path, kind: str, center: str
) -> None:
    X: Any = store
    axis = 1
    if kind == "dask":
        X = da.from_zarr(str(store))
    elif kind == "csr":
        dense = np.maximum(normal(SAMPLES, N) - 1, 0)
        matrix, axis = sparse.csr_array(dense), 0
        group = zarr.create_group(tmp_path / "x.zarr")
        group.attrs.update({"encoding-type": "csr_matrix", "shape": [SAMPLES, N]})
        for part in ("data", "indices", "indptr"):
            group.create_array(part, data=getattr(matrix, part))
        X = tmp_path / "x.zarr"
    options: dict[str, Any] = {"max_fill": 0.3, "center": center, "sample_axis": axis}
    made = sparse_pca(X, P, client=three, **options)
    here = sparse_pca(X, P, **options)
    assert made.gram is not None
    assert here.gram is not None
    assert made.gram.tobytes() == here.gram.tobytes()
    assert differences(made, here) == []


@pytest.mark.parametrize("n_leaves", [1, 2, 15, 16, 17, 33, 256, 300, 1000])
@pytest.mark.parametrize("threads", [1, 3, 40])
def test_tasks_are_nodes_of_the_tree(n_leaves: int, threads: int) -> None:
    """They cover all leaves in order, each is a whole node, and they give the tree of one sum."""
    made = list(tasks._tasks(n_leaves, threads))
    assert [lo for _, lo, _ in made] == [0, *(hi for _, _, hi in made[:-1])]
    assert made[-1][2] == n_leaves
    for level, lo, hi in made:
        assert hi - lo == FAN_IN**level
        assert lo % FAN_IN**level == 0
    assert len(made) >= min(n_leaves, threads)
    leaves = normal(n_leaves, 3)
    one, many = SumTree(), SumTree(lambda total, node: total + node)
    for leaf in leaves:
        one.add(leaf.copy())
    for level, lo, hi in made:
        part = SumTree()
        for leaf in leaves[lo:hi]:
            part.add(leaf.copy())
        many.add(part.total(), level)
    assert many.total().tobytes() == one.total().tobytes()


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        ("zarr", ("features", "features")),
        ("dask", ("samples", None)),
        ("csr", ("features", "features")),
        ("csr", (None, None)),
    ],
)
def test_factors_have_the_same_bits(
    three: Client, tmp_path: Path, kind: str, asked: tuple[str | None, str | None]
) -> None:
    """Of samples enough for several leaves; components and features in the third pass too."""
    n, n_samples = 500, 3 * product_leaf(500) + 100
    dense = np.maximum(normal(n_samples, n) - 1.5, 0).astype("f4")
    if kind == "csr":
        matrix = sparse.csr_array(dense)
        group = zarr.create_group(tmp_path / "x.zarr")
        group.attrs.update({"encoding-type": "csr_matrix", "shape": [n_samples, n]})
        for part in ("data", "indices", "indptr"):
            group.create_array(part, data=getattr(matrix, part))
        X: Any = tmp_path / "x.zarr"
    else:
        X = write_zarr(tmp_path / "x.zarr", dense, (1000, n))
        X = da.from_zarr(str(X)) if kind == "dask" else X
    source, told = open_data(X, Ask(0)), []
    made = cluster_factor(three, source, *asked, 5, told.append)
    here = factor_of(source, *asked, 5)
    assert sum(told) == 2 * n_samples
    for name in ("factor", "rest", "diagonal"):
        assert getattr(made, name).tobytes() == getattr(here, name).tobytes()
    assert made.preprocessing.mean.tobytes() == here.preprocessing.mean.tobytes()
    assert made.preprocessing.scale.tobytes() == here.preprocessing.scale.tobytes()
    few = (made.preprocessing, sparse.csr_array(normal(3, n)), np.arange(4))
    there, exact = cluster_exact(three, source, *few), exact_of(source, *few)
    assert there.scores.tobytes() == exact.scores.tobytes()
    assert there.gram.tobytes() == exact.gram.tobytes()
    assert keys_of(three) == []


# -------------------------------------------------------------------------------- failures


class Killer(threading.Thread):
    """Kills two workers of a cluster, each after a while."""

    def __init__(self, client: Client, seed: int) -> None:
        super().__init__(daemon=True)
        random = np.random.default_rng(seed)
        self._pids = random.permutation(list(client.run(os.getpid).values()))[:2].tolist()
        self._delays = random.uniform(0.0, 1.5, 2).tolist()
        self.start()

    def run(self) -> None:
        for pid, delay in zip(self._pids, self._delays, strict=True):
            time.sleep(delay)
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def fresh() -> Iterator[Client]:
    """Three workers for one test."""
    with (
        LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=":0") as made,
        Client(made) as client,
    ):
        yield client


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_workers_are_killed(fresh: Client, store: Path, seed: int) -> None:
    """Two of three, at any time in the ingest or the moves."""
    options: dict[str, Any] = {"center": "features", "normalize": "features"}
    options |= {"pivot": bool(seed % 2), "n_transforms": 3 * M}
    if seed < 5:
        options["batch_size"] = 1 + seed % P
    else:
        options |= {"algorithm": "block", "n_transforms": M}
    killer = Killer(fresh, seed)
    made = sparse_svd(store, P, client=fresh, **options)
    killer.join()
    assert differences(made, sparse_svd(store, P, **options)) == []


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SVDResult]:
    """Samples enough for five leaves, and what one process makes of them."""
    path = tmp_path_factory.mktemp("gram") / "x.zarr"
    array = zarr.create_array(path, shape=(400, 340_000), chunks=(400, 10_000), dtype="f4")
    block = normal(400, 10_000).astype("f4")
    for k in range(34):
        array[:, k * 10_000 : (k + 1) * 10_000] = np.roll(block, k, axis=0)
    return path, sparse_pca(path, 3, max_fill=0.02, refine=False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_workers_are_killed_on_the_way_to_the_gram_matrix(
    fresh: Client, large: tuple[Path, SVDResult], seed: int
) -> None:
    killer = Killer(fresh, seed)
    path, here = large
    made = sparse_pca(path, 3, max_fill=0.02, refine=False, client=fresh)
    killer.join()
    assert made.gram is not None
    assert here.gram is not None
    assert made.gram.tobytes() == here.gram.tobytes()


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], SVDResult]:
    """Samples enough for six leaves of products, and what one process makes of a factor of them."""
    n, n_samples = 1000, 5 * product_leaf(1000) + 100
    block = normal(n, 2000) * np.linspace(1, 2, n)[:, None]
    data = np.concatenate([np.roll(block, k, axis=0) for k in range(12)], axis=1)[:, :n_samples]
    path = write_zarr(tmp_path_factory.mktemp("factor") / "x.zarr", data.astype("f4"), (n, 300))
    options: dict[str, Any] = {"max_fill": 0.02, "reduction": "factor", "rank": 30}
    options["normalize"] = "features"
    return path, options, sparse_pca(path, P, **options)


def same_factor(made: SVDResult, here: SVDResult) -> None:
    for result in (made, here):
        assert isinstance(result.covariance, Factor)
    for name in ("factor", "rest"):
        one, other = getattr(made.covariance, name), getattr(here.covariance, name)
        assert one.tobytes() == other.tobytes()
    assert differences(made, here) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_workers_are_killed_on_the_way_to_a_factor(
    fresh: Client, many: tuple[Path, dict[str, Any], SVDResult], seed: int
) -> None:
    path, options, here = many
    killer = Killer(fresh, seed)
    made = sparse_pca(path, P, client=fresh, **options)
    killer.join()
    same_factor(made, here)


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "share"), [("factor", 0.4), ("factor", 0.5), ("variance", 0.0)])
def test_all_workers_are_killed_in_each_pass(
    fresh: Client,
    many: tuple[Path, dict[str, Any], SVDResult],
    stage: str,
    share: float,
) -> None:
    """Of the two to a factor, and of the one for the variances: with sums, and what they need."""
    path, options, here = many
    pids, told = list(fresh.run(os.getpid).values()), []

    def kill(name: str, done: int, total: int) -> None:
        if name == stage and done > share * total and not told:
            told.append(done)
            for pid in pids:
                os.kill(pid, signal.SIGKILL)

    made = sparse_pca(path, P, client=fresh, progress=kill, **options)
    assert told
    same_factor(made, here)
    assert keys_of(fresh) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "way"), [({}, None), ({"batch_size": P}, False), ({"algorithm": "block"}, None)]
)
def test_a_killed_worker_between_moves(
    fresh: Client, store: Path, run: dict[str, Any], way: bool | None
) -> None:
    """Killed at a known step: its columns are made again from the source and the log.

    Whether workers are asked directly or by the scheduler.
    """
    fresh.direct_to_workers = way
    pids = list(fresh.run(os.getpid).values())

    def kill(stage: str, done: int, total: int) -> None:
        if stage == "transforms" and done >= 20 and pids:
            os.kill(pids.pop(), signal.SIGKILL)
            pids.clear()

    options: dict[str, Any] = {"n_transforms": M} | run
    made = sparse_svd(store, P, client=fresh, progress=kill, **options)
    assert not pids
    assert differences(made, sparse_svd(store, P, **options)) == []


@pytest.mark.parametrize("algorithm", ["coordinate", "block"])
def test_goes_on_from_a_workspace(
    three: Client, store: Path, tmp_path: Path, algorithm: str
) -> None:
    """Begun on the cluster, gone on with there and in one process."""
    options: dict[str, Any] = {"center": "features", "algorithm": algorithm}
    whole = sparse_svd(store, P, n_transforms=M, **options)
    options["workspace"] = tmp_path / "run"
    sparse_svd(store, P, n_transforms=40, client=three, **options)
    made = sparse_svd(store, P, n_transforms=80, client=three, resume=True, **options)
    assert differences(made, whole.at(80), path_only=True) == []
    made = sparse_svd(store, P, n_transforms=M, resume=True, **options)
    assert differences(made, whole) == []


@pytest.mark.parametrize("batch_size", [1, P])
def test_interrupted(three: Client, store: Path, tmp_path: Path, batch_size: int) -> None:

    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == "transforms" and 20 <= done < M:
            signal.raise_signal(signal.SIGINT)

    run: dict[str, Any] = {"n_transforms": M, "batch_size": batch_size}
    options = run | {"workspace": tmp_path / "run", "client": three}
    with pytest.raises(KeyboardInterrupt, match="resume=True"):
        sparse_svd(store, P, progress=interrupt, **options)
    assert folders_of(three) == []
    made = sparse_svd(store, P, resume=True, **options)
    assert differences(made, sparse_svd(store, P, **run)) == []


def test_progress_waits_for_tasks_whose_results_went_on(three: Client) -> None:
    gate, told = Event("streamsvd-test-gate", client=three), []
    task = three.submit(lambda: Event("streamsvd-test-gate").wait(20), pure=False)
    total = three.submit(int, task, pure=False)
    tasks = [(task, 7)]
    del task
    watching = threading.Thread(target=waiting.watch, args=(three, tasks, told.append))
    watching.start()
    time.sleep(0.5)
    assert told == []
    gate.set()
    watching.join(20)
    assert told == [7]
    assert tasks == []
    assert total.result(timeout=20) == 1


@pytest.mark.parametrize("sample_axis", [0, 1])
def test_scores(three: Client, store: Path, tmp_path: Path, sample_axis: int) -> None:
    result = sparse_pca(store, P, max_fill=0.3)
    path = store
    if sample_axis == 0:
        path = write_zarr(tmp_path / "rows.zarr", np.asarray(zarr.open_array(store)[:].T), (70, N))
    made = result.transform(path, tmp_path / "there.zarr", sample_axis=sample_axis, client=three)
    here = result.transform(path, sample_axis=sample_axis)
    np.testing.assert_array_equal(made[:], here)
    with pytest.raises(OptionError, match=r"writes to a store: give out="):
        result.transform(path, sample_axis=sample_axis, client=three)
    with pytest.raises(OptionError, match="cannot be read by the workers"):
        result.transform(normal(N, 50), tmp_path / "no.zarr", client=three)
    assert not (tmp_path / "no.zarr").exists()


@pytest.mark.parametrize("gram_limit", ["2GiB", 1])
def test_accuracy(three: Client, store: Path, gram_limit: Any) -> None:
    """Right vectors go to the workers in pieces; sums differ in their order alone."""
    result = sparse_svd(store, P, n_transforms=M, center="features")
    there = asdict(result.accuracy(store, gram_limit=gram_limit, client=three))
    here = asdict(result.accuracy(store, gram_limit=gram_limit))
    assert (here["accuracy"] is None) == (gram_limit == 1)
    for name, value in here.items():
        if value is None:
            assert there[name] is None
        else:
            np.testing.assert_allclose(there[name], value, rtol=1e-12, atol=1e-15)
    with pytest.raises(OptionError, match="cannot be read by the workers"):
        result.accuracy(normal(N, SAMPLES), client=three)


# ------------------------------------------------------------------------ errors and plans


def test_errors_of_the_data_come_from_the_workers(three: Client, tmp_path: Path) -> None:
    X = normal(N, SAMPLES)
    X[3, 2000] = np.nan
    path = write_zarr(tmp_path / "x.zarr", X, (N, 170))
    for fit in (sparse_svd, sparse_pca):
        with pytest.raises(SourceError, match=r"NaN at feature 3, sample 2000"):
            fit(path, P, client=three)
    assert folders_of(three) == []


def test_what_workers_cannot_do(three: Client, store: Path) -> None:
    with pytest.raises(OptionError, match="cannot be read by the workers; write it to a Zarr"):
        sparse_svd(normal(N, 100), P, client=three)
    with pytest.raises(OptionError, match="cannot be read by the workers"):
        sparse_pca(normal(N, 100), P, max_fill=0.5, client=three)
    with pytest.raises(OptionError, match=r"client must be a distributed\.Client; got str"):
        sparse_svd(store, P, client="tcp://10.0.0.1:8786")
    with pytest.raises(ResourceError, match=r"each of the 3 workers may take 100\.00 MiB; .*raise"):
        sparse_svd(store, P, client=three, memory_limit="100MiB")


def test_from_the_shell(three: Client, store: Path, tmp_path: Path) -> None:
    out, address = tmp_path / "r.zarr", three.scheduler.address
    words = f"fit {store} --components {P} --transforms 50 --out {out} --quiet --scheduler"
    assert CliRunner().invoke(commands.main, [*words.split(), address]).exit_code == 0
    made = SVDResult.load(out)
    assert differences(made, sparse_svd(store, P, n_transforms=50), path_only=True) == []
    scores = f"transform {out} {store} --out {tmp_path / 's.zarr'} --quiet --scheduler"
    assert CliRunner().invoke(commands.main, [*scores.split(), address]).exit_code == 0
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "s.zarr")[:], made.transform(store))
    shown = CliRunner().invoke(
        commands.main, f"accuracy {out} {store} --scheduler {address}".split()
    )
    assert "captured variance" in shown.output
    words = words.replace("r.zarr", "other.zarr")
    failed = CliRunner().invoke(commands.main, [*words.split(), "tcp://127.0.0.1:1"])
    assert failed.exit_code != 0
    assert "no Dask scheduler answers at tcp://127.0.0.1:1" in failed.output


def test_plan_of_a_share(three: Client, store: Path) -> None:
    plan = plan_svd(store, P, client=three)
    assert plan.in_memory
    shares = np.diff(engine.share_bounds(open_data(store, Ask(1)), 3))
    assert plan.chunk_width == shares.max() < SAMPLES // 2


def test_no_workers(store: Path) -> None:
    with (
        LocalCluster(n_workers=0, dashboard_address=":0") as made,
        Client(made) as client,
        pytest.raises(ResourceError, match="the cluster has no workers"),
    ):
        sparse_svd(store, P, client=client)


def test_all_workers_lost(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in the end, never a hang."""
    monkeypatch.setattr(waiting, "LOST_SECONDS", 1.0)
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as made,
        Client(made) as client,
    ):

        def close(stage: str, done: int, total: int) -> None:
            if stage == "transforms" and done >= 20 and waiting.workers_of(client):
                made.sync(made.workers[0].close)

        with pytest.raises(ResourceError, match="all workers of the cluster are gone"):
            sparse_svd(store, P, n_transforms=30 * M, client=client, progress=close)


@pytest.mark.slow
def test_columns_that_kill_their_workers(
    fresh: Client, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error in the end: not one worker after the other for ever."""
    monkeypatch.setattr(actors, "MOST_LOSSES", 1)
    kept = actors.Columns

    class Deadly(kept):  # type: ignore[misc,valid-type]
        def read(self, shift: Any) -> Any:
            os.kill(os.getpid(), 9)

    monkeypatch.setattr(actors, "Columns", Deadly)
    with pytest.raises(ResourceError, match=r"the worker with samples \d+ to \d+ was lost 1 times"):
        sparse_svd(store, P, client=fresh)


def test_errors_of_a_worker_are_not_its_death(
    three: Client, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "NOTICE_SECONDS", 0.3)
    kept = actors.Columns

    class Full(kept):  # type: ignore[misc,valid-type]
        def read(self, shift: Any) -> Any:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(actors, "Columns", Full)
    with pytest.raises(OSError, match="No space left"):
        sparse_svd(store, P, client=three)


@pytest.mark.slow
@pytest.mark.parametrize("run", [{}, {"algorithm": "block", "n_transforms": 5}])
def test_a_share_larger_than_the_memory_of_its_worker(tmp_path: Path, run: dict[str, Any]) -> None:
    """Mapped pages count as memory of the worker: it is neither killed nor paused."""
    n, n_samples, chunk = 200, 1_200_000, 20_000  # 960 MB in float32
    array = zarr.create_array(
        tmp_path / "x.zarr", shape=(n, n_samples), chunks=(n, chunk), dtype="f4", compressors=None
    )
    block = normal(n, chunk).astype("f4") * np.linspace(3, 1, n, dtype="f4")[:, None]
    for k, start in enumerate(range(0, n_samples, chunk)):
        array[:, start : start + chunk] = np.roll(block, k, axis=1)
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit="700MiB", dashboard_address=":0"
        ) as made,
        Client(made) as client,
    ):
        pids = client.run(os.getpid)
        path = tmp_path / "x.zarr"
        options: dict[str, Any] = {"n_transforms": 60} | run
        plan = plan_svd(path, P, client=client, **options)
        assert not plan.in_memory
        made_there = sparse_svd(path, P, client=client, **options)
        assert client.run(os.getpid) == pids
    here = sparse_svd(path, P, **options)
    assert differences(made_there, here) == []


# ------------------------------------------------------------------------ nothing stays behind


@pytest.fixture
def _no_collector() -> Iterator[None]:
    """What is gone is gone without Python's cyclic collector."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize("name", ["plain", "block", "gram", "scores"])
def test_nothing_stays_on_the_workers(
    three: Client, store: Path, tmp_path: Path, name: str
) -> None:
    for k in range(3):
        if name == "gram":
            sparse_pca(store, P, client=three, max_fill=0.3)
        elif name == "scores":
            result = sparse_svd(store, P, n_transforms=5)
            result.transform(store, tmp_path / f"{k}.zarr", client=three)
            result.accuracy(store, client=three)
        else:
            sparse_svd(store, P, client=three, **({"n_transforms": 5} | OPTIONS[name]))
        assert keys_of(three) == []


@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize("reduction", [None, "gram"])
def test_nothing_stays_after_an_error(three: Client, tmp_path: Path, reduction: str | None) -> None:
    X = normal(N, SAMPLES)
    X[3, SAMPLES - 5] = np.nan
    path = write_zarr(tmp_path / "x.zarr", X, (N, 170))
    with pytest.raises(SourceError, match=f"NaN at feature 3, sample {SAMPLES - 5}") as caught:
        sparse_svd(path, P, client=three, reduction=reduction)
    assert keys_of(three) == []
    assert caught.value is not None  # its traceback is alive until here
    assert folders_of(three) == []


def test_a_client_that_is_closed_meanwhile(store: Path) -> None:
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as made,
        Client(made) as client,
    ):

        def close(stage: str, done: int, total: int) -> None:
            if stage == "transforms":
                client.close()

        with pytest.raises(ResourceError, match="the client is clos"):
            sparse_svd(store, P, n_transforms=100_000, client=client, progress=close)
