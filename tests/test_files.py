"""HDF5, AnnData and NetCDF files by path: the bits of NumPy, the names, and what is refused."""

import pickle
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from helpers import differences, rounded_counts
from scipy import sparse
from test_sparse_pca import changed

from streamsvd import (
    OptionError,
    SourceError,
    StreamSVDError,
    SVDResult,
    sizes,
    sparse_pca,
    sparse_svd,
)
from streamsvd.cli.commands import main
from streamsvd.data import open_data
from streamsvd.options import Ask

h5py = pytest.importorskip("h5py")

pytestmark = [
    pytest.mark.usefixtures("narrow_strips"),
    # AnnData reads an option that pandas is about to drop
    pytest.mark.filterwarnings("ignore:The 'future.infer_string' option"),
]

N, SAMPLES = 9, 61
GENES = [f"gene {i}" for i in range(N)]
CELLS = [f"cell {i}" for i in range(SAMPLES)]


X = rounded_counts(N, SAMPLES)


@pytest.fixture(scope="module")
def expected() -> tuple[SVDResult, SVDResult]:
    return sparse_pca(X, 3, max_fill=0.4), sparse_svd(X, 3, n_transforms=20, center="features")


def check(source: Any, expected: tuple[SVDResult, SVDResult], **options: Any) -> SVDResult:
    """Both methods and scores have the bits of the array."""
    pca = sparse_pca(source, 3, max_fill=0.4, **options)
    assert changed(pca, expected[0]) == []
    svd = sparse_svd(source, 3, n_transforms=20, center="features", **options)
    assert differences(svd, expected[1]) == []
    scores = pca.transform(source)
    np.testing.assert_array_equal(scores if pca.sample_axis else scores.T, expected[0].transform(X))
    return pca


def names_of(made: SVDResult) -> list[str] | None:
    return None if made.feature_names is None else list(made.feature_names)


# ------------------------------------------------------------------------------------- AnnData


def h5ad(folder: Path, matrix: Any) -> Path:
    """An AnnData as the library writes it, with a layer and names."""
    anndata, pandas = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    frames = pandas.DataFrame(index=CELLS), pandas.DataFrame(index=GENES)
    made = anndata.AnnData(matrix, *frames)
    made.layers["doubled"] = matrix * 2
    made.write_h5ad(folder / "a.h5ad")
    return folder / "a.h5ad"


@pytest.mark.parametrize("kind", [np.array, sparse.csr_matrix])
def test_anndata_by_path(kind: Any, tmp_path: Path, expected: Any) -> None:
    path = h5ad(tmp_path, kind(X.T))
    made = check(path, expected)
    assert names_of(made) == GENES
    assert made.sample_axis == 0
    check(f"{path}/X", expected, sample_axis=0)
    doubled = sparse_pca(str(path), 3, max_fill=0.4, layer="doubled")
    assert changed(doubled, sparse_pca(2 * X, 3, max_fill=0.4)) == []
    by_path = sparse_pca(f"{path}/layers/doubled", 3, max_fill=0.4, sample_axis=0)
    assert changed(by_path, doubled) == []
    with pytest.raises(OptionError, match=r"has no layers/none; layer= can be one of: doubled"):
        sparse_pca(path, 3, layer="none")
    with pytest.raises(SourceError, match=r"has no Y; it holds: X, layers/doubled"):
        sparse_pca(f"{path}/Y", 3)


def test_open_files(tmp_path: Path, expected: Any) -> None:
    path = h5ad(tmp_path, sparse.csr_matrix(X.T))
    with h5py.File(path) as file:
        assert names_of(check(file, expected)) == GENES
        check(file["X"], expected, sample_axis=0)
        with pytest.raises(SourceError, match=r"a.h5ad/layers is a group of HDF5; .*: doubled"):
            sparse_pca(file["layers"], 3)


def test_names_that_are_stored_as_categories(tmp_path: Path) -> None:
    """Also in Zarr, where names are read by the same rule."""
    path = h5ad(tmp_path, X.T)
    order = np.arange(N)[::-1]
    with h5py.File(path, "r+") as file:
        del file["var/_index"]
        group = file.create_group("var/_index")
        group.attrs["encoding-type"] = "categorical"
        group.create_dataset("categories", data=np.array(GENES, dtype=object)[order])
        group.create_dataset("codes", data=order.astype("i1"))
    assert names_of(sparse_pca(path, 3, max_fill=0.4)) == GENES
    with h5py.File(path, "r+") as file:
        file["var/_index/codes"][3] = 99
    with pytest.raises(SourceError, match=r"var/_index/codes do not fit its 9 categories"):
        sparse_pca(path, 3)


