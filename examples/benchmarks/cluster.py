"""Time transforms on a Dask cluster, beside a cost model that predicts them.

    python examples/benchmarks/cluster.py
    python examples/benchmarks/cluster.py --mnist FOLDER --workers 2

For some sizes, numbers of workers (processes of this machine) and batch sizes: milliseconds a
transform, what the model says, and what is counted on the wires in a run of its own: round trips,
which are calls of a worker with its answer, and bytes. The model adds up what is measured apart in
the same run:

    round trip      calls of an actor that do nothing, on one worker or all, with what a batch sends
                    and what comes back, of few features; shared by the transforms of a batch
    network         the bytes of more features, over the rate of one large array
    rows, columns   the transforms in one process, shared by the workers that have a core
    coordinator     the same with next to no samples

Then it is used for a cluster that is not there: 100 workers, 10^9 samples. With ``--mnist`` (a
folder of the paper's data as .npz files, or none for OpenML) the data are MNIST's.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import zarr
from distributed import Client, LocalCluster, wait

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from datasets import center_columns, load
from wire import Counts, counted

from streamsvd import sparse_svd
from streamsvd.cluster import ClusterColumns
from streamsvd.cluster.line import Line, Listener, read, written
from streamsvd.matrix.partition import Partition
from streamsvd.system import n_cpus


def make_store(path: Path, n: int, n_samples: int, chunk: int) -> None:
    """Latent factors plus noise, float32."""
    rng = np.random.default_rng(0)
    loadings = rng.standard_normal((n, 10), dtype=np.float32)
    store = zarr.create_array(path, shape=(n, n_samples), chunks=(n, chunk), dtype="f4")
    for start in range(0, n_samples, chunk):
        width = min(chunk, n_samples - start)
        block = loadings @ rng.standard_normal((10, width), dtype=np.float32)
        store[:, start : start + width] = block + rng.standard_normal((n, width), dtype=np.float32)


def transforms(path: Path, p: int, m: int, batch_size: int, client: Any = None) -> float:
    """Seconds a transform, without the ingest."""
    marks: dict[str, list[float]] = {}

    def clock(stage: str, done: int, total: int) -> None:
        marks.setdefault(stage, []).append(time.perf_counter())

    sparse_svd(path, p, n_transforms=m, batch_size=batch_size, client=client, progress=clock)
    times = marks["transforms"]
    return (times[-1] - times[0]) / (m - batch_size)


class Traffic(NamedTuple):
    """What a run moved, and what that took."""

    batches: list[Any]
    """The pairs (k, 2) of each batch."""
    counts: Counts
    """What was counted while they were made."""

    @property
    def n_transforms(self) -> int:
        """Transforms of all batches."""
        return sum(len(pairs) for pairs in self.batches)


def traffic(client: Any, path: Path, p: int, m: int, batch_size: int) -> Traffic:
    """Count what goes over the wires after the first batch."""
    batches: list[Any] = []
    marks: list[tuple[int, Counts]] = []
    broadcast = ClusterColumns.broadcast

    def noted(self: Any, method: Any, *args: Any) -> Any:
        if method is Partition.apply:
            batches.append(args[0].copy())
        return broadcast(self, method, *args)

    with counted(client) as wire, patch.object(ClusterColumns, "broadcast", noted):

        def mark(stage: str, done: int, total: int) -> None:
            if stage == "transforms" and (not marks or done == total):
                marks.append((len(batches), wire.counts()))

        sparse_svd(path, p, n_transforms=m, batch_size=batch_size, client=client, progress=mark)
    (first, before), (last, after) = marks[0], marks[-1]
    return Traffic(batches[first:last], after.since(before))


class Echo(Listener):
    """An actor that does nothing, or takes an array and gives it back."""

    def nothing(self, pairs: Any, *args: Any) -> Any:
        """For the round trip: as many arrays as a report has."""
        tail = np.zeros(15)
        columns = np.zeros((len(pairs), 100), dtype=np.float32)
        held = [1] * len(pairs)
        return 0, tail, tail, held, columns, held, columns, held, columns

    def echo(self, array: Any) -> Any:
        """For the rate."""
        return array


class Trip(NamedTuple):
    """Seconds of a round trip."""

    one: float
    """To one worker."""
    all: float
    """To all at once."""


def network(client: Any, batch_sizes: list[int]) -> tuple[list[Trip], float]:
    """Round trips, and bytes a second, both ways together."""
    addresses = sorted(client.scheduler_info(n_workers=-1)["workers"])
    actors = [client.submit(Echo, actor=True, workers=[a], pure=False) for a in addresses]
    wait(actors)
    line = Line(client)
    line.reach(addresses[0], actors[0].key)

    def ask(count: int, message: bytes) -> None:
        futures = [
            line.ask(address, actor.key, message)
            for address, actor in zip(addresses[:count], actors, strict=False)
        ]
        for future in futures:
            read(future.result(timeout=20))

    trips = []
    for count in batch_sizes:
        factors, columns = np.zeros((count, 2, 2)), np.zeros((count, 100), dtype=np.float32)
        sent = written("nothing", np.zeros((count, 2), dtype=np.int64), factors, factors, columns)
        one, everyone = (mean(partial(ask, k, sent), 300) for k in (1, len(actors)))
        trips.append(Trip(one, everyone))
    array = np.zeros(2**20, dtype=np.uint8)
    return trips, 2 * array.nbytes / mean(partial(ask, 1, written("echo", array)), 30)


def mean(work: Callable[[], Any], repeat: int) -> float:
    """Mean seconds of a call, as a run has them."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return sum(times) / repeat


