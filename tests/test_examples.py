"""The examples run as a user would run them, and their figures are right."""

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import streamsvd

EXAMPLES = Path(__file__).parents[1] / "examples"

pytestmark = pytest.mark.slow


def run(name: str, folder: Path, *args: str, without: tuple[str, ...] = ()) -> str:
    """What an example prints in an empty folder; `without` are packages that cannot be imported."""
    script = EXAMPLES / name
    command = [sys.executable, "-W", "error", str(script), *args]
    if without:
        hide = f"import runpy, sys\nfor name in {without}:\n    sys.modules[name] = None\n"
        start = f"runpy.run_path({str(script)!r}, run_name='__main__')"
        command = [sys.executable, "-W", "error", "-c", hide + start]
    here = {"PYTHONPATH": str(Path(streamsvd.__file__).parents[1]), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=folder, env=os.environ | here, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found, f"no {pattern!r} in {text}"
    return float(found[1])


def test_all_say_how_they_are_run() -> None:
    for script in {path.name for path in EXAMPLES.glob("*.py")} - {"datasets.py"}:
        assert f"python examples/{script}" in (EXAMPLES / script).read_text()


def test_digits_parts(tmp_path: Path) -> None:
    out = run("digits_parts.py", tmp_path)
    assert number(r"that is ([\d.]+)% of it", out) > 93
    assert number(r"pixels in use, of 1024: (\d+),", out) <= 0.15 * 1024
    assert number(r"orthonormality: (\S+)\n", out) < 1e-14
    assert (tmp_path / "digits_parts.png").stat().st_size > 10_000


def test_choose_fill(tmp_path: Path) -> None:
    out = run("choose_fill.py", tmp_path)
    rows = re.findall(r"^ +(\d+)% +(\d+) +([\d.]+)% +([\d.]+)% +([\d.]+)%$", out, re.MULTILINE)
    assert [int(row[0]) for row in rows] == [2, 5, 10, 20, 30]
    for fill, nonzeros, _, greedy, refined in rows:
        assert int(nonzeros) <= int(fill) / 100 * 640
        assert float(refined) >= float(greedy)
    assert float(rows[-1][-1]) > 95
    chosen = re.search(r"^  chosen +(\d+) components, fill ([\d.]+) ", out, re.MULTILINE)
    assert chosen
    assert chosen.groups() == ("10", "0.1")
    assert number(r"chosen again: (\d+)% to", out) > 40
    assert (tmp_path / "choose_fill.png").stat().st_size > 10_000


def test_single_cell(tmp_path: Path) -> None:
    out = run("single_cell.py", tmp_path)
    assert out.count("15 of its 15 genes were planted together") == 4
    assert (tmp_path / "single_cell.png").stat().st_size > 10_000
    anndata = pytest.importorskip("anndata")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # AnnData and pandas have theirs
        cells = anndata.read_zarr(tmp_path / "cells.zarr")  # the layout is what it says
    assert cells.shape == (6000, 500)
    assert list(cells.var_names[:2]) == ["gene0", "gene1"]


MATERIALS = r"^component (\d): .* at (\d+) nm \((\w+) at (\d+) nm\)$"


def test_image_cube(tmp_path: Path) -> None:
    pytest.importorskip("xarray")
    out = run("image_cube.py", tmp_path)
    found = re.findall(MATERIALS, out, re.MULTILINE)
    assert {material for _, _, material, _ in found} == {"chlorophyll", "water", "ochre"}
    assert all(strongest == line for _, strongest, _, line in found)
    assert "maps: (3, 80, 120)" in out
    assert (tmp_path / "image_cube.png").stat().st_size > 10_000


def test_image_cube_without_xarray_and_matplotlib(tmp_path: Path) -> None:
    out = run("image_cube.py", tmp_path, without=("xarray", "matplotlib"))
    assert len(re.findall(MATERIALS, out, re.MULTILINE)) == 3
    assert "maps: (3, 80, 120)" in out
    assert 'pip install "streamsvd[plot]"' in out
    assert list(tmp_path.iterdir()) == []


def test_larger_than_memory(tmp_path: Path) -> None:
    out = run("larger_than_memory.py", tmp_path, "--samples", "100000")
    codes = re.findall(r"exit code (-?\d+)", out)
    assert codes[0] == "143"
    assert codes[1] in ("-9", "0")  # 0: it was faster than the kill
    assert codes[2] == "0"
    assert "the same bits as without interruption: True" in out
    assert list(tmp_path.iterdir()) == []


def test_neighbours(tmp_path: Path) -> None:
    out = run("neighbours.py", tmp_path)
    scores = re.findall(r"^fill +(\d+)%: ([\d.]+)% in cross-validation$", out, re.MULTILINE)
    assert [fill for fill, _ in scores] == ["3", "6", "12"]
    held_out = number(r"([\d.]+)% with \d+ loadings", out)
    assert held_out > 96
    assert abs(held_out - number(r"([\d.]+)% with PCA's 1024", out)) < 3


def test_sea_surface(tmp_path: Path) -> None:
    pytest.importorskip("xarray")
    out = run("sea_surface.py", tmp_path)
    found = re.findall(r"^component \d: .* \(the ([\w ]+)\), ([\d.]+)%", out, re.MULTILINE)
    assert {name for name, _ in found} == {"cold tongue", "gyre", "subpolar"}
    blank = re.search(r"cells of land: (\d+) of 3600, NaN in the maps: (\d+)", out)
    assert blank
    assert blank[1] == blank[2]
    assert number(r"missing besides: (\d+)", out) > 10_000
    assert (tmp_path / "sea_surface.png").stat().st_size > 10_000


def test_genotypes(tmp_path: Path) -> None:
    out = run("genotypes.py", tmp_path)
    assert "scores equal those of data filled by hand: True" in out
    assert number(r"told apart by \d+ SNPs: ([\d.]+)%", out) > 99
    assert number(r"of these SNPs (\d+) are", out) > 120
    assert (tmp_path / "genotypes.png").stat().st_size > 10_000


def test_cells_to_umap(tmp_path: Path) -> None:
    pytest.importorskip("scanpy")
    out = run("cells_to_umap.py", tmp_path)
    used = [int(k) for k in re.findall(r": (\d+) genes, ", out)]
    agreement = [float(share) for share in re.findall(r"([\d.]+)% of neighbours", out)]
    assert used[0] < used[1] == 200
    assert agreement[0] > agreement[1] - 2
    assert (tmp_path / "cells_to_umap.png").stat().st_size > 10_000


def test_dask_cluster(tmp_path: Path) -> None:
    out = run("dask_cluster.py", tmp_path)
    assert re.findall(r"same bits as in one process: (\w+)", out) == ["True", "True"]
    assert number(r"sparse_pca: ([\d.]+)%", out) > 90
    assert not list(tmp_path.iterdir())


def test_topics(tmp_path: Path) -> None:
    out = run("topics.py", tmp_path)
    topics = re.findall(r"^component \d: (.*)\n +(.*)$", out, re.MULTILINE)
    assert len(topics) == 8
    words = [set(found.split(", ")) for found, _ in topics]
    assert any({"distribution", "cdf"} <= found for found in words)
    # Which functions there are depends on the versions of NumPy and SciPy.
    packages = [{title.rpartition(".")[0] for title in titles.split(", ")} for _, titles in topics]
    assert sum(len(found) == 1 for found in packages) >= 5
    assert (tmp_path / "topics.png").stat().st_size > 10_000
