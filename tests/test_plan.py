"""What a fit will take is known before it starts: integers in, integers out, or a refusal."""

import json
import re
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dask.utils import format_bytes
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from streamsvd import OptionError, ResourceError, sizes, system
from streamsvd.options.rules import parse_size
from streamsvd.plan import Plan, make_plan
from streamsvd.problem import Problem
from streamsvd.sizes import chunk_width, strip_width
from streamsvd.system import check_free_disk, free_memory

KIB, MIB, GIB = 2**10, 2**20, 2**30

# ----------------------------------------------------------------------- where, and what is held

SIZES: dict[str, Any] = {
    "n_features": 100,
    "n_samples": 10_000,
    "n_components": 5,
    "n_transforms": 1000,
    "itemsize": 8,
    "source_chunk": 10_000,  # one strip, whatever the limit
    "source_itemsize": 8,
    "memory_limit": GIB,
    "place": "either",
}


def planned(**sizes: Any) -> Plan:
    """`make_plan` of a problem with these sizes."""
    where = {name: sizes.pop(name) for name in ("memory_limit", "place", "width") if name in sizes}
    sizes["dtype"] = np.dtype(f"f{sizes.pop('itemsize')}")
    if sizes.pop("is_block", False):
        sizes["algorithm"] = "block"
    return make_plan(Problem(**sizes), **where)


MATRIX, ROWS = 100 * 10_000 * 8, 5 * 10_000 * 8
BASE = planned(**SIZES | {"place": "given"}).peak_memory
"""All memory but that of the working matrix."""

HELD = 100 * 8 + 32  # a column
PLACES = [
    # place, limit beyond BASE: in memory, rows held, columns held, peak beyond BASE
    ("either", 100 * MATRIX, True, False, 0, MATRIX),
    ("either", MATRIX, True, False, 0, MATRIX),
    ("either", MATRIX - 1, False, True, 313, ROWS + 313 * HELD),  # one in 32
    ("either", ROWS + 5 * HELD, False, True, 2, ROWS + 2 * HELD),  # half of what is left
    ("either", ROWS, False, True, 0, ROWS),
    ("either", ROWS - 1, False, False, 240, 240 * HELD),
    ("either", 0, False, False, 0, 0),
    ("disk", 100 * MATRIX, False, True, 313, ROWS + 313 * HELD),
    ("disk", ROWS, False, True, 0, ROWS),
    ("disk", ROWS - 1, False, False, 240, 240 * HELD),
    ("disk", 0, False, False, 0, 0),
    ("memory", 100 * MATRIX, True, False, 0, MATRIX),
    ("memory", MATRIX, True, False, 0, MATRIX),
    ("given", 100 * MATRIX, False, False, 0, 0),
    ("given", 0, False, False, 0, 0),
]


@pytest.mark.parametrize(("place", "more", "in_memory", "hold_rows", "held", "peak"), PLACES)
def test_place(
    place: str, more: int, in_memory: bool, hold_rows: bool, held: int, peak: int
) -> None:
    made = planned(**SIZES | {"place": place, "memory_limit": BASE + more})
    assert (made.in_memory, made.hold_rows, made.held_columns) == (in_memory, hold_rows, held)
    assert made.peak_memory == BASE + peak
    assert made.memory_limit == BASE + more
    row, column = 0, 0
    if not in_memory:
        row = 10_000 * 8 * (1 if hold_rows else 2)
        column = 4096 * (95 if hold_rows else 100)
    assert (made.row_move, made.column_move) == (row, column)
    on_disk = place != "given" and not in_memory
    assert made.disk == (MATRIX if on_disk else 0)


LARGE_RESULT = {
    "n_samples": 200_000,
    "n_components": 100,
    "n_transforms": 100_000,
}
REFUSALS = [
    # place, changes: words of the remedy
    ("either", {}, "store the source in narrower chunks"),
    ("either", LARGE_RESULT, "make fewer transforms, n_transforms=99999 at most"),
    ("disk", {}, "store the source in narrower chunks"),
    ("disk", LARGE_RESULT, "make fewer transforms, n_transforms=99999 at most"),
    ("given", {}, "store the source in narrower chunks"),
    ("given", LARGE_RESULT, "make fewer transforms, n_transforms=99999 at most"),
    ("memory", {}, "write the data to a Zarr store and fit that"),
]