CALL_BYTES = 900
"""Of a call and its answer, beside the arrays in them."""


def is_of_all(pairs: Any, n: int) -> bool:
    """Whether a batch is sent to all workers: it turns rows."""
    return bool(np.any(pairs[:, 1] < n))


def bytes_of(batches: list[Any], n: int, p: int, n_workers: int, itemsize: int = 4) -> float:
    """Bytes a transform, straight to the workers.

    Pairs and left factors to all that turn rows; a column to the worker that combines it and back;
    a head row back from one; largest tail entries from all.
    """
    total, column = 0, n * itemsize
    for pairs in batches:
        n_rows, n_columns = np.sum(pairs[:, 1] < n), np.sum(pairs[:, 1] >= p)
        asked = n_workers if n_rows else min(n_columns, n_workers)
        total += asked * (CALL_BYTES + p * (itemsize + 8)) + n_workers * n_rows * 48
        total += n_rows * column + n_columns * (2 * column + 80)
    return total / sum(len(pairs) for pairs in batches)


def trips_of(batches: list[Any], n: int, n_workers: int) -> float:
    """Round trips a batch."""
    trips = [n_workers if is_of_all(b, n) else min(len(b), n_workers) for b in batches]
    return sum(trips) / len(trips)


def measure(path: Path, few: Path, n: int, n_samples: int, args: argparse.Namespace) -> None:
    """Print the lines of one store; `few` has the same features and next to no samples."""
    p, m, sizes = args.components, args.transforms, args.batch_sizes
    here = [transforms(path, p, m, size) for size in sizes]
    coordinator = [transforms(few, p, m, size) for size in sizes]
    for n_workers in args.workers:
        with (
            LocalCluster(
                n_workers=n_workers, threads_per_worker=1, dashboard_address=":0"
            ) as cluster,
            Client(cluster) as client,
        ):
            trips, rate = network(client, sizes)
            transforms(path, p, 3 * max(sizes), max(sizes), client)  # compiles
            measured = [transforms(path, p, m, size, client) for size in sizes]
            moved = [traffic(client, path, p, m, size) for size in sizes]
        for k, size in enumerate(sizes):
            batches, counts = moved[k].batches, moved[k].counts
            work = max(here[k] - coordinator[k], 0.0) / min(n_workers, n_cpus())
            share = np.mean([is_of_all(pairs, n) for pairs in batches])
            trip = share * trips[k].all + (1 - share) * trips[k].one
            size_of, sent = moved[k].n_transforms / len(batches), bytes_of(batches, n, p, n_workers)
            model = trip / size_of + sent / rate + work + coordinator[k]
            print(
                f"  {n:8} {n_workers:8} {size:6} {size_of:7.1f} {1e3 * measured[k]:9.2f} "
                f"{1e3 * model:9.2f} {measured[k] / model:6.2f} {1e3 * trip:6.2f} "
                f"{counts.trips / len(batches):12.2f} {counts.sent / len(batches):14.0f} "
                f"{sent * size_of:12.0f}"
            )
    for k, size in enumerate(sizes):
        batches = moved[k].batches
        far = trips_of(batches, n, 100) * trips[k].all / args.workers[-1]
        far *= len(batches) / moved[k].n_transforms
        far += bytes_of(batches, n, p, 100) / rate + coordinator[k]
        far += (here[k] - coordinator[k]) * (1e9 / 100) / n_samples
        print(
            f"  {n:8}      100 workers of 10^9 samples, on paper, batches of {size}: "
            f"{1e3 * far:.0f} ms and {bytes_of(batches, n, p, 100):.0f} bytes a transform, "
            f"{trips_of(batches, n, 100):.1f} trips a batch"
        )


def main() -> None:
    """Run the benchmark and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--features", type=int, nargs="+", default=[100, 2000])
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--mnist", type=Path, nargs="?", const=Path(), help="MNIST instead")
    parser.add_argument("--components", type=int, default=15)
    parser.add_argument("--transforms", type=int, default=2000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 15])
    args = parser.parse_args()
    print(f"p = {args.components}, {args.transforms} transforms, {n_cpus()} cores")
    print(
        "  features  workers  batch    mean  measured  ms model  ratio   trip  "
        "trips a batch  bytes a batch  of the model"
    )
    with tempfile.TemporaryDirectory() as folder:
        if args.mnist:
            x = center_columns(load("mnist", args.mnist if args.mnist.name else None))
            path, few = Path(folder) / "mnist.zarr", Path(folder) / "few.zarr"
            zarr.create_array(path, data=x, chunks=(len(x), 4096))
            zarr.create_array(few, data=x[:, : len(x)])
            measure(path, few, len(x), x.shape[1], args)
            return
        for n in args.features:
            path, few = Path(folder) / f"{n}.zarr", Path(folder) / f"few{n}.zarr"
            make_store(path, n, args.samples, args.samples // 16)
            make_store(few, n, n, n)
            measure(path, few, n, args.samples, args)


if __name__ == "__main__":
    main()
