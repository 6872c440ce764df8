"""Fit on a Dask cluster: a local one, SLURM, or one that runs already.

    python examples/dask_cluster.py                                # processes of this machine
    python examples/dask_cluster.py --slurm --workers 20           # through dask-jobqueue
    python examples/dask_cluster.py --scheduler tcp://10.0.0.1:8786

Writes a store, fits it on the workers both ways (`sparse_pca` by tasks, `sparse_svd` by columns
that stay on the workers), and compares the bits with those of one process. Give a folder that all
workers see with --folder. On a cluster the components are the same to the last bit, also when
workers are lost on the way.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from distributed import Client, LocalCluster

from streamsvd import sparse_pca, sparse_svd


def make_store(path: Path, n: int = 60, n_samples: int = 20_000, chunk: int = 1000) -> None:
    """Five groups of features that move together, chunk by chunk."""
    rng = np.random.default_rng(0)
    store = zarr.create_array(path, shape=(n, n_samples), chunks=(n, chunk), dtype="f4")
    for start in range(0, n_samples, chunk):
        block = rng.standard_normal((n, chunk))
        block += np.repeat(3 * rng.standard_normal((5, chunk)), n // 5, axis=0)
        store[:, start : start + chunk] = block


def connect(args: argparse.Namespace) -> Any:
    """A client of the cluster that was asked for."""
    if args.scheduler:
        return Client(args.scheduler)
    if args.slurm:
        from dask_jobqueue import SLURMCluster

        cluster = SLURMCluster(cores=1, processes=1, memory="8GB", walltime="01:00:00")
        cluster.scale(args.workers)
        return Client(cluster)
    return Client(
        LocalCluster(n_workers=args.workers, threads_per_worker=1, dashboard_address=":0")
    )


def main() -> None:
    """Fit both ways on the cluster, and here."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--scheduler", help="address of a scheduler that runs")
    parser.add_argument("--slurm", action="store_true", help="start workers through SLURM")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", help="that this process and all workers see")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder, connect(args) as client:
        client.wait_for_workers(1)
        path = Path(folder) / "x.zarr"
        make_store(path)
        for fit, options in (
            (sparse_pca, {"max_fill": 0.2}),
            (sparse_svd, {"n_transforms": 200, "batch_size": 5, "center": "features"}),
        ):
            there = fit(path, 5, client=client, **options)
            here = fit(path, 5, **options)
            same = there.components.data.tobytes() == here.components.data.tobytes()
            print(
                f"{fit.__name__}: {there.explained_variance_ratio.sum():.1%} of the variance, "
                f"{there.n_nonzeros} nonzeros, same bits as in one process: {same}"
            )
        if not args.scheduler:
            client.cluster.close()


if __name__ == "__main__":
    main()
