"""Damaged results: the right one or a `StreamSVDError`, no crash, nothing else in silence.

Each batch is at work in a process of its own, which a segmentation fault ends.
"""

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import damage
import numpy as np
import pytest
import zarr
from helpers import bits, normal
from zarr.storage import LocalStore

from streamsvd import StreamSVDError, SVDResult, sparse_pca, sparse_pca_cv, sparse_svd
from streamsvd.storage.checksums import checksum_of_file, checksum_of_json

N, P, SAMPLES = 10, 3, 60
X = normal(N, SAMPLES)
KINDS = ("pairs", "blocks", "gram", "refined", "stable")
BATCH = 40


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result of each kind."""
    xarray = pytest.importorskip("xarray")
    folder = tmp_path_factory.mktemp("saved")
    times = np.datetime64("2026-01-01") + np.arange(SAMPLES)
    named = xarray.DataArray(
        X,
        {"gene": [f"g\u00e9ne {k}" for k in range(N)], "time": times},
        dims=("gene", "time"),
    )
    stacked = (
        xarray.DataArray(
            X.reshape(2, N // 2, SAMPLES),
            {"y": [2.5, 1.5], "x": list("abcde"), "time": times},
            dims=("y", "x", "time"),
        )
        .stack(gene=("y", "x"))
        .transpose("gene", "time")
    )
    made = {
        "pairs": sparse_svd(named, P, n_transforms=40, sample_dim="time", center="features"),
        "blocks": sparse_svd(X, P, n_transforms=5, algorithm="block", normalize="samples"),
        "gram": sparse_svd(X, P, n_transforms=40, reduction="gram", pivot=True),
        "refined": sparse_pca(stacked, P, max_fill=0.5, sample_dim="time"),
        "stable": sparse_pca_cv(
            [named[:4].drop_vars("gene").rename("a"), named[4:].rename("b")],
            P,
            max_fill=0.5,
            folds=3,
            sample_dim="time",
            normalize="variables",
        ).result,
    }
    for name, result in made.items():
        result.save(folder / name)
    return folder


def everything(path: Path) -> dict[str, Any]:
    """All that a result says."""
    made = SVDResult.load(path)
    said: dict[str, Any] = dict(bits(made))
    names = [
        None if names is None else names.tolist()
        for names in (made.feature_names, made.sample_names)
    ]
    said["names"] = repr(names)
    said["record"] = repr((made.settings, made.sample_axis, made.stopped, made.seconds))
    said["scores"] = made.transform(X).tobytes()
    said["text"] = repr(made) + made._repr_html_()
    if made.stability is not None:
        said["stability"] = repr(made.stability.toarray()) + repr(made.mean_stability)
    if not made.is_reduced and made.refined is None:
        said["right"] = made.right.data.tobytes()
    return said


def seal(path: Path) -> None:
    """Checksums of what is there now, as whoever means harm would write them."""
    about = json.loads((path / "zarr.json").read_text())
    attributes = about["attributes"]
    del attributes["checksum"]
    files = [p for p in damage.files_of(path) if p.parent != path]
    attributes["files"] = {p.relative_to(path).as_posix(): checksum_of_file(p) for p in files}
    attributes = json.loads(json.dumps(attributes))
    about["attributes"] = attributes | {"checksum": checksum_of_json(attributes)}
    (path / "zarr.json").write_text(json.dumps(about))


def forge_attributes(path: Path, random: np.random.Generator) -> None:
    about = json.loads((path / "zarr.json").read_text())
    attributes = about["attributes"]
    aside = path.parent / "attributes.json"
    aside.write_text(json.dumps({k: v for k, v in attributes.items() if k != "files"}))
    damage.change_json(aside, random)
    about["attributes"] = json.loads(aside.read_text()) | {"checksum": 0}
    (path / "zarr.json").write_text(json.dumps(about))
    seal(path)


def forge_array(path: Path, random: np.random.Generator) -> None:
    names = [p.parent for p in path.rglob("zarr.json") if "shape" in json.loads(p.read_text())]
    read = [p for p in names if p.relative_to(path).parts[0] not in ("right", "components")]
    folder = damage.pick(random, sorted(read))
    array: Any = zarr.open_array(LocalStore(folder), mode="r")
    changed = damage.change_array(array[...], random)
    shutil.rmtree(folder)
    one = {"chunks": tuple(max(1, size) for size in changed.shape), "compressors": None}
    if random.random() < 0.2:
        one = {"compressors": "auto"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.create_array(LocalStore(folder), data=changed, **one)
    seal(path)


def forge_metadata(path: Path, random: np.random.Generator) -> None:
    inner = [p for p in damage.files_of(path) if p.name == "zarr.json" and p.parent != path]
    damage.change_json(damage.pick(random, inner), random)
    seal(path)


FORGERIES = (forge_attributes, forge_array, forge_metadata)


def damaged(path: Path, other: Path, random: np.random.Generator) -> str:
    """Damage a result somehow; how."""
    file = damage.pick(random, damage.files_of(path))
    if random.random() < 0.1:
        damage.foreign(file, other)
        return f"another {file.relative_to(path)}"
    harm = damage.pick(random, [*damage.BYTES, damage.delete_folder, damage.in_place_of])
    if random.random() < 0.15:
        file, harm = path / "zarr.json", damage.change_json
    if harm is damage.change_json or (file.name == "zarr.json" and random.random() < 0.3):
        harm = damage.change_json
    harm(file, random)
    return f"{harm.__name__} of {file.relative_to(path)}"


def batch(saved: Path, folder: Path, kind: str, seed: int) -> list[str]:
    """What went wrong in a batch of damages: [] is what tests want."""
    wrong, random = [], np.random.default_rng([seed, *kind.encode()])
    expected = everything(saved / kind)
    for k in range(BATCH):
        path = shutil.copytree(saved / kind, folder / f"{kind} {seed} {k}" / "result")
        how = damaged(path, saved / damage.pick(random, list(KINDS)), random)
        print(how, flush=True)
        try:
            found = everything(path)
        except StreamSVDError:
            continue
        except Exception as error:
            wrong.append(f"{how}: {type(error).__name__}: {error}")
            continue
        wrong += [f"{how}: another {name}" for name in expected if found[name] != expected[name]]
        shutil.rmtree(path)
    return wrong


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_results(kind: str, seed: int, saved: Path, tmp_path: Path, forks: Any) -> None:
    job = forks.start(batch, saved, tmp_path, kind, seed)
    assert job.result() == [], job.said()[-1]


def batch_of_forgeries(saved: Path, folder: Path, kind: str) -> list[str]:
    """As `batch`, with checksums that are right: it may say something else, but no nonsense."""
    wrong, refused, random = [], 0, np.random.default_rng([7, *kind.encode()])
    for k in range(BATCH):
        path = shutil.copytree(saved / kind, folder / f"{kind} {k}" / "result")
        forge = FORGERIES[k % len(FORGERIES)]
        forge(path, random)
        print(forge.__name__, k, flush=True)
        try:
            everything(path)
        except StreamSVDError:
            refused += 1
        except Exception as error:
            wrong.append(f"{forge.__name__} {k}: {type(error).__name__}: {error}")
    print("refused", refused)
    return wrong if refused > BATCH // 2 else [*wrong, f"{refused} refused"]


@pytest.mark.parametrize("kind", KINDS)
def test_forged_results(kind: str, saved: Path, tmp_path: Path, forks: Any) -> None:
    """Nothing of a file chooses a codec, and no index reaches a kernel that is out of bounds."""
    job = forks.start(batch_of_forgeries, saved, tmp_path, kind)
    assert job.result() == [], job.said()[-1]


@pytest.mark.parametrize("number", [2**40, -5, 100_000])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("pairs", "log/pairs"),
        ("pairs", "log/order"),
        ("blocks", "log/indices"),
        ("refined", "refined/rows/indices"),
        ("refined", "refined/rows/indptr"),
        ("stable", "stability/indices"),
        ("stable", "stability/indptr"),
    ],
)
def test_indices_out_of_bounds(
    kind: str, name: str, number: int, saved: Path, tmp_path: Path
) -> None:
    path = shutil.copytree(saved / kind, tmp_path / "result")
    array: Any = zarr.open_array(LocalStore(path / name), mode="r+")
    values = array[...]
    values.reshape(-1)[1] = number if values.itemsize == 8 else np.clip(number, -5, 2**31 - 1)
    array[...] = values
    with pytest.raises(StreamSVDError, match="is not what was written"):
        SVDResult.load(path)
    seal(path)
    with pytest.raises(StreamSVDError, match=r"is damaged: (log|refined/rows|stability) \("):
        SVDResult.load(path)


@pytest.mark.parametrize("share", [-0.1, 0.0, 1.1, np.nan])
def test_shares_that_are_none(share: float, saved: Path, tmp_path: Path) -> None:
    path = shutil.copytree(saved / "stable", tmp_path / "result")
    array: Any = zarr.open_array(LocalStore(path / "stability/data"), mode="r+")
    array[0] = share
    seal(path)
    with pytest.raises(StreamSVDError, match=r"is damaged: stability \(shares are not above 0"):
        SVDResult.load(path)
