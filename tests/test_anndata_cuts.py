"""Parts of an AnnData in a file, and matrices by columns: the bits of NumPy, in strips."""

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from helpers import differences, normal
from scipy import sparse
from test_sparse_pca import changed

from streamsvd import SourceError, sizes, sparse_pca, sparse_svd
from streamsvd.data import open_data, turned
from streamsvd.options import Ask

anndata = pytest.importorskip("anndata")
pandas = pytest.importorskip("pandas")

pytestmark = [
    # AnnData reads an option that pandas is about to drop
    pytest.mark.filterwarnings("ignore:The 'future.infer_string' option"),
]

N, SAMPLES = 9, 101
GENES = np.array([f"gene {i}" for i in range(N)], dtype=object)
CELLS = [f"cell {i}" for i in range(SAMPLES)]
X = np.abs(normal(N, SAMPLES) * 3 * np.linspace(1, 2, N)[:, None]).round(3)
X[X < 2.5] = 0

KINDS: list[Callable[[Any], Any]] = [np.array, sparse.csr_matrix, sparse.csc_matrix]


@pytest.fixture(autouse=True)
def _short_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources are read a few samples at a time, and few entries are gathered."""
    monkeypatch.setattr(sizes, "STRIP_BYTES", 8 * N * 7)
    monkeypatch.setattr(turned, "BLOCK", 150)
    monkeypatch.setattr(turned, "PIECE", 120)


def made(kind: Callable[[Any], Any]) -> Any:
    frames = pandas.DataFrame(index=CELLS), pandas.DataFrame(index=GENES)
    built = anndata.AnnData(kind(X.T), *frames)
    built.layers["doubled"] = kind(2 * X.T)
    return built


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def backed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    made(request.param).write_h5ad(tmp_path / "a.h5ad")
    opened = anndata.read_h5ad(tmp_path / "a.h5ad", backed="r")
    yield opened
    opened.file.close()


def same(source: Any, values: np.ndarray, genes: Any = GENES, **options: Any) -> None:
    pca = sparse_pca(source, 3, max_fill=0.4, **options)
    expected = sparse_pca(values, 3, max_fill=0.4, sample_axis=1)
    assert changed(pca, expected) == []
    assert pca.feature_names is not None
    assert pca.feature_names.tolist() == list(genes)
    svd = sparse_svd(source, 3, n_transforms=15, center="features", **options)
    assert (
        differences(svd, sparse_svd(values, 3, n_transforms=15, center="features", sample_axis=1))
        == []
    )
    np.testing.assert_array_equal(pca.transform(source).T, expected.transform(values))


GENERATOR = np.random.default_rng(1)
FEW = np.arange(N) != 4
CUTS: dict[str, tuple[Any, Any]] = {
    "a mask of genes": (slice(None), FEW),
    "a run of cells": (slice(20, 71), slice(None)),
    "cells in any order, genes backwards": (GENERATOR.permutation(SAMPLES)[:60], [7, 5, 3, 1, 0]),
    "names": (CELLS[3:90:2], list(GENES[2:7])),
}


@pytest.mark.parametrize("cut", CUTS)
def test_parts_of_a_file(cut: str, backed: Any) -> None:
    rows, columns = CUTS[cut]
    expected = pandas.DataFrame(X.T, CELLS, GENES)
    pick = expected.loc if cut == "names" else expected.iloc
    expected = pick[rows, columns]
    view = backed[rows, columns]
    assert view.is_view
    same(view, expected.to_numpy().T, expected.columns)
    if cut == "a mask of genes":
        if "csr" not in type(backed.X).__name__.lower():
            return
        doubled = sparse_pca(view, 3, max_fill=0.4, layer="doubled")
        assert changed(doubled, sparse_pca(2 * X[FEW], 3, max_fill=0.4, sample_axis=1)) == []
        across = sparse_pca(view, 3, max_fill=0.4, sample_axis=1)
        assert changed(across, sparse_pca(X[FEW].T, 3, max_fill=0.4, sample_axis=1)) == []


def test_only_what_is_in_a_part_is_read(tmp_path: Path) -> None:
    made(np.array).write_h5ad(tmp_path / "a.h5ad")
    backed = anndata.read_h5ad(tmp_path / "a.h5ad", backed="r")
    for rows, most in ((slice(20, 71), 51), (np.arange(0, SAMPLES, 50), 3)):
        source = open_data(backed[rows], Ask())
        for start in range(0, source.n_samples, 7):
            source.read(start, min(start + 7, source.n_samples), np.dtype("f8"))
        assert source.bytes_read == 8 * N * most
    backed.file.close()


@pytest.mark.parametrize("place", ["memory", "backed", "file", "zarr"])
def test_matrices_by_columns(place: str, tmp_path: Path) -> None:
    """Of CSC a block of samples is gathered from one reading of its entries."""
    whole = made(sparse.csc_matrix)
    source: Any = whole
    if place in ("backed", "file"):
        whole.write_h5ad(source := tmp_path / "a.h5ad")
    if place == "backed":
        source = anndata.read_h5ad(source, backed="r")
    if place == "zarr":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what it says of its own formats is no test of ours
            whole.write_zarr(source := tmp_path / "a.zarr")
    same(source, X)
    opened = open_data(source, Ask())
    for sample in range(SAMPLES):
        opened.read(sample, sample + 1, np.dtype("f8"))
    entries = np.count_nonzero(X)  # blocks end between samples: each lacks one at most
    blocks, size = -(-entries // (150 - N)), whole.X.indices.dtype.itemsize
    assert opened.bytes_read <= (blocks + 1) * entries * (8 + size) + 8 * (N + 1)
    by_rows = made(sparse.csr_matrix)  # the reverse: samples are columns
    across = sparse_pca(by_rows, 3, max_fill=0.4, sample_axis=1)
    assert changed(across, sparse_pca(X.T, 3, max_fill=0.4, sample_axis=1)) == []


def test_large_matrices_by_columns_are_refused_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = made(sparse.csc_matrix)
    whole.write_h5ad(tmp_path / "a.h5ad")
    monkeypatch.setattr(turned, "BLOCK", 20)
    same(whole, X)
    with pytest.raises(SourceError, match=r"takes \d+ readings of its \d+ entries.*tocsr\(\)"):
        sparse_pca(tmp_path / "a.h5ad", 3)


def test_damaged_matrices_by_columns(tmp_path: Path) -> None:
    for part, value, words in (
        ("indices", 500, r"X/indices go from 0 to 500; they must be from 0 to 100"),
        ("indptr", 0, "X/indptr does not fit the shape and the data of the matrix"),
    ):
        made(sparse.csc_matrix).write_h5ad(tmp_path / "a.h5ad")
        with h5py.File(tmp_path / "a.h5ad", "r+") as file:
            file[f"X/{part}"][5] = value
        with pytest.raises(SourceError, match=words):
            sparse_pca(tmp_path / "a.h5ad", 3)
