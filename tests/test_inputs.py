"""Tables, named dimensions, AnnData, files: every kind of input gives the bits of NumPy's."""

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from helpers import differences, normal, write_zarr
from scipy import sparse
from test_sparse_pca import changed
from zarr.storage import ZipStore

from streamsvd import OptionError, SVDResult, sparse_pca, sparse_svd

pytestmark = [
    pytest.mark.usefixtures("narrow_strips"),
    # AnnData reads an option that pandas is about to drop
    pytest.mark.filterwarnings("ignore:The 'future.infer_string' option"),
]

N, SAMPLES = 9, 101
GENES = [f"gene {i}" for i in range(N)]
CELLS = [f"cell {i}" for i in range(SAMPLES)]


def counts() -> np.ndarray:
    """(N, SAMPLES) features by samples, most of them zero."""
    X = np.abs(normal(N, SAMPLES) * 3 * np.linspace(1, 2, N)[:, None])
    X[X < 2.5] = 0
    return X.round(3)


X = counts()


@pytest.fixture(autouse=True)
def _serial_dask() -> Iterator[None]:
    with dask.config.set(scheduler="synchronous"):
        yield


def package(name: str) -> Any:
    """A package that only tests need."""
    module: ModuleType = pytest.importorskip(name)
    return module


# ---------------------------------------------------------------------------- the same numbers


def pandas_frame(folder: Path) -> Any:
    return package("pandas").DataFrame(X.T, columns=GENES, index=CELLS)


def pandas_nullable(folder: Path) -> Any:
    return pandas_frame(folder).astype("Float64")


def pandas_sparse(folder: Path) -> Any:
    return pandas_frame(folder).astype(package("pandas").SparseDtype(float, 0))


def polars_frame(folder: Path) -> Any:
    return package("polars").DataFrame(X.T, schema=GENES)


def data_array(folder: Path) -> Any:
    coords = {"gene": GENES, "cell": CELLS}
    return package("xarray").DataArray(X, coords, ("gene", "cell"), "counts")


def data_array_rows(folder: Path) -> Any:
    return data_array(folder).transpose()


def data_array_of_dask(folder: Path) -> Any:
    return data_array(folder).chunk({"cell": 13, "gene": 4})


def data_array_of_zarr(folder: Path) -> Any:
    xarray = package("xarray")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what zarr says of text is no test of ours
        made = data_array(folder).chunk({"cell": 13}).to_dataset()
        made.to_zarr(folder / "set.zarr", consolidated=False)
    return xarray.open_zarr(folder / "set.zarr", chunks=None, consolidated=False)["counts"]


def anndata(folder: Path, matrix: Any = X.T) -> Any:
    pandas = package("pandas")
    obs, var = pandas.DataFrame(index=CELLS), pandas.DataFrame(index=GENES)
    made = package("anndata").AnnData(matrix, obs, var)
    made.layers["doubled"] = matrix * 2
    return made


def anndata_csr(folder: Path) -> Any:
    return anndata(folder, sparse.csr_matrix(X.T))


def anndata_of_dask(folder: Path) -> Any:
    return anndata(folder, da.from_array(X.T, chunks=(13, 4)))


def anndata_view(folder: Path) -> Any:
    more = np.vstack([np.hstack([X.T, X.T]), np.ones((3, 2 * N))])
    made = package("anndata").AnnData(sparse.csr_matrix(more))
    made.var_names = GENES + [f"other {i}" for i in range(N)]
    view = made[:SAMPLES, :N]
    assert view.is_view
    return view


def anndata_backed(folder: Path) -> Any:
    anndata_csr(folder).write_h5ad(folder / "a.h5ad")
    return package("anndata").read_h5ad(folder / "a.h5ad", backed="r")


def anndata_backed_dense(folder: Path) -> Any:
    anndata(folder).write_h5ad(folder / "a.h5ad")
    return package("anndata").read_h5ad(folder / "a.h5ad", backed="r")


@pytest.fixture(params=[2, 3])
def zarr_format(request: pytest.FixtureRequest) -> int:
    return request.param


def written(made: Any, folder: Path, zarr_format: int = 2) -> Path:
    """An AnnData in a Zarr store, as the library writes it."""
    settings = package("anndata").settings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it says of its own formats is no test of ours
        with settings.override(zarr_write_format=zarr_format):
            made.write_zarr(folder / "a.zarr")
    return folder / "a.zarr"


NAMED: dict[str, tuple[Callable[[Path], Any], dict[str, Any]]] = {
    "pandas": (pandas_frame, {}),
    "pandas, sample_axis=0": (pandas_frame, {"sample_axis": 0}),
    "pandas transposed": (lambda folder: pandas_frame(folder).T, {"sample_axis": 1}),
    "pandas nullable": (pandas_nullable, {}),
    "pandas sparse": (pandas_sparse, {}),
    "polars": (polars_frame, {}),
    "xarray": (data_array, {"sample_dim": "cell"}),
    "xarray, sample_axis=1": (data_array, {"sample_axis": 1}),
    "xarray rows": (data_array_rows, {"sample_dim": "cell"}),
    "xarray of Dask": (data_array_of_dask, {"sample_dim": ["cell"]}),
    "xarray of Zarr": (data_array_of_zarr, {"sample_dim": "cell"}),
    "AnnData": (anndata, {}),
    "AnnData CSR": (anndata_csr, {}),
    "AnnData of Dask": (anndata_of_dask, {}),
    "AnnData view": (anndata_view, {}),
    "AnnData backed": (anndata_backed, {}),
    "AnnData backed, dense": (anndata_backed_dense, {}),
}