def test_strips_of_a_file_are_all_that_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "STRIP_BYTES", 8 * N * 7)
    path, read = h5ad(tmp_path, sparse.csr_matrix(X.T)), []
    source = open_data(path, Ask())
    one = source._entries_of  # type: ignore[attr-defined]

    def note(part: str, start: int, stop: int) -> Any:
        read.append((part, stop - start))
        return one(part, start, stop)

    monkeypatch.setattr(source, "_entries_of", note)
    sparse_pca(source, 3, max_fill=0.4, reduction="gram")
    most = int(np.add.reduceat((X != 0).sum(axis=0), np.arange(0, SAMPLES, 7)).max())
    assert max(size for _, size in read) <= most
    assert sum(size for part, size in read if part == "data") == np.count_nonzero(X)


@pytest.mark.parametrize("kind", [np.array, sparse.csr_matrix])
def test_a_file_goes_to_workers_by_its_path(kind: Any, tmp_path: Path) -> None:
    source = open_data(h5ad(tmp_path, kind(X.T)), Ask())
    assert source.readable_by_workers
    sent = pickle.dumps(source)
    assert len(sent) < 3000
    again = pickle.loads(sent)
    np.testing.assert_array_equal(again.read(3, 20, np.dtype("f8")), X[:, 3:20])
    np.testing.assert_array_equal(source.read(3, 20, np.dtype("f8")), X[:, 3:20])


def test_a_run_on_a_file_goes_on(tmp_path: Path) -> None:
    path, space = h5ad(tmp_path, X.T), tmp_path / "space"
    sparse_svd(path, 3, n_transforms=5, workspace=space)
    made = sparse_svd(path, 3, n_transforms=12, workspace=space, resume=True)
    assert differences(made, sparse_svd(X, 3, n_transforms=12)) == []
    h5ad(tmp_path, 2 * X.T)
    with pytest.raises(StreamSVDError, match="another source"):
        sparse_svd(path, 3, n_transforms=20, workspace=space, resume=True)


# ----------------------------------------------------------------------------- HDF5 and NetCDF


@pytest.mark.parametrize("ending", ["HDF5"])
def test_datasets_by_path(ending: str, tmp_path: Path, expected: Any) -> None:
    path = tmp_path / f"x.{ending}"
    with h5py.File(path, "w") as file:
        file.create_dataset("deep/x", data=X, chunks=(4, 13), compression="gzip")
        file.create_dataset("rows", data=X.T)
        file.create_dataset("cube", data=np.zeros((2, 3, 4)))
        file.create_dataset("text", data=np.array([[b"a", b"b"]]))
        file.create_dataset("complex", data=X * 1j)
        file.create_dataset("never", (N, SAMPLES), "f8", chunks=(4, 13))
    check(path / "deep" / "x", expected)
    check(f"{path}/rows", expected, sample_axis=0)
    for inside, words in (
        ("", r"is a group of HDF5; name what is in it: deep/x, never, rows"),
        ("/deep", r"is a group of HDF5; name what is in it: x"),
        ("/cube", r"shape \(2, 3, 4\); need two axes.*xarray.open_dataset"),
        ("/text", r"holds \|S1, not real numbers"),
        ("/complex", "holds complex128, not real numbers"),
        ("/never", r"30? chunk\(s\) were never written|chunk\(s\) were never written"),
        ("/rows/x", r"has no rows/x; it holds: deep/x"),
    ):
        with pytest.raises(SourceError, match=words):
            sparse_pca(f"{path}{inside}", 3)
    with pytest.raises(OptionError, match="storage_options are for URLs"):
        sparse_pca(f"{path}/rows", 3, storage_options={"anon": True})


def netcdf(path: Path, packed: bool = False) -> np.ndarray:
    """A variable as netCDF 4 writes it: dimensions are scales. Its values."""
    stored = np.round(X * 10).astype("i2")
    with h5py.File(path, "w") as file:
        data = file.create_dataset("t2m", data=stored if packed else X, chunks=(4, 13))
        if packed:
            data.attrs["scale_factor"], data.attrs["_FillValue"] = 0.5, np.array([9999], "i2")
        for axis, (dim, values) in enumerate(
            (("place", np.array(GENES, dtype=object)), ("time", np.arange(SAMPLES)))
        ):
            file.create_dataset(dim, data=values)
            file[dim].make_scale(dim)
            data.dims[axis].attach_scale(file[dim])
    return stored * 0.5 if packed else X


