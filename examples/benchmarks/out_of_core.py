"""Fit a store that is larger than the memory allowed, and compare with reading and copying it.

    python examples/benchmarks/out_of_core.py --size 16GiB --memory-limit 1GiB --folder /tmp

Makes a float32 store of the given size, then, each from a cold cache: reads it once, copies it
once, and fits it. Prints seconds of the ingest, of row moves and of column moves, how many columns
were asked of the disk, and the bytes that went to and from it. Run it under
``prlimit --data=BYTES`` to cap anonymous memory, or in a memory control group to cap the page cache
too.
"""

import argparse
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from dask.utils import format_bytes, parse_bytes

from streamsvd import SVDResult, sparse_svd
from streamsvd.matrix.partition import Partition
from streamsvd.matrix.prefetch import PagePrefetch


def make_store(path: Path, n: int, n_samples: int, chunk: int) -> None:
    """Decaying latent factors plus noise, float32, chunk by chunk."""
    rng = np.random.default_rng(0)
    loadings = rng.standard_normal((n, 20)) * (rng.random((n, 20)) < 0.05)
    loadings = (loadings * 0.8 ** np.arange(20)).astype(np.float32)
    z = zarr.create_array(
        path, shape=(n, n_samples), chunks=(n, chunk), dtype="float32", compressors=None
    )
    for start in range(0, n_samples, chunk):
        width = min(chunk, n_samples - start)
        block = loadings @ rng.standard_normal((20, width), dtype=np.float32)
        block += 0.1 * rng.standard_normal((n, width), dtype=np.float32)
        z[:, start : start + width] = block


def cool(folder: Path) -> None:
    """Write the files of a folder to the disk and drop them from the page cache."""
    for file in folder.rglob("*"):
        if file.is_file():
            fd = os.open(file, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def read(folder: Path) -> None:
    """Read all files of a folder, one after the other."""
    buffer = bytearray(8 * 2**20)
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            with open(file, "rb", buffering=0) as f:
                while f.readinto(buffer):
                    pass


def seconds(work: Callable[[], Any]) -> float:
    """How long a call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def disk_bytes() -> tuple[int, int]:
    """Bytes that this process has read from and written to disks."""
    lines = Path("/proc/self/io").read_text().splitlines()
    values = dict(line.split(": ") for line in lines)
    return int(values["read_bytes"]), int(values["write_bytes"])


@contextmanager
def timed(of: type, name: str, spent: dict[str, list[float]]) -> Iterator[None]:
    """Collect the seconds of each call of a method."""
    method = getattr(of, name)

    def timing(self: Any, *args: Any) -> Any:
        start = time.perf_counter()
        out = method(self, *args)
        spent.setdefault(name, []).append(time.perf_counter() - start)
        return out

    setattr(of, name, timing)
    try:
        yield
    finally:
        setattr(of, name, method)


def warm_up(args: argparse.Namespace) -> None:
    """Compile the kernels, on a small store."""
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        path = Path(folder) / "small.zarr"
        make_store(path, args.features, 2 * args.features, args.features)
        workspace = Path(folder) / "workspace"
        sparse_svd(path, args.components, n_transforms=20, workspace=workspace, progress=False)


def main() -> None:
    """Run the benchmark and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--size", default="4GiB")
    parser.add_argument("--features", type=int, default=1024)
    parser.add_argument("--components", type=int, default=15)
    parser.add_argument("--transforms", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--center", choices=["features", "samples"])
    parser.add_argument("--memory-limit", default="1GiB")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--keep", action="store_true", help="keep the store for the next run")
    args = parser.parse_args()

    n, m = args.features, args.transforms
    chunk = max(1, 32 * 2**20 // (4 * n))
    n_samples = parse_bytes(args.size) // (4 * n) // chunk * chunk
    source = args.folder / f"streamsvd-source-{n}x{n_samples}.zarr"
    size = 4 * n * n_samples
    print(f"{n} x {n_samples} float32, {format_bytes(size)}, p = {args.components}, m = {m}")
    if not source.exists():
        making = seconds(lambda: make_store(source, n, n_samples, chunk))
        print(f"  make the store            {making:8.1f} s")
    warm_up(args)

    cool(source)
    reading = seconds(lambda: read(source))
    cool(source)
    copy = args.folder / "streamsvd-copy"
    copying = seconds(lambda: shutil.copytree(source, copy))
    shutil.rmtree(copy)
    cool(source)

    ends: dict[str, tuple[float, int, int]] = {}

    def clock(stage: str, done: int, total: int) -> None:
        ends[stage] = (time.perf_counter(), *disk_bytes())

    spent: dict[str, list[float]] = {}
    results: list[SVDResult] = []
    os.environ["TMPDIR"] = str(args.folder)
    tempfile.tempdir = None
    start = time.perf_counter()
    names = ("_ask_for", "_rotate_rows", "_rotate_column")
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(timed(Partition, name, spent))
        stack.enter_context(timed(PagePrefetch, "column", spent))
        results.append(
            sparse_svd(
                str(source),
                args.components,
                n_transforms=m,
                batch_size=args.batch_size,
                center=args.center,
                memory_limit=args.memory_limit,
                progress=clock,
            )
        )
    whole = time.perf_counter() - start
    ingesting = ends["ingest"][0] - start
    moving, moved_in, moved_out = (
        after - before for before, after in zip(ends["ingest"], ends["transforms"], strict=True)
    )
    asking, rows, columns = (spent.get(name, [0.0]) for name in names)
    pairs = results[0].pairs
    far_rows = int(((pairs[:, 1] >= args.components) & (pairs[:, 1] < n)).sum())
    pages = np.unique(pairs[pairs[:, 1] >= args.components, 1] // 1024)

    print(f"  read the store once       {reading:8.1f} s  {size / reading / 1e9:6.2f} GB/s")
    print(f"  copy the store once       {copying:8.1f} s")
    print(f"  fit                       {whole:8.1f} s")
    print(f"    ingest                  {ingesting:8.1f} s  {ingesting / copying:6.2f} of a copy")
    print(f"    {m} moves              {moving:8.1f} s  {moving / reading:6.2f} of a read")
    print(
        f"      asking for pages      {sum(asking):8.1f} s  of {len(spent.get('column', []))} of "
        f"{len(columns)} columns"
    )
    print(
        f"      {len(rows)} row moves         {sum(rows):8.1f} s  "
        f"{1e3 * sum(rows) / max(len(rows), 1):6.1f} ms each ({far_rows} of them on the disk)"
    )
    print(
        f"      {len(columns)} column moves      {sum(columns):8.1f} s  "
        f"{1e3 * sum(columns) / len(columns):6.1f} ms each"
    )
    print(f"      read from disk        {format_bytes(moved_in)}, {moved_in / size:.2f} stores")
    print(
        f"        rows {format_bytes(far_rows * 4 * n_samples)}, pages of all columns "
        f"{format_bytes(4096 * n * len(pages))}"
    )
    print(f"      written               {format_bytes(moved_out)}, {moved_out / size:.2f} stores")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"  peak resident, mapped pages included: {format_bytes(peak)}")
    print(f"  {results[0]}")
    if not args.keep:
        shutil.rmtree(source)


if __name__ == "__main__":
    main()
