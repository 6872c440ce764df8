"""Bars: what they count and promise, where they are shown; and the line while it compiles."""

import io
import re
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np
import pytest
from helpers import normal, write_zarr
from tqdm import tqdm

import streamsvd.fitting.workspace
from streamsvd import progress as bars
from streamsvd import sparse_pca, sparse_svd
from streamsvd.kernels import compiling
from streamsvd.kernels.compiling import compiling_shown
from streamsvd.progress import is_shown, progress_bar, progress_of_passes
from streamsvd.refinement.watching import Cycles


class Terminal:
    """What is written to it."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys, self._text = capsys, ""

    @property
    def text(self) -> str:
        self._text += self._capsys.readouterr().err
        return self._text

    @property
    def shown(self) -> str:
        """The last that was drawn."""
        return re.split(r"[\r\n]+", self.text.strip())[-1].strip()


@pytest.fixture
def terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    return Terminal(capsys)


# ------------------------------------------------------------------------------------- a bar


def test_work_that_goes_on_alike_says_how_long_it_will_take(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not from its first moments alone, which may have been for compiling."""
    with progress_of_passes(True, "ingest", 50) as advance:
        advance(20)
        time.sleep(0.11)
        advance(5)
        assert re.fullmatch(r"ingest:  50%\|.*\| 25/50 samples \[\d\d:\d\d\]", terminal.shown)
        monkeypatch.setattr(bars, "SETTLED", -1.0)
        time.sleep(0.11)
        advance(5)
        left = r"ingest:  60%\|.*\| 30/50 samples \[\d\d:\d\d<\d\d:\d\d\]"
        assert re.fullmatch(left, terminal.shown)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"total": 588, "unit": "nonzeros", "is_steady": False},
            r"\|.*\| 30/588 nonzeros \[\d\d:\d\d",
        ),
        ({"total": None, "unit": "cycles"}, r"30 cycles \[\d\d:\d\d"),
        ({"total": 2**31, "unit": "bytes"}, r"\|.*\| 30.0/2.00GiB \[\d\d:\d\d<"),
        ({"total": 3_000_000}, r"\|.*\| 30.0/3.00M samples \[\d\d:\d\d<"),
    ],
)
def test_nothing_is_promised_that_nobody_knows(
    options: dict[str, Any], words: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bars, "SETTLED", -1.0)
    with progress_bar(True, "stage", **options) as advance:
        advance(30, "a note")
        time.sleep(0.11)
        advance(0, "another")
        assert re.match(rf"stage: .*{words}", terminal.shown), terminal.shown
        assert terminal.shown.endswith(", another]")


def test_a_pass_more_is_said(terminal: Terminal) -> None:
    with progress_of_passes(True, "factor", 10, 2) as advance:
        advance(20)
    assert "20/20 samples, in 2 passes [" in terminal.shown


@pytest.mark.parametrize("asked", [None, True])
def test_quick_work_shows_a_bar_only_if_asked(asked: bool | None, terminal: Terminal) -> None:
    with progress_bar(asked, "stage", 3) as advance:
        advance(3)
    assert bool(terminal.text.strip()) is (asked is True)


def test_bars_are_for_terminals_and_notebooks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not is_shown(None)
    assert not is_shown(False)
    assert not is_shown(print)
    assert is_shown(True)
    shell = type("ZMQInteractiveShell", (), {})
    notebook = SimpleNamespace(get_ipython=shell)
    monkeypatch.setitem(sys.modules, "IPython", notebook)  # type: ignore[arg-type]
    assert is_shown(None)
    monkeypatch.setattr(bars, "find_spec", lambda name: None)
    assert bars._kind_of_bar() is tqdm
    monkeypatch.setattr(bars, "find_spec", lambda name: name)
    assert bars._kind_of_bar().__module__ == "tqdm.notebook"
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))  # type: ignore[arg-type]
    assert not is_shown(None)


def test_a_function_hears_of_the_end() -> None:
    told: list[tuple[Any, ...]] = []
    with progress_bar(lambda *one: told.append(one), "a", 4, 1) as advance:
        for _ in range(3):
            advance(1)
    with progress_bar(lambda *one: told.append(one), "b", None) as advance:
        for _ in range(3):
            advance(1, "a note")
    with progress_bar(lambda *one: told.append(one), "c", 9):
        pass
    assert told == [("a", 2, 4), ("a", 4, 4), ("b", 1, 0), ("b", 3, 0)]


# ------------------------------------------------------------------------------------ of fits


