"""Damaged workspaces: the same bits after some work, or a `StreamSVDError`; nothing in silence.

An error is for what cannot be made again, who ran here, and for what is no file of ours. All else
costs work at most. Each batch is at work in a process of its own, which a crash ends.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import damage
import numpy as np
import pytest
from helpers import blocks_of, differences, normal, write_zarr

import streamsvd.fitting.run
from streamsvd import StreamSVDError, SVDResult, sparse_svd
from streamsvd.fitting.records import read_arrays, write_arrays
from streamsvd.fitting.workspace import NOT_COMPARED
from streamsvd.storage.checksums import checksum_of_json

P, M = 3, 30
BATCH = 45
OPTIONS: dict[str, dict[str, Any]] = {
    "pairs": {"n_transforms": M, "center": "features", "pivot": True},
    "blocks": {"n_transforms": 6, "algorithm": "block"},
}
KINDS = [(name, stop) for name in OPTIONS for stop in ("clean", "killed")]


def fit(source: Path, name: str, workspace: Path | None, m: int | None = None) -> SVDResult:
    options = OPTIONS[name] | ({} if m is None else {"n_transforms": m})
    with blocks_of(20, "disk"):
        return sparse_svd(source, P, workspace=workspace, resume=workspace is not None, **options)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace of each kind, two thirds on its way, with a log of several segments."""
    folder = tmp_path_factory.mktemp("stopped")
    source = write_zarr(folder / "x.zarr", normal(9, 50) + 0.5, (9, 16))
    with pytest.MonkeyPatch.context() as patch:
        for name, options in OPTIONS.items():
            m = options["n_transforms"]
            for steps in (m // 6, m // 3, 2 * m // 3):
                fit(source, name, folder / f"{name} clean", steps)
            patch.setattr(streamsvd.fitting.run, "CHECKPOINT_SECONDS", 0.0)
            shutil.copytree(folder / f"{name} clean", folder / f"{name} killed")
            (folder / f"{name} killed" / "state.json").unlink()
    return folder


def forge_record(workspace: Path, random: np.random.Generator) -> str:
    """Numbers that cannot be, in a file whose checksum says that they are right."""
    run = json.loads((workspace / "run.json").read_text())
    before = checksum_of_json({k: v for k, v in run.items() if k not in NOT_COMPARED})
    names: tuple[str, ...] = ("mean", "scale", "energies", "initial")
    path = workspace / "ingested.npz"
    if random.random() < 0.7:
        is_block = run["algorithm"] == "block"
        names = ("indices" if is_block else "pairs", "g", "h", "values")
        segments = sorted((workspace / "log").glob("*.npz"))
        path = damage.pick(random, segments)
        for segment in segments[: segments.index(path)]:
            found = read_arrays(segment, names, before)
            assert found is not None
            before = found[1]
    found = read_arrays(path, names, before)
    assert found is not None
    name = damage.pick(random, list(names))
    changed = damage.change_array(found[0][name], random)
    write_arrays(path, found[0] | {name: changed}, before)
    return f"forged {name} of {path.relative_to(workspace)}"


def damaged(workspace: Path, other: Path, random: np.random.Generator) -> tuple[str, bool]:
    """Damage a workspace somehow; how, and whether it may be refused."""
    if random.random() < 0.2:
        return forge_record(workspace, random), False
    places = damage.files_of(workspace)
    # small files would hardly ever be drawn among the chunks
    kinds = [
        [p for p in places if p.parent == workspace],
        [p for p in places if p.parent.name == "log"],
        [p for p in places if "x.zarr" in p.parts],
    ]
    file = damage.pick(random, damage.pick(random, kinds))
    harm = damage.pick(random, [*damage.BYTES, damage.in_place_of, damage.foreign])
    if file.suffix == ".json" and random.random() < 0.4:
        harm = damage.change_json
    if file.parent != workspace and random.random() < 0.1:
        harm = damage.delete_folder
    of_identity = file.name in ("run.json", "lock")
    inside = file.parent in (workspace, workspace / "log")
    may_fail = of_identity or (harm is damage.in_place_of and inside) or harm is damage.swap
    if harm is damage.foreign:
        damage.foreign(file, other)
    else:
        harm(file, random)
    return f"{harm.__name__} of {file.relative_to(workspace)}", may_fail


def batch(stopped: Path, folder: Path, name: str, stop: str) -> list[str]:
    """What went wrong in a batch of damages: [] is what tests want."""
    wrong, random = [], np.random.default_rng([3, *name.encode(), *stop.encode()])
    source = stopped / "x.zarr"
    expected = fit(source, name, None)
    for k in range(BATCH):
        workspace = shutil.copytree(stopped / f"{name} {stop}", folder / str(k) / "workspace")
        other = stopped / f"{damage.pick(random, list(OPTIONS))} clean"
        how, may_fail = damaged(workspace, other, random)
        print(how, flush=True)
        for _ in range(1 + (k % 5 == 0)):  # and once more
            try:
                found = fit(source, name, workspace)
            except StreamSVDError as error:
                if not may_fail:
                    wrong.append(f"{how}: refused: {error}")
                continue
            except Exception as error:
                wrong.append(f"{how}: {type(error).__name__}: {error}")
                continue
            wrong += [f"{how}: another {what}" for what in differences(found, expected)]
        shutil.rmtree(workspace)
    return wrong


@pytest.mark.parametrize(("name", "stop"), KINDS)
def test_damaged_workspaces(
    name: str, stop: str, stopped: Path, tmp_path: Path, forks: Any
) -> None:
    job = forks.start(batch, stopped, tmp_path, name, stop)
    assert job.result() == [], job.said()[-1]
