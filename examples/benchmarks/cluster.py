"""Time transforms on a Dask cluster, beside a cost model that predicts them.

    python examples/benchmarks/cluster.py

For some sizes and numbers of workers (processes of this machine): milliseconds and bytes a
transform, and what the model says. The model adds up what is measured apart in the same run:

    round trip      calls of an actor on each worker that do nothing, with what a transform sends
                    and what comes back, of few features
    network         the bytes of more features, over the rate of one large array
    rows, columns   the transforms in one process, shared by the workers that have a core
    coordinator     the same with next to no samples

Then it is used for a cluster that is not there: 100 workers, 10^9 samples.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from distributed import Client, LocalCluster

from streamsvd import sparse_svd
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


def transforms(path: Path, p: int, m: int, client: Any = None) -> float:
    """Seconds a transform, without the ingest."""
    marks: dict[str, list[float]] = {}

    def clock(stage: str, done: int, total: int) -> None:
        marks.setdefault(stage, []).append(time.perf_counter())

    sparse_svd(path, p, n_transforms=m, client=client, progress=clock)
    times = marks["transforms"]
    return (times[-1] - times[0]) / (m - 1)


class Echo:
    """An actor that does nothing, or takes an array and gives it back."""

    def nothing(self, *args: Any) -> Any:
        """For the round trip: as many arrays as a report has."""
        tail, column = np.zeros(15), np.zeros(100, dtype=np.float32)
        return 0, tail, tail, column[None], column, column

    def echo(self, array: Any) -> Any:
        """For the rate."""
        return array


def network(client: Any, n_workers: int) -> tuple[float, float]:
    """Seconds of a round trip to all workers, and bytes a second, both ways together."""
    addresses = sorted(client.scheduler_info(n_workers=-1)["workers"])
    actors = [client.submit(Echo, actor=True, workers=[a], pure=False).result() for a in addresses]

    g, column = np.eye(2), np.zeros(100, dtype=np.float32)

    def all_at_once() -> None:
        sent = (0, "apply", 1, 2, g, g, column)
        for future in [actor.nothing(*sent) for actor in actors]:
            future.result(timeout=2)

    array = np.zeros(2**20, dtype=np.uint8)
    return median(all_at_once, 300), 2 * array.nbytes / median(
        lambda: actors[0].echo(array).result(), 30
    )


def median(work: Callable[[], Any], repeat: int) -> float:
    """Median seconds of a call."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def bytes_of(n: int, p: int, n_workers: int, itemsize: int = 4) -> int:
    """Bytes a transform: column out, tail bests back, head row and column back from one worker."""
    out = n_workers * (n * itemsize + 2 * 4 * 8)
    return out + n_workers * p * (itemsize + 8) + 2 * n * itemsize


def main() -> None:
    """Run the benchmark and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--features", type=int, nargs="+", default=[100, 2000])
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--components", type=int, default=15)
    parser.add_argument("--transforms", type=int, default=500)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    args = parser.parse_args()
    p, m = args.components, args.transforms
    print(f"{args.samples} samples, p = {p}, {m} transforms, {n_cpus()} cores")
    print("  features  workers   ms measured   ms model   ratio   bytes a transform")
    with tempfile.TemporaryDirectory() as folder:
        for n in args.features:
            path, few = Path(folder) / f"{n}.zarr", Path(folder) / f"few{n}.zarr"
            make_store(path, n, args.samples, args.samples // 16)
            make_store(few, n, n, n)
            here, coordinator = transforms(path, p, m), transforms(few, p, m)
            for n_workers in args.workers:
                with (
                    LocalCluster(
                        n_workers=n_workers, threads_per_worker=1, dashboard_address=":0"
                    ) as cluster,
                    Client(cluster) as client,
                ):
                    trip, rate = network(client, n_workers)
                    transforms(path, p, 20, client)  # compiles
                    measured = transforms(path, p, m, client)
                work = max(here - coordinator, 0.0) / min(n_workers, n_cpus())
                sent = bytes_of(n, p, n_workers)
                model = trip + sent / rate + work + coordinator
                print(
                    f"  {n:8} {n_workers:8} {1e3 * measured:13.2f} {1e3 * model:10.2f} "
                    f"{measured / model:7.2f} {sent:12}"
                )
            share = 1e9 / 100
            far = 100 * trip / n_workers + bytes_of(n, p, 100) / rate
            far += (here - coordinator) * share / args.samples + coordinator
            print(
                f"  {n:8}      100 workers of 10^9 samples, on paper: {1e3 * far:.0f} ms a "
                f"transform, {bytes_of(n, p, 100)} bytes"
            )


if __name__ == "__main__":
    main()
