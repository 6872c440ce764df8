"""The cache of compiled kernels: it saves compiling, and can do no harm.

Processes of their own with a folder of their own, and few kernels: compiling is slow.
"""

import gc
import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamsvd
from streamsvd.kernels import jit, products, scores

if os.environ.get("NUMBA_DISABLE_JIT") == "1":
    pytest.skip("nothing is compiled", allow_module_level=True)

PACKAGE = Path(streamsvd.__file__).parent

RUN = """
import json
import numba.core.event as event

class Compiled(event.Listener):
    names = []
    def on_start(self, e):
        self.names.append(e.data["dispatcher"].py_func.__name__)
    def on_end(self, e):
        pass

event.register("numba:compile", Compiled())
import numpy as np
from streamsvd.kernels import moments, products, supports

bits = np.array([[0b1011], [0b0110]], dtype=np.uint64)
x = np.arange(6.0).reshape(2, 3)
moments.center_samples(x)
path = np.zeros(1)
products.trace_path(np.array([3.0, 2.0]), np.array([[0, 1]]), np.array([[5.0, 1.0]]), path)
made = [supports.popcount(bits[0]), path.tolist(), x.tolist()]
print(json.dumps({"made": made, "compiled": Compiled.names}))
"""

RIGHT = [3, [6.0], [[-1.5, -1.5, -1.5], [1.5, 1.5, 1.5]]]


def start(cache: Path | str | None, **environment: str) -> subprocess.Popen[str]:
    """Start `RUN` with this folder for the cache."""
    env = {key: value for key, value in os.environ.items() if key != "STREAMSVD_CACHE"}
    env["PYTHONPATH"] = os.pathsep.join([str(PACKAGE.parent), env.get("PYTHONPATH", "")])
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    if cache is not None:
        env["NUMBA_CACHE_DIR"] = str(cache)
    env |= environment
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", RUN],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )


def finish(process: subprocess.Popen[str]) -> set[str]:
    """What it compiled; it must have been right."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err[-2000:]
    assert err == ""
    told: dict[str, Any] = json.loads(out)
    assert told["made"] == RIGHT
    return set(told["compiled"])


def run(cache: Path | str | None, **environment: str) -> set[str]:
    return finish(start(cache, **environment))


def files(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*") if path.is_file())


def state(cache: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in files(cache)}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache after one process."""
    cache = tmp_path_factory.mktemp("cache")
    compiled = run(cache)
    assert {"popcount", "trace_path", "center_samples"} <= compiled
    return cache


@pytest.fixture
def cache(filled: Path, tmp_path: Path) -> Path:
    """A copy of it, to do harm to."""
    return Path(shutil.copytree(filled, tmp_path / "cache"))


def test_files_are_in_the_folder_that_numba_is_told(filled: Path) -> None:
    names = [path.name for path in files(filled)]
    assert all(name.endswith(".streamsvd") for name in names)
    for kernel in ("supports.popcount", "products.trace_path", "moments.center_samples"):
        assert any(name.startswith(kernel) for name in names), kernel


def test_a_second_process_compiles_nothing_and_writes_nothing(cache: Path) -> None:
    before = state(cache)
    assert run(cache) == set()
    assert state(cache) == before


def garbage(content: bytes) -> bytes:
    return bytes(byte ^ 0x5A for byte in content)


