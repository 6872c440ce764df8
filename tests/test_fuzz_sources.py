"""Four hundred damages of sources, with a fixed seed: the same result, or an error of ours.

What differs in silence is what README says: a flip in a chunk without a checksum, chunks of the
same size that changed places, and metadata that a flip left valid.
"""

import json
import random
import resource
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from helpers import normal
from scipy import sparse
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec

from streamsvd import StreamSVDError, sparse_svd

N, SAMPLES = 6, 40
OF_EACH = 31
"""Damages of each store."""

SECONDS = 10
"""That one damage may take, alone on the machine."""

ROOM = 2**30
"""Bytes that a process of damages may take beside what it begins with."""


def data() -> np.ndarray:
    X = normal(N, SAMPLES)
    X[np.abs(X) < 0.3] = 0
    return X.astype("f4")


ARRAYS: dict[str, dict[str, Any]] = {
    "none": {"compressors": None},
    "v2 none": {"compressors": None, "zarr_format": 2},
    "zstd": {"compressors": ZstdCodec()},
    "zstd with checksum": {"compressors": ZstdCodec(checksum=True)},
    "gzip": {"compressors": GzipCodec()},
    "crc32c": {"compressors": Crc32cCodec()},
    "blosc": {"compressors": BloscCodec()},
    "v2 blosc": {"compressors": numcodecs.Blosc(), "zarr_format": 2},
    "v2 zlib": {"compressors": numcodecs.Zlib(), "zarr_format": 2},
    "shards": {"compressors": ZstdCodec(), "shards": (N, 20)},
    "shards with checksum": {"compressors": Crc32cCodec(), "shards": (N, 20)},
}
GROUPS = ("anndata", "sparse", "cube")
CHECKED = {"zstd with checksum", "gzip", "crc32c", "v2 zlib", "shards with checksum"}
"""Stores in which a flip within a chunk is found: zlib and gzip have checksums too."""