@pytest.mark.parametrize(("place", "changes", "remedy"), REFUSALS)
def test_refusal_has_both_numbers_and_the_remedy(place: str, changes: dict, remedy: str) -> None:
    sizes = SIZES | changes
    needed = planned(**sizes | {"place": "given"}).peak_memory
    needed += MATRIX if place == "memory" else 0
    assert planned(**sizes | {"place": place, "memory_limit": needed}).peak_memory == needed
    with pytest.raises(ResourceError) as refused:
        planned(**sizes | {"place": place, "memory_limit": needed - 1})
    message = str(refused.value)
    assert f"needs about {format_bytes(needed)}" in message
    assert f"memory_limit is {format_bytes(needed - 1)}; raise it, or {remedy}" in message


REMEDIES: list[tuple[dict[str, Any], int, str, dict[str, Any] | None]] = [
    # changes, limit, words, and what they change
    ({"n_transforms": 10**6}, 250 * MIB, r"make fewer transforms, n_transforms=\d+ at most", {}),
    ({"n_features": 9000, "n_components": 900, "source_chunk": 1}, 400 * MIB,
     "lower n_components", {"n_components": 9}),
    ({"source_chunk": 10**6, "n_samples": 10**6}, GIB, "store the source in narrower chunks",
     {"source_chunk": 10}),
    ({"n_features": 10**7, "n_transforms": 10**6, "n_components": 2, "source_chunk": 1}, GIB,
     "lower n_transforms and lower n_components", None),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "limit", "words", "remedy"), REMEDIES)
def test_the_remedy_works(
    changes: dict[str, Any], limit: int, words: str, remedy: dict[str, Any] | None
) -> None:
    """Alone where it is said alone; of transforms as many as are said, and no more."""
    sizes = SIZES | changes | {"memory_limit": limit}
    with pytest.raises(ResourceError, match=f"raise it, or {words}$") as refused:
        planned(**sizes)
    if remedy is None:
        return
    for most in map(int, re.findall(r"n_transforms=(\d+)", str(refused.value))):
        remedy = {"n_transforms": most}
        with pytest.raises(ResourceError):
            planned(**sizes | {"n_transforms": most + 1})
    assert planned(**sizes | remedy).peak_memory <= limit


def test_the_parts_of_a_refusal_are_named() -> None:
    with pytest.raises(ResourceError) as refused:
        planned(**SIZES | {"memory_limit": 100})
    for part in ("in any case", "for scores", "to read 10000 samples at a time", "for the result"):
        assert part in str(refused.value)
    assert "for the data" not in str(refused.value)
    with pytest.raises(ResourceError, match=f"{format_bytes(MATRIX)} for the data"):
        planned(**SIZES | {"memory_limit": 100, "place": "memory"})