def npy(folder: Path) -> Path:
    np.save(folder / "x.npy", X)
    return folder / "x.npy"


def zip_store(folder: Path) -> Path:
    with ZipStore(folder / "x.zarr.zip", mode="w") as store:
        zarr.create_array(store, data=X, chunks=(4, 13))
    return folder / "x.zarr.zip"


def inside_a_zip(folder: Path) -> str:
    with ZipStore(folder / "x.zip", mode="w") as store:
        zarr.create_group(store).create_group("deep").create_array("x", data=X, chunks=(4, 13))
    return str(folder / "x.zip/deep/x")


def in_a_url(folder: Path) -> str:
    return f"file://{write_zarr(folder / 'x.zarr', X, (4, 13))}"


def hdf5(folder: Path) -> Any:
    file = package("h5py").File(folder / "x.h5", "w")
    return file.create_dataset("x", data=X, chunks=(4, 13))


NAMELESS: dict[str, tuple[Callable[[Path], Any], dict[str, Any]]] = {
    "NumPy": (lambda folder: X, {}),
    "NumPy rows": (lambda folder: X.T, {"sample_axis": 0}),
    "CSR": (lambda folder: sparse.csr_array(X.T), {"sample_axis": 0}),
    "CSR matrix": (lambda folder: sparse.csr_matrix(X.T), {"sample_axis": 0}),
    "CSC": (lambda folder: sparse.csc_array(X), {}),
    "Dask": (lambda folder: da.from_array(X, chunks=(4, 13)), {}),
    "Zarr": (lambda folder: write_zarr(folder / "x.zarr", X, (4, 13)), {}),
    "zarr.Array": (
        lambda folder: zarr.open_array(write_zarr(folder / "x.zarr", X, (4, 13)), mode="r"),
        {},
    ),
    "npy": (npy, {}),
    "HDF5": (hdf5, {}),
    "zip": (zip_store, {}),
    "inside a zip": (inside_a_zip, {}),
    "URL": (in_a_url, {}),
}


@pytest.fixture(scope="module")
def expected() -> tuple[SVDResult, SVDResult]:
    return sparse_pca(X, 3, max_fill=0.4), sparse_svd(X, 3, n_transforms=40, center="features")


@pytest.mark.parametrize("name", [*NAMED, *NAMELESS])
def test_the_same_components_from_the_same_data(
    name: str, tmp_path: Path, expected: tuple[SVDResult, SVDResult]
) -> None:
    make, options = (NAMED | NAMELESS)[name]
    source = make(tmp_path)
    pca = sparse_pca(source, 3, max_fill=0.4, **options)
    assert changed(pca, expected[0]) == []
    svd = sparse_svd(source, 3, n_transforms=40, center="features", **options)
    assert differences(svd, expected[1]) == []
    again = {} if name != "pandas transposed" else options
    scores = pca.transform(source, **again)
    scores = scores if pca.sample_axis else scores.T
    np.testing.assert_array_equal(scores, expected[0].transform(X))
    if name in NAMELESS:
        assert pca.feature_names is None
    else:
        assert list(pca.feature_names) == GENES
        pca.save(tmp_path / "result")
        assert list(SVDResult.load(tmp_path / "result").feature_names) == GENES


def test_anndata_in_zarr(
    zarr_format: int, tmp_path: Path, expected: tuple[SVDResult, SVDResult]
) -> None:
    """`X` and layers, dense and sparse, by path, by group and in a zip."""
    made = anndata_csr(tmp_path)
    made.layers["dense"] = X.T
    path = written(made, tmp_path, zarr_format)
    for source, options in (
        (path, {}),
        (str(path), {"layer": "dense"}),
        (zarr.open_group(path, mode="r"), {}),
        (f"file://{path}", {}),
    ):
        pca = sparse_pca(source, 3, max_fill=0.4, **options)
        assert changed(pca, expected[0]) == []
        assert list(pca.feature_names) == GENES
        assert pca.sample_axis == 0
        np.testing.assert_array_equal(pca.transform(source).T, expected[0].transform(X))
    doubled = sparse_pca(path, 3, max_fill=0.4, layer="doubled")
    np.testing.assert_allclose(doubled.singular_values, 2 * expected[0].singular_values)
    assert doubled.settings["layer"] == "doubled"
    np.testing.assert_array_equal(doubled.transform(path), doubled.transform(made))
    with pytest.raises(OptionError, match=r"no layers/none; layer= can be one of: .*doubled"):
        sparse_pca(path, 3, layer="none")
