"""What this process may still take: free memory under limits and containers, free disk."""

import os
import resource
import shutil
import threading
from contextlib import ContextDecorator
from functools import cache
from pathlib import Path
from typing import Any

from dask.utils import format_bytes
from threadpoolctl import ThreadpoolController

from streamsvd.errors import ResourceError

CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)


def n_cpus() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _OneBlasThread(ContextDecorator):
    """BLAS on one thread inside of any block; the limits from before when all have been left.

    Limits are those of the process: where each thread that fits set and restored them by itself,
    the first to leave would take the limit from the others. And threadpoolctl lets one thread at a
    time set them, others silently do nothing (from 3.7 on): who that is, is reset first.
    """

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0
        self._limited: Any = None

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                _reset_controlling_thread()
                self._limited = _blas().limit(limits=1, user_api="blas")

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                _reset_controlling_thread()
                self._limited.restore_original_limits()
                _reset_controlling_thread()
                self._limited = None


one_blas_thread = _OneBlasThread()
"""A context manager and decorator: the last bits of a product depend on how many threads share it.
"""


@cache
def _blas() -> ThreadpoolController:
    """The libraries that NumPy and SciPy multiply with."""
    import scipy.linalg  # noqa: F401  (loads its own)

    return ThreadpoolController()


def _reset_controlling_thread() -> None:
    for library in _blas().lib_controllers:
        reset = getattr(library, "clear_controlling_thread", None)
        if reset is not None:
            reset(force=True)


def page_cache() -> int:
    """Bytes that mapped files can occupy: what is available, within the container's limit."""
    limits = [_field("/proc/meminfo", "MemAvailable"), *(_number(most) for most, _ in CGROUPS)]
    return min((limit for limit in limits if limit is not None), default=2**32)


def drop_pages(fd: int) -> None:
    """Take a file out of the page cache, except for what is mapped or not yet on the disk."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def free_memory() -> int:
    """Bytes that can still be allocated: what is available, container and process limits."""
    limits = [_field("/proc/meminfo", "MemAvailable")]
    for most, used in CGROUPS:
        # Pages of files that were read count as used until they are taken back.
        cached = _statistic(Path(used).with_name("memory.stat"))
        free = _difference(_number(most), _number(used))
        limits.append(None if free is None else free + cached)
    for name, field in ((resource.RLIMIT_DATA, "VmData"), (resource.RLIMIT_AS, "VmSize")):
        soft = resource.getrlimit(name)[0]
        if soft != resource.RLIM_INFINITY:
            limits.append(_difference(soft, _field("/proc/self/status", field)))
    known = [limit for limit in limits if limit is not None]
    return max(0, min(known)) if known else 2**32


def check_free_disk(folder: Path, n_bytes: int) -> None:
    """Refuse when the file system of `folder` has not `n_bytes` left."""
    free = shutil.disk_usage(folder).free
    if n_bytes > free:
        raise ResourceError(
            f"the working store needs {format_bytes(n_bytes)}; {folder} has {format_bytes(free)} "
            "free; free some space or pass workspace= on another disk"
        )


def _field(path: str, name: str) -> int | None:
    """Bytes of a ``name:  123 kB`` line of a file in /proc."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith(name + ":")]
    return int(found[0]) * 1024 if found else None


def _statistic(path: Path) -> int:
    """Bytes of inactive file pages of a control group."""
    try:
        lines = dict(line.split() for line in path.read_text().splitlines())
    except (OSError, ValueError):
        return 0
    return int(lines.get("total_inactive_file", lines.get("inactive_file", 0)))


def _number(path: str) -> int | None:
    try:
        text = Path(path).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _difference(most: int | None, used: int | None) -> int | None:
    return None if most is None or used is None else most - used