def write(name: str, path: Path) -> None:
    if name in ARRAYS:
        options = {"write_empty_chunks": True}
        zarr.create_array(path, data=data(), chunks=(N, 10), config=options, **ARRAYS[name])
        return
    if name == "cube":
        group, options = zarr.create_group(path), {"write_empty_chunks": True}
        cube, dims = data().T.reshape(SAMPLES, 2, N // 2), ("time", "lat", "lon")
        group.create_array("x", data=cube, chunks=(10, 1, 3), dimension_names=dims, config=options)
        days = {"units": "days since 2026-01-01", "calendar": "standard"}
        group.create_array("time", data=np.arange(1, SAMPLES + 1), attributes=days)
        group.create_array("lon", data=np.arange(1.0, N // 2 + 1), attributes={"scale_factor": 0.5})
        return
    encoding = "anndata" if name == "anndata" else "csr_matrix"
    group = zarr.create_group(
        path, zarr_format=2 if name == "anndata" else 3, attributes={"encoding-type": encoding}
    )
    if name == "anndata":
        group.create_array("X", data=np.ascontiguousarray(data().T), chunks=(10, N))
        var = group.create_group("var", attributes={"_index": "names"})
        var.create_array("names", data=np.array([f"gene {k}" for k in range(N)], dtype="<U8"))
        return
    matrix = sparse.csr_array(data().T)
    group.attrs["shape"] = list(matrix.shape)
    for part in ("data", "indices", "indptr"):
        group.create_array(
            part, data=getattr(matrix, part), chunks=(16,), config={"write_empty_chunks": True}
        )


# ------------------------------------------------------------------------------------ damages

GARBAGE = [
    None, True, -1, 0, 1, 2**31, 2**62, 2**70, 0.5, "", "x", "<f8", "|O", [], [0], [1, 1], [2, 40],
    [6, 40, 2], {}, {"id": "pickle"}, {"name": "x"}, [None], [[]], [{"id": "zlib"}], "float64",
]  # fmt: skip


def flip(content: bytes, random: random.Random) -> bytes:
    place = random.randrange(len(content))
    flipped = content[place] ^ 1 << random.randrange(8)
    return content[:place] + bytes([flipped]) + content[place + 1 :]


def truncate(content: bytes, random: random.Random) -> bytes:
    return content[: random.randrange(1, len(content))]


def grow(content: bytes, random: random.Random) -> bytes:
    return content + content[: random.randrange(1, len(content))]


def empty(content: bytes, random: random.Random) -> bytes:
    return b""


def replace_a_value(content: bytes, random: random.Random) -> bytes:
    """Of metadata, at any depth."""
    metadata = json.loads(content)
    node = metadata
    if not metadata:
        return json.dumps(random.choice(GARBAGE)).encode()
    while True:
        key = random.choice(list(node) if isinstance(node, dict) else range(len(node)))
        if not isinstance(node[key], dict | list) or not node[key] or random.random() < 0.4:
            node[key] = random.choice(GARBAGE)
            return json.dumps(metadata).encode()
        node = node[key]


def metadata_of(path: Path) -> list[Path]:
    return [file for file in sorted(path.rglob("*")) if file.name in METADATA]


METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup")


def chunks_of(path: Path) -> list[Path]:
    return [f for f in sorted(path.rglob("*")) if f.is_file() and f.name not in METADATA]


def damage(path: Path, random: random.Random) -> str:
    """Do one damage to a store, and say what it was."""
    kind = random.choice(
        ["flip", "flip", "flip", "truncate", "grow", "empty", "delete", "swap", "other", "metadata",
         "metadata", "values", "values", "values"]
    )  # fmt: skip
    file = random.choice(chunks_of(path))
    harms = {"flip": flip, "truncate": truncate, "grow": grow, "empty": empty}
    if kind in harms:
        file.write_bytes(harms[kind](file.read_bytes(), random))
    elif kind == "delete":
        file.unlink()
    elif kind == "swap":
        other = random.choice(chunks_of(path))
        content = file.read_bytes()
        file.write_bytes(other.read_bytes())
        other.write_bytes(content)
    elif kind == "other":
        file.write_bytes(random.randbytes(random.randrange(1, 3000)))
    else:
        file = random.choice(metadata_of(path))
        harm = random.choice([flip, flip, truncate, empty]) if kind == "metadata" else None
        content = file.read_bytes()
        file.write_bytes((harm or replace_a_value)(content, random))
    return kind


def outcome(path: Path, name: str) -> str:
    """A digest of the result, or what was raised."""
    reading: dict[str, Any] = {} if name == "anndata" else {"sample_axis": int(name != "sparse")}
    if name == "cube":
        path, reading = path / "x", {"sample_dim": "time"}
    try:
        made = sparse_svd(path, 2, n_transforms=6, **reading)
    except StreamSVDError as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:
        return f"!!! {type(error).__name__}: {error}"
    return f"{made.singular_values.tolist()} {made.components.toarray().tolist()}"


def many(names: list[str], folder: Path, seed: int, of_each: int = OF_EACH) -> None:
    """Do all damages of some stores, and print what came of each."""
    warnings.simplefilter("ignore")
    limit = resource.getrlimit(resource.RLIMIT_DATA)[1]
    taken = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (taken + ROOM, limit))
    for name in names:
        whole, path = folder / name, folder / "x.zarr"
        write(name, whole)
        print(json.dumps([name, "nothing", outcome(whole, name)]), flush=True)
        for k in range(of_each):
            shutil.copytree(whole, path)
            kind = damage(path, random.Random(f"{name} {seed} {k}"))
            print(json.dumps([name, kind, outcome(path, name)]), flush=True)
            shutil.rmtree(path)


def may_differ(name: str, kind: str) -> bool:
    """What README says is not found."""
    if kind == "flip":
        return name not in CHECKED
    return kind in ("swap", "metadata", "values")


STORES = [*ARRAYS, *GROUPS]


@pytest.mark.parametrize("names", [STORES[k::4] for k in range(4)])
def test_damages(names: list[str], tmp_path: Path) -> None:
    """In a process of its own, which may crash, hang or run out of memory: it does not."""
    code = f"from test_fuzz_sources import *; many({names}, Path({str(tmp_path)!r}), 0)"
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=SECONDS * OF_EACH,
    )
    told = [json.loads(line) for line in run.stdout.splitlines()]
    assert run.returncode == 0, (run.stderr[-2000:], told[-1:])
    assert len(told) == len(names) * (OF_EACH + 1)
    expected = {name: said for name, kind, said in told if kind == "nothing"}
    for name, kind, said in told:
        assert not said.startswith("!!!"), (name, kind, said)
        assert "there is no memory" not in said, (name, kind, said)
        if said.startswith("[") and not may_differ(name, kind):
            assert said == expected[name], (name, kind)
    assert all(said.startswith("[") for said in expected.values())


def test_the_damages_are_of_all_kinds(tmp_path: Path) -> None:
    write("none", tmp_path / "whole")
    found = set()
    for k in range(80):
        path = shutil.copytree(tmp_path / "whole", tmp_path / str(k))
        found.add(damage(path, random.Random(k)))
    assert len(found) == 9
