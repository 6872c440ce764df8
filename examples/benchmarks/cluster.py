"""Time transforms on a Dask cluster, beside a cost model that predicts them.

    python examples/benchmarks/cluster.py
    python examples/benchmarks/cluster.py --mnist FOLDER --workers 2

For some sizes, numbers of workers (processes of this machine) and batch sizes: milliseconds and
bytes a transform, and what the model says. The model adds up what is measured apart in the same
run:

    round trip      calls of an actor on each worker that do nothing, with what a batch sends and
                    what comes back, of few features; shared by the transforms of a batch
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
from typing import Any
from unittest.mock import patch

import numpy as np
import zarr
from distributed import Client, LocalCluster

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from datasets import center_columns, load

from streamsvd import sparse_svd
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


def mean_batch(path: Path, p: int, m: int, batch_size: int) -> float:
    """Transforms in a batch."""
    with patch.object(Partition, "apply", autospec=True, side_effect=Partition.apply) as calls:
        sparse_svd(path, p, n_transforms=m, batch_size=batch_size, progress=False)
    return m / calls.call_count


class Echo:
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


def network(client: Any, batch_sizes: list[int]) -> tuple[list[float], float]:
    """Seconds of a round trip to all workers, and bytes a second, both ways together."""
    addresses = sorted(client.scheduler_info(n_workers=-1)["workers"])
    actors = [client.submit(Echo, actor=True, workers=[a], pure=False).result() for a in addresses]

    def all_at_once(count: int) -> None:
        factors, columns = np.zeros((count, 2, 2)), np.zeros((count, 100), dtype=np.float32)
        sent = (np.zeros((count, 2), dtype=np.int64), factors, factors, columns)
        for future in [actor.nothing(*sent) for actor in actors]:
            future.result(timeout=2)

    array = np.zeros(2**20, dtype=np.uint8)
    trips = [median(partial(all_at_once, count), 300) for count in batch_sizes]
    return trips, 2 * array.nbytes / median(lambda: actors[0].echo(array).result(), 30)


def median(work: Callable[[], Any], repeat: int) -> float:
    """Median seconds of a call."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def bytes_of(n: int, p: int, n_workers: int, batch: float, itemsize: int = 4) -> int:
    """Bytes a transform: column out, tail bests back, head row and column back from one worker."""
    out = n_workers * (n * itemsize + 2 * 4 * 8)
    return round(out + n_workers * p * (itemsize + 8) / batch + 2 * n * itemsize)


def measure(path: Path, few: Path, n: int, n_samples: int, args: argparse.Namespace) -> None:
    """Print the lines of one store; `few` has the same features and next to no samples."""
    p, m, sizes = args.components, args.transforms, args.batch_sizes
    here = [transforms(path, p, m, size) for size in sizes]
    coordinator = [transforms(few, p, m, size) for size in sizes]
    batch = [mean_batch(path, p, m, size) for size in sizes]
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
        for k, size in enumerate(sizes):
            work = max(here[k] - coordinator[k], 0.0) / min(n_workers, n_cpus())
            sent = bytes_of(n, p, n_workers, batch[k])
            model = trips[k] / batch[k] + sent / rate + work + coordinator[k]
            print(
                f"  {n:8} {n_workers:8} {size:6} {batch[k]:7.1f} {1e3 * measured[k]:13.2f} "
                f"{1e3 * model:10.2f} {measured[k] / model:7.2f} {1e3 * trips[k]:7.2f} "
                f"{sent:12}"
            )
    for k, size in enumerate(sizes):
        far = 100 * trips[k] / args.workers[-1] / batch[k]
        far += bytes_of(n, p, 100, batch[k]) / rate + coordinator[k]
        far += (here[k] - coordinator[k]) * (1e9 / 100) / n_samples
        print(
            f"  {n:8}      100 workers of 10^9 samples, on paper, batches of {size}: "
            f"{1e3 * far:.0f} ms a transform, {bytes_of(n, p, 100, batch[k])} bytes"
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
        "  features  workers  batch    mean   ms measured   ms model   ratio    trip   "
        "bytes a transform"
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