def test_bars_of_sparse_pca(terminal: Terminal) -> None:
    """What ends the transforms is the budget; of the refinement it is said what is explained."""
    made = sparse_pca(normal(20, 60), 2, max_fill=0.25, progress=True)
    text = terminal.text
    assert "/60 samples [" in text
    spent = made.path_components.nnz
    assert f"{spent}/10 nonzeros [" in text
    assert f", {len(made.log)} transforms]" in text
    found = re.findall(r"refinement: (\d+) cycles \[[\d:]+, ([\d.]+)% explained\]", text)
    assert int(found[-1][0]) > 1
    assert float(found[-1][1]) == pytest.approx(100 * made.explained_variance_ratio.sum(), abs=0.06)


def test_a_path_says_of_which_budget_it_is(terminal: Terminal) -> None:
    made = sparse_pca(normal(20, 60), 2, max_fill=0.25)
    made.refine_path(max_fill=[0.2, 0.3], progress=True)
    for budget in (8, 12):
        assert f"% explained of {budget} nonzeros]" in terminal.text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_transforms": 30}, r"30/30 transforms \[\d\d:\d\d<00:00\]"),
        ({"n_transforms": 30, "max_fill": 1.0}, r"30/30 transforms \[\d\d:\d\d\]"),
        ({"n_transforms": 2, "algorithm": "block"}, r"2/2 block steps \["),
        ({"n_transforms": 0, "center": "features"}, r"120/120 samples, in 2 passes \["),
    ],
)
def test_bars_of_sparse_svd(
    options: dict[str, Any], words: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bars, "SETTLED", -1.0)
    sparse_svd(normal(12, 60), 2, progress=True, **options)
    assert re.search(words, terminal.text), terminal.text


def test_a_run_that_goes_on_tells_of_all_that_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checksums of the working store; after a crash the source, and the log once more."""
    monkeypatch.setattr(streamsvd.fitting.workspace, "QUICK", 0)
    source = write_zarr(tmp_path / "x.zarr", normal(12, 60), (12, 20))
    workspace = tmp_path / "workspace"
    told: list[tuple[str, int, int]] = []

    def run(m: int) -> list[tuple[str, int, int]]:
        """The last that is told of each stage, in order."""
        told.clear()
        asked: dict[str, Any] = {"n_transforms": m, "workspace": workspace, "resume": m > 20}
        sparse_svd(source, 2, progress=lambda *one: told.append(one), **asked)
        return [list(group)[-1] for _, group in groupby(told, key=lambda one: one[0])]

    run(20)
    chunks = (workspace / "x.zarr").rglob("*")
    size = sum(path.stat().st_size for path in chunks if path.is_file())
    checksums, transforms = ("checksums", size, size), ("transforms", 25, 25)
    assert run(25) == [checksums, transforms, checksums]
    (workspace / "state.json").unlink()
    passes = [(stage, 60, 60) for stage in ("ingest", "replay")]
    assert run(26) == [*passes, ("transforms", 26, 26), checksums]


def test_cycles_are_told_by_one_thread() -> None:
    told: list[tuple[int, str, int]] = []

    def advance(units: int, note: str = "") -> None:
        told.append((units, note, threading.get_ident()))

    cycles = Cycles(advance, 8.0)
    cycles.begin(" of 5 nonzeros")
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(cycles.add, [1.0, 4.0, 2.0]))
    assert told == []
    cycles.tell()
    cycles.add(3.0)
    cycles.relaxation(2, 30)
    cycles.begin()
    cycles.add(2.0)
    assert {thread for *_, thread in told} == {threading.get_ident()}
    assert [(units, note) for units, note, _ in told] == [
        (3, "50.0% explained of 5 nonzeros"),
        (1, "50.0% explained of 5 nonzeros"),
        (0, "step 2 of 30 of a relaxation of 5 nonzeros"),
        (1, "25.0% explained"),
    ]


# ----------------------------------------------------------------------------- while it compiles


@pytest.mark.parametrize(
    ("patience", "progress", "lines"), [(0.0, True, 1), (60.0, True, 0), (0.0, False, 0)]
)
def test_a_line_while_it_compiles(
    patience: float, progress: bool, lines: int, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, if it takes longer than anybody waits; not for what is compiled."""
    monkeypatch.setattr(compiling, "PATIENCE", patience)
    monkeypatch.setattr(compiling._Watch, "has_said", False)
    one, other = numba.njit(lambda x: x + 1), numba.njit(lambda x: x - 1)
    before = threading.active_count()
    with compiling_shown(progress):
        for kernel in (one, one, other):
            kernel(np.float64(1.0))
    assert terminal.text.splitlines() == [compiling.NOTE] * lines
    assert threading.active_count() == before