def truncated(content: bytes) -> bytes:
    return content[: len(content) // 2]


def empty(content: bytes) -> bytes:
    return b""


def one_bit(content: bytes) -> bytes:
    return content[:500] + bytes([content[500] ^ 1]) + content[501:]


def no_check(content: bytes) -> bytes:
    return content[:20]


def test_damaged_files_are_compiled_anew(cache: Path) -> None:
    """Each file in another way, in turn; all are mended at once."""
    harms = cycle([garbage, truncated, empty, one_bit, no_check])
    harmed = files(cache)
    for path, harm in zip(harmed, harms, strict=False):
        path.write_bytes(harm(path.read_bytes()))
    before = {path: path.read_bytes() for path in harmed}
    assert {"popcount", "trace_path", "center_samples"} <= run(cache)
    assert files(cache) == harmed
    assert all(path.read_bytes() != before[path] for path in harmed)
    assert run(cache) == set()


def test_files_that_are_folders(cache: Path) -> None:
    """Neither read nor replaced, nor in the way."""
    for path in files(cache):
        path.unlink()
        path.mkdir()
    assert "popcount" in run(cache)
    assert all(path.is_dir() for path in cache.rglob("*"))


def test_a_pickle_of_something_else(cache: Path) -> None:
    """Sound by its check, yet not what numba can rebuild: written by another version, say."""
    content = pickle.dumps({"not": "a kernel"})
    for path in files(cache):
        path.write_bytes(hashlib.sha256(content).digest() + content)
    assert "popcount" in run(cache)


def test_one_file_that_is_lost(cache: Path) -> None:
    lost = next(path for path in files(cache) if path.name.startswith("supports.popcount"))
    lost.unlink()
    made = run(cache)
    assert made == {"popcount"}
    assert lost.exists()


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    """No folder can be made below a file: no cache there, no error, no home needed."""
    (tmp_path / "file").write_text("")
    place = tmp_path / "file" / "below"
    run(place, HOME=str(place), XDG_CACHE_HOME=str(place))
    assert (tmp_path / "file").read_text() == ""


def test_nowhere_to_write_at_all(tmp_path: Path) -> None:
    """The package itself in a place that cannot be written, and no other: compiled, not kept."""
    with zipfile.ZipFile(tmp_path / "package.zip", "w") as archive:
        for path in PACKAGE.rglob("*.py"):
            archive.write(path, path.relative_to(PACKAGE.parent))
    (tmp_path / "file").write_text("")
    nowhere = str(tmp_path / "file" / "below")
    compiled = run(
        nowhere,
        HOME=nowhere,
        XDG_CACHE_HOME=nowhere,
        PYTHONPATH=str(tmp_path / "package.zip"),
        PYTHONSAFEPATH="1",
    )
    assert "popcount" in compiled
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "package.zip"]


def test_nothing_is_left_beside_the_package(tmp_path: Path) -> None:
    """Else uninstalling would leave a folder that Python takes for the package."""
    package, home = tmp_path / "package", tmp_path / "home"
    shutil.copytree(PACKAGE, package / "streamsvd", ignore=shutil.ignore_patterns("__pycache__"))
    before = files(package)
    places = {"HOME": str(home), "XDG_CACHE_HOME": str(home), "PYTHONPATH": str(package)}
    assert "popcount" in run(None, **places, PYTHONSAFEPATH="1", NUMBA_CACHE_DIR="")
    assert files(package) == before
    assert any(path.name.startswith("supports.popcount") for path in files(home))


def test_no_cache_when_told(tmp_path: Path) -> None:
    assert "popcount" in run(tmp_path, STREAMSVD_CACHE="0")
    assert files(tmp_path) == []


def test_an_empty_setting_is_no_zero(cache: Path) -> None:
    assert run(cache, STREAMSVD_CACHE="1") == set()


def test_two_processes_at_once(tmp_path: Path) -> None:
    both = [start(tmp_path), start(tmp_path)]
    for process in both:
        finish(process)
    assert run(tmp_path) == set()
    assert all(path.suffix == ".streamsvd" for path in files(tmp_path))


def test_a_full_disk_leaves_no_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written aside is removed when it cannot be finished."""
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(jit.os, "replace", full)
    kernel = jit.jit(twice)
    assert kernel(2.5) == 5.0
    assert files(tmp_path) == []


def twice(x: float) -> float:
    return 2.0 * x


def thrice(x: float) -> float:
    return 3.0 * x


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache for kernels that are compiled in this process."""
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))
    return tmp_path