GROWTH = [
    # what grows, to: bytes that every fit takes more, at least
    ("n_transforms", 101_000, 96 * 100_000),  # the log
    ("n_components", 55, 50 * 100 * (2 * 8 + 8)),  # head, left, scores
    ("n_samples", 1_010_000, 5 * (1_000_000 // 1024) * 8),  # peaks of tiles
    ("source_itemsize", 16, 100 * 10_000 * 8),  # strips
]


@pytest.mark.parametrize(("name", "value", "bytes_more"), GROWTH)
def test_what_memory_grows_with(name: str, value: int, bytes_more: int) -> None:
    sizes = SIZES | {"place": "given", "memory_limit": 2**50}
    made = planned(**sizes | {name: value})
    assert made.peak_memory - BASE >= bytes_more


def test_description() -> None:
    text = planned(**SIZES).describe()
    assert "in memory in 1 chunk(s) of 10000 samples" in text
    assert f"{format_bytes(BASE + MATRIX)} of 1.00 GiB" in text
    text = planned(**SIZES | {"place": "disk"}).describe()
    assert f"on disk ({format_bytes(MATRIX)})" in text
    assert "first rows held in memory" in text
    text = planned(**SIZES | {"place": "disk", "memory_limit": BASE}).describe()
    assert "first rows on disk" in text


def test_block_steps() -> None:
    """2p rows of N numbers and p columns, each entry in a page of its own, or all there is."""
    sizes = SIZES | {"is_block": True, "n_transforms": 10}
    assert planned(**sizes).row_move == 0
    held = planned(**sizes | {"place": "disk"})
    assert (held.row_move, held.column_move) == (ROWS + 5 * 95 * 4096, 0)
    assert f"{format_bytes(held.row_move)} a block step" in held.describe()
    free = planned(**sizes | {"place": "disk", "memory_limit": held.peak_memory - ROWS})
    assert (free.hold_rows, free.row_move) == (False, 2 * ROWS + 5 * 100 * 4096)
    many = planned(**sizes | {"place": "disk", "n_components": 50})
    assert many.row_move == 10 * ROWS + MATRIX
    # two factors of 2p x 2p for each step, and their way to the disk
    longer = planned(**sizes | {"n_transforms": 1010})
    assert longer.peak_memory - planned(**sizes).peak_memory >= 1000 * 2 * 2 * 8 * 10 * 10


@given(
    n=st.integers(1, 10**7),
    N=st.integers(1, 10**10),
    share=st.floats(0, 1),
    m=st.integers(0, 10**8),
    itemsize=st.sampled_from([4, 8]),
    chunk=st.integers(1, 10**6),
    limit=st.integers(1, 2**50),
    place=st.sampled_from(["either", "memory", "disk"]),
    is_block=st.booleans(),
)
def test_any_plan_is_consistent(
    n: int,
    N: int,
    share: float,
    m: int,
    itemsize: int,
    chunk: int,
    limit: int,
    place: str,
    is_block: bool,
) -> None:
    sizes: dict[str, Any] = {
        "n_features": n,
        "n_samples": N,
        "n_components": max(1, int(share * min(n, N, 1000))),
        "n_transforms": m,
        "itemsize": itemsize,
        "source_chunk": min(chunk, N),
        "source_itemsize": itemsize,
        "memory_limit": limit,
        "place": place,
        "is_block": is_block,
    }
    try:
        made = planned(**sizes)
    except ResourceError:
        with pytest.raises(ResourceError):  # less memory never makes it better
            planned(**sizes | {"memory_limit": limit // 2})
        return
    assert made.form is None
    assert all(isinstance(value, int) for value in astuple(made)[:-1])
    assert 0 < made.peak_memory <= limit
    assert made.in_memory == (made.disk == 0)
    assert not (made.in_memory and made.hold_rows)
    assert place == "either" or made.in_memory == (place == "memory")
    assert (made.n_chunks - 1) * made.chunk_width < N <= made.n_chunks * made.chunk_width
    if not made.in_memory:
        assert made.disk == n * itemsize * made.chunk_width * made.n_chunks
    assert made.strip_samples == N or made.strip_samples % sizes["source_chunk"] == 0
    # more memory never makes it worse
    more = planned(**sizes | {"memory_limit": 2 * limit})
    assert more.in_memory >= made.in_memory
    assert more.in_memory or more.hold_rows >= made.hold_rows


# --------------------------------------------------------------------------------- chunks, strips

WIDTHS = [
    # n, N, itemsize: width
    (784, 60_000, 8, 5120),  # 32 MiB are 5349 columns
    (784, 60_000, 4, 10_240),
    (784, 4000, 8, 4000),  # all there is
    (784, 5000, 8, 5000),
    (4096, 10**5, 8, 1024),  # 32 MiB are 1024 columns
    (4097, 10**5, 8, 1023),  # less than a page of each row: as they come
    (10**6, 100, 8, 4),
    (10**7, 10, 8, 1),  # a column is more than 32 MiB
    (1, 10**9, 8, 4_194_304),
    (3, 1, 4, 1),
    (784, 10**6, 8, 5120),  # 196 chunks of 32 MiB
]


@pytest.mark.parametrize(("n", "N", "itemsize", "width"), WIDTHS)
def test_chunk_width(n: int, N: int, itemsize: int, width: int) -> None:
    made = chunk_width(n, N, itemsize)
    assert made == width
    assert made == N or made < 1024 or made % 1024 == 0


@pytest.mark.parametrize(("n", "N"), [(2050, 524_032), (784, 10**7), (1000, 10**8), (50, 10**10)])
def test_no_more_chunks_than_said(n: int, N: int) -> None:
    """Every mapped file costs a descriptor, and there are 1024, or 256 on macOS."""
    width = chunk_width(n, N, 8)
    assert width % 1024 == 0
    assert sizes.MOST_CHUNKS / 2 < -(-N // width) <= sizes.MOST_CHUNKS


STRIPS = [
    # n, N, source chunk, memory limit: samples
    (784, 60_000, 500, None, 5000),  # 32 MiB of float64 are ten chunks
    (784, 60_000, 5000, None, 5000),
    (784, 60_000, 5350, None, 5350),  # one chunk is more than 32 MiB
    (784, 60_000, 100_000, None, 60_000),
    (10, 100, 7, None, 100),
    (1, 10**9, 1, None, 4_194_304),
    (784, 60_000, 500, 64 * MIB, 500),  # 2 MiB are less than a chunk
    (784, 60_000, 50, 64 * MIB, 300),
    (784, 60_000, 500, 100 * GIB, 5000),
    (784, 60_000, 7, 1, 7),
]


@pytest.mark.parametrize(("n", "N", "chunk", "limit", "samples"), STRIPS)
def test_strip_width(n: int, N: int, chunk: int, limit: int | None, samples: int) -> None:
    made = strip_width(n, N, chunk, limit)
    assert made == samples
    assert made == N or made % chunk == 0


def test_a_given_width_is_kept() -> None:
    made = planned(**SIZES | {"place": "given", "width": 37})
    assert (made.chunk_width, made.n_chunks, made.disk) == (37, 271, 0)


# -------------------------------------------------------------------------------------- sizes

GOOD_SIZES = [
    (1, 1),
    (2_000_000, 2_000_000),
    (2.5e9, 2_500_000_000),
    ("123", 123),
    ("1e3", 1000),
    ("2GiB", 2 * GIB),
    ("2 GiB", 2 * GIB),
    ("2gib", 2 * GIB),
    ("2GB", 2 * 10**9),
    ("2G", 2 * 10**9),
    ("1.5kB", 1500),
    ("0.5 MiB", 512 * KIB),
    ("300MB", 300 * 10**6),
    ("1TiB", 2**40),
]


@pytest.mark.parametrize(("value", "size"), GOOD_SIZES)
def test_size(value: Any, size: int) -> None:
    made = parse_size("memory_limit", value)
    assert made == size
    assert type(made) is int


@pytest.mark.parametrize("value", [np.int64(5), np.int32(5), np.uint64(5)])
def test_sizes_of_numpy(value: Any) -> None:
    """As for the other options, which take NumPy integers."""
    assert parse_size("memory_limit", value) == 5


BAD_SIZES = [
    0,
    -1,
    0.5,
    True,
    None,
    "0",
    "-2GiB",
    "5 apples",
    "GiB",
    "",
    " ",
    "B",
    "2GiB 3MB",
    "nan",
    float("nan"),
    float("inf"),
    "1e400",
    [2**30],
    b"2GiB",
]


@pytest.mark.parametrize("value", BAD_SIZES, ids=repr)
def test_not_a_size(value: Any) -> None:
    with pytest.raises(OptionError) as refused:
        parse_size("memory_limit", value)
    for word in ("memory_limit", "2GiB", f"got {value!r}"):
        assert word in str(refused.value)


# ------------------------------------------------------------------------ what the machine has

FREE = """
import json, resource
from pathlib import Path
import numpy as np
from streamsvd.system import free_memory

def used(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))

out = {"limit": resource.getrlimit(resource.RLIMIT_DATA)[0]}
out["used"], out["free"] = used("VmData"), free_memory()
block = np.ones(100 * 2**17)
out["used with block"], out["free with block"] = used("VmData"), free_memory()
resource.setrlimit(resource.RLIMIT_DATA, (out["used with block"] - 2**20, -1))
out["below zero"] = free_memory()
resource.setrlimit(resource.RLIMIT_DATA, (-1, -1))
resource.setrlimit(resource.RLIMIT_AS, (used("VmSize") + 50 * 2**20, -1))
out["address space"] = free_memory()
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
out["unlimited"] = free_memory()
print(json.dumps(out))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc of Linux")
def test_limits_of_the_process_are_seen() -> None:
    limit = 600 * MIB
    done = subprocess.run(
        ["prlimit", f"--data={limit}:unlimited", sys.executable, "-c", FREE],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    seen = json.loads(done.stdout)
    assert seen["limit"] == limit
    small = MIB  # what reading the figures itself takes
    assert abs(limit - seen["used"] - seen["free"]) < small
    assert abs(limit - seen["used with block"] - seen["free with block"]) < small
    assert seen["free"] - seen["free with block"] >= 99 * MIB
    assert seen["below zero"] == 0
    assert abs(seen["address space"] - 50 * MIB) < small
    assert seen["unlimited"] > 50 * MIB


CONTAINERS = [
    # files of the control group, what is left
    ({"most": "max\n", "used": "5000\n"}, None),
    ({"most": "9223372036854771712\n", "used": "5000\n"}, None),
    ({"most": "1000000\n", "used": "400000\n"}, 600_000),
    ({"most": "1000000\n", "used": "1000000\n"}, 0),
    ({"most": "1000000\n", "used": "1000001\n"}, 0),
    ({"most": "1000000\n"}, None),
    ({"used": "400000\n"}, None),
    ({}, None),
]


@pytest.mark.parametrize(("files", "left"), CONTAINERS)
def test_limit_of_the_container(
    files: dict[str, str], left: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    pairs = ((str(tmp_path / "most"), str(tmp_path / "used")),)
    monkeypatch.setattr(system, "CGROUPS", pairs)
    if left is None:
        assert free_memory() > 10 * MIB
    else:
        assert free_memory() == left


CGROUP_FILES = [
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
]


@pytest.mark.parametrize(("most", "used", "cache"), CGROUP_FILES)
def test_files_in_the_cache_count_as_free(
    most: str, used: str, cache: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container, pages of files that were read are charged to it until it is full.

    The kernel takes them back when memory is asked for. Who has just written or read a large store
    would otherwise be told that there is no memory.
    """
    (tmp_path / most).write_text(f"{80 * MIB}\n")
    (tmp_path / used).write_text(f"{79 * MIB}\n")
    (tmp_path / "memory.stat").write_text(f"rss {10 * MIB}\n{cache} {60 * MIB}\nactive_anon 0\n")
    monkeypatch.setattr(system, "CGROUPS", ((str(tmp_path / most), str(tmp_path / used)),))
    assert free_memory() == 61 * MIB


def test_free_memory_of_this_process() -> None:
    free = free_memory()
    assert type(free) is int
    total = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    assert 0 <= free <= total


def test_limits_that_are_lifted_are_not_seen() -> None:
    assert resource.getrlimit(resource.RLIMIT_DATA)[0] == resource.RLIM_INFINITY
    assert free_memory() > 0


def test_too_little_disk_has_both_numbers(tmp_path: Path) -> None:
    check_free_disk(tmp_path, 1)
    with pytest.raises(ResourceError) as refused:
        check_free_disk(tmp_path, 2**62)
    for word in ("needs 4096.00 PiB", "GiB free", str(tmp_path), "workspace="):
        assert word in str(refused.value)


# ------------------------------------------------------------------------------ threads of BLAS


def test_limits_of_blas_are_those_from_before() -> None:
    """However fits in many threads overlap."""

    def limits() -> list[int]:
        return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]

    before = limits()
    seen: list[int] = []

    def work(k: int) -> None:
        for _ in range(20):
            with system.one_blas_thread:
                time.sleep(0.0005 * (k % 3))
                seen.extend(limits())

    with threadpool_limits(limits=before[0], user_api="blas"), ThreadPoolExecutor(12) as pool:
        list(pool.map(work, range(24)))
    assert set(seen) == {1}
    assert limits() == before