@pytest.mark.parametrize("packed", [False, True])
def test_netcdf_by_path(packed: bool, tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    values = netcdf(path, packed)
    made = sparse_pca(f"{path}/t2m", 3, max_fill=0.4, sample_dim="time")
    assert changed(made, sparse_pca(values, 3, max_fill=0.4)) == []
    assert names_of(made) == GENES
    assert made.features is not None
    assert made.features.dims == ("place",)
    across = sparse_pca(f"{path}/t2m", 3, max_fill=0.4, sample_dim="place")
    assert changed(across, sparse_pca(values.T, 3, max_fill=0.4)) == []
    assert names_of(across) == [str(k) for k in range(SAMPLES)]
    with h5py.File(path) as file:  # an open dataset says the same
        opened = sparse_pca(file["t2m"], 3, max_fill=0.4, sample_dim="time")
        assert names_of(opened) == GENES
    if packed:
        raw = sparse_pca(f"{path}/t2m", 3, max_fill=0.4, decode=False)
        assert changed(raw, sparse_pca(2 * values, 3, max_fill=0.4)) == []
    with pytest.raises(OptionError, match=r"'day' is not a dimension of .*'place' and 'time'"):
        sparse_pca(f"{path}/t2m", 3, sample_dim="day")


def test_netcdf_as_xarray_writes_it(tmp_path: Path) -> None:
    """By its library where that is there; times are no names."""
    pytest.importorskip("h5netcdf")
    xarray, pandas = pytest.importorskip("xarray"), pytest.importorskip("pandas")
    coords = {"place": GENES, "time": pandas.date_range("2020", periods=SAMPLES)}
    array = xarray.DataArray(X, coords, ("place", "time"), "t2m")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        array.to_netcdf(tmp_path / "x.nc", engine="h5netcdf")
    made = sparse_pca(tmp_path / "x.nc" / "t2m", 3, max_fill=0.4, sample_dim="time")
    assert changed(made, sparse_pca(array, 3, max_fill=0.4, sample_dim="time")) == []
    assert names_of(made) == GENES
    across = sparse_pca(tmp_path / "x.nc" / "t2m", 3, max_fill=0.4, sample_dim="place")
    assert across.feature_names is None


def test_files_that_are_not_what_their_name_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old.nc").write_bytes(b"CDF\x01 and so on")
    (tmp_path / "no.h5").write_bytes(b"nothing of HDF5")
    for name, words in (
        ("old.nc", "old.nc is NetCDF 3, .*nccopy -k nc4 .*to_zarr"),
        ("old.nc/t2m", "old.nc is NetCDF 3"),
        ("no.h5", "cannot open .*no.h5 as an HDF5 file"),
        ("none.h5", "no such path"),
    ):
        with pytest.raises(SourceError, match=words):
            sparse_pca(tmp_path / name, 3)
    netcdf(tmp_path / "x.nc")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(SourceError, match=r'needs h5py: pip install "streamsvd\[hdf5\]"'):
        sparse_pca(tmp_path / "x.nc" / "t2m", 3)


def test_from_the_shell(tmp_path: Path) -> None:
    path, out = h5ad(tmp_path, sparse.csr_matrix(X.T)), str(tmp_path / "out.zarr")
    run = CliRunner().invoke
    options = ["--components", "3", "--max-fill", "0.4", "--out", out, "--quiet"]
    assert run(main, ["pca", str(path), *options]).exit_code == 0
    assert changed(SVDResult.load(out), sparse_pca(X, 3, max_fill=0.4)) == []
    assert "9 features x 61 samples" in run(main, ["info", out]).output
    netcdf(tmp_path / "x.nc")
    options += ["--sample-dim", "time", "--overwrite"]
    assert run(main, ["pca", f"{tmp_path}/x.nc/t2m", *options]).exit_code == 0
    assert names_of(SVDResult.load(out)) == GENES
    said = run(main, ["convert", str(path), out]).output
    assert "needs no conversion" in said
    assert "streamsvd pca" in said