def compile_here() -> tuple[int, int]:
    """Cache hits and misses of a kernel made anew."""
    kernel = jit.jit(twice)
    assert kernel(2.5) == 5.0
    return sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values())


def test_a_changed_source_changes_the_key(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any kernel: callees in other modules are compiled into it."""
    assert compile_here() == (0, 1)
    assert compile_here() == (1, 0)
    first = files(here)
    monkeypatch.setattr(jit, "_sources", lambda: "other")
    assert compile_here() == (0, 1)
    assert len(files(here)) == 2
    assert compile_here() == (1, 0)
    monkeypatch.undo()
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(here))
    assert compile_here() == (1, 0)
    assert set(first) < set(files(here))


def test_another_numba_changes_the_key(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compile_here() == (0, 1)
    monkeypatch.setattr(jit.numba, "__version__", "0.0")
    assert compile_here() == (0, 1)


def test_another_type_is_another_file(here: Path) -> None:
    kernel = jit.jit(twice)
    assert (kernel(2.5), kernel(2)) == (5.0, 4.0)
    assert len(files(here)) == 2
    other = jit.jit(thrice)
    assert other(2.5) == 7.5
    assert len(files(here)) == 3


def copy_of_the_kernels(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for path in (PACKAGE / "kernels").glob("*.py"):
        (folder / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(jit, "__file__", str(folder / "jit.py"))
    return folder


def digest() -> str:
    jit._sources.cache_clear()
    return jit._sources()


KERNELS = sorted(path.stem for path in (PACKAGE / "kernels").glob("*.py"))


@pytest.mark.parametrize("module", KERNELS)
def test_the_digest_is_of_all_that_determines_kernels(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of `jit` itself, which has the flags that they are compiled with."""
    folder = copy_of_the_kernels(tmp_path, monkeypatch)
    try:
        before = digest()
        assert digest() == before
        path = folder / f"{module}.py"
        path.write_bytes(path.read_bytes() + b"\n# changed\n")
        assert digest() != before
    finally:
        monkeypatch.undo()
        jit._sources.cache_clear()


def test_all_that_is_compiled_is_digested() -> None:
    """No kernel is outside of the folder that the digest is of."""
    assert {"jit", "rotations", "scores", "pattern"} <= set(KERNELS)
    others = {p for p in PACKAGE.rglob("*.py") if p.parent.name != "kernels"}
    assert not [p for p in others if "import jit" in p.read_text()]


def test_importing_writes_nothing(tmp_path: Path) -> None:
    code = "import streamsvd.kernels.supports, streamsvd.kernels.pattern"
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(PACKAGE.parent)}
    subprocess.run([sys.executable, "-c", code], check=True, env=env, timeout=60)
    assert files(tmp_path) == []


def test_kernels_can_still_be_called_as_python() -> None:
    made = np.zeros((2, 1))
    for call, out in zip((products.trace_path, products.trace_path.py_func), made, strict=True):
        call(np.array([3.0, 2.0]), np.array([[0, 1]]), np.array([[5.0, 1.0]]), out)
    assert made.tolist() == [[6.0]] * 2


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_is_collected_again_after_compiling(enabled: bool) -> None:
    was_enabled, rounds = gc.isenabled(), []
    (gc.enable if enabled else gc.disable)()
    gc.callbacks.append(lambda phase, _: rounds.append(phase))
    try:
        assert jit.jit(lambda x: x * x + 1.0)(2.5) == 7.25
        assert gc.isenabled() == enabled
        assert len(rounds) <= 4  # compiling alone would have dozens
    finally:
        gc.callbacks.pop()
        (gc.enable if was_enabled else gc.disable)()


def test_kernels_for_kernels_say_so() -> None:
    """Without a way in for Python a call would end the process."""
    with pytest.raises(TypeError, match="tail_score is for kernels to call"):
        scores.tail_score(0, 1.0, 1.0)
