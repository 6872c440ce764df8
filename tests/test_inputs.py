"""Tables, named dimensions, AnnData, files: every kind of input gives the bits of NumPy's."""

import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from helpers import differences, normal, rounded_counts, write_zarr
from scipy import sparse
from test_sparse_pca import changed
from zarr.storage import ZipStore

from streamsvd import OptionError, SourceError, SVDResult, sparse_pca, sparse_svd
from streamsvd.data.kinds import open_data
from streamsvd.options import Ask
from streamsvd.passes.strips import StripReader

pytestmark = [
    pytest.mark.usefixtures("narrow_strips", "serial_dask"),
    # AnnData reads an option that pandas is about to drop
    pytest.mark.filterwarnings("ignore:The 'future.infer_string' option"),
]

N, SAMPLES = 9, 101
GENES = [f"gene {i}" for i in range(N)]
CELLS = [f"cell {i}" for i in range(SAMPLES)]


X = rounded_counts(N, SAMPLES)


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


def anndata(folder: Path, matrix: Any = None) -> Any:
    matrix = X.T if matrix is None else matrix
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


# ------------------------------------------------------------------------------------- columns

TYPES = {
    "int16": "float32",
    "uint8": "float32",
    "bool": "float32",
    "float32": "float32",
    "int64": "float64",
}


@pytest.mark.parametrize("kind", ["pandas", "polars"])
@pytest.mark.parametrize("dtype", TYPES)
def test_columns_of_a_type(kind: str, dtype: str) -> None:
    values = X.astype(dtype)
    frame = package(kind).DataFrame(dict(zip(GENES, values, strict=True)))
    made = sparse_svd(frame, 3, n_transforms=40)
    assert made.dtype == TYPES[dtype]
    assert differences(made, sparse_svd(values, 3, n_transforms=40)) == []


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_columns_of_several_types(kind: str) -> None:
    columns: dict[str, Any] = dict(zip(GENES, X, strict=True))
    columns |= {"gene 0": X[0] > 3, "gene 1": X[1].astype(np.int8)}
    columns |= {"gene 2": X[2].astype(np.float32)}
    made = sparse_pca(package(kind).DataFrame(columns), 3, max_fill=0.4)
    expected = np.array([column.astype(float) for column in columns.values()])
    assert changed(made, sparse_pca(expected, 3, max_fill=0.4)) == []


@pytest.mark.parametrize("kind", ["pandas", "polars"])
@pytest.mark.parametrize("values", [list("abcdefghi") * 12, [None, 1j] * 54])
def test_columns_that_are_not_numbers(kind: str, values: list[Any]) -> None:
    columns = dict(zip(GENES, X, strict=True)) | {"text": np.array(values[:SAMPLES])}
    frame = package(kind).DataFrame(columns)
    with pytest.raises(SourceError, match=r"column 'text' of the DataFrame holds .*leave it out"):
        sparse_pca(frame, 3)


def test_missing_values_are_named() -> None:
    polars, pandas = package("polars"), package("pandas")
    for frame in (
        polars.DataFrame({"a": [1, 2, 3], "b": [4, None, 6], "c": [True, False, True]}),
        pandas.DataFrame({"a": [1, 2, 3], "b": [4, None, 6]}).astype("Int64"),
        pandas.DataFrame({"a": [1, 2, 3], "b": [4, None, 6]}),
    ):
        with pytest.raises(SourceError, match="holds NaN at feature 1, sample 1"):
            sparse_pca(frame, 1)


def test_columns_without_names() -> None:
    pandas = package("pandas")
    assert sparse_pca(pandas.DataFrame(X.T), 3).feature_names is None
    several = pandas.MultiIndex.from_product([["a", "b", "c"], [1, 2, 3]])
    made = sparse_pca(pandas.DataFrame(X.T, columns=several), 3)
    assert list(made.feature_names)[:4] == ["a,1", "a,2", "a,3", "b,1"]


# ------------------------------------------------------------------------------ other features

OTHERS: list[tuple[Callable[[Path], Any], dict[str, Any]]] = [
    (lambda folder: pandas_frame(folder)[[*GENES[1:], GENES[0]]], {}),
    (lambda folder: polars_frame(folder).select(*GENES[1:], GENES[0]), {}),
    (lambda folder: data_array(folder).roll(gene=-1, roll_coords=True), {"sample_axis": 1}),
    (lambda folder: anndata_csr(folder)[:, [*GENES[1:], GENES[0]]], {}),
]


@pytest.mark.parametrize(("make", "options"), OTHERS)
def test_features_in_another_order(
    make: Callable[[Path], Any], options: dict[str, Any], tmp_path: Path
) -> None:
    made = sparse_pca(pandas_frame(tmp_path), 3)
    for work in (made.transform, made.accuracy):
        with pytest.raises(OptionError, match="feature 0 is 'gene 1', not 'gene 0'"):
            work(make(tmp_path), **options)


def test_what_the_fit_says_holds_for_other_kinds(tmp_path: Path) -> None:
    """Samples are where the fit had them, unless a table or AnnData says itself where they are."""
    columns, rows = sparse_pca(X, 3), sparse_pca(X.T, 3, sample_axis=0)
    expected = columns.transform(X)
    named_dims = sparse_pca(data_array(tmp_path), 3, sample_dim="cell")
    for made in (columns, rows, named_dims):
        np.testing.assert_array_equal(made.transform(pandas_frame(tmp_path)).T, expected)
        np.testing.assert_array_equal(made.transform(anndata(tmp_path)).T, expected)
    np.testing.assert_array_equal(columns.transform(data_array(tmp_path)), expected)
    np.testing.assert_array_equal(rows.transform(data_array_rows(tmp_path)).T, expected)
    np.testing.assert_array_equal(named_dims.transform(data_array_rows(tmp_path)).T, expected)
    np.testing.assert_array_equal(named_dims.transform(X), expected)


# ----------------------------------------------------------------------------- named dimensions


def cube() -> Any:
    """(band, y, x): five bands of images."""
    values = normal(5, 12 * 7).cumsum(axis=0).reshape(5, 12, 7)
    coords = {"band": [450.0, 550.0, 650.0, 750.0, 850.0], "y": np.arange(12) * 30}
    return package("xarray").DataArray(values, coords, ("band", "y", "x"), "cube")


@pytest.mark.parametrize("order", [("band", "y", "x"), ("y", "x", "band"), ("x", "band", "y")])
@pytest.mark.parametrize("chunks", [None, {"y": 5, "x": 3}])
def test_pixels_as_samples(order: tuple[str, ...], chunks: dict[str, int] | None) -> None:
    """Several dimensions of samples, in any order in memory."""
    x = cube().transpose(*order)
    if chunks is not None:
        x = x.chunk(chunks)
    made = sparse_pca(x, 2, max_fill=0.8, sample_dim=("y", "x"))
    expected = sparse_pca(cube().values.reshape(5, -1), 2, max_fill=0.8)
    assert changed(made, expected) == []
    scores = made.to_xarray(x).scores
    assert scores.dims == ("component", "y", "x")
    np.testing.assert_array_equal(scores.y, cube().y)
    np.testing.assert_array_equal(
        scores.values.reshape(2, -1), expected.transform(cube().values.reshape(5, -1))
    )


def test_images_as_samples(tmp_path: Path) -> None:
    """Several dimensions of features: components are images again, also when loaded."""
    x = cube().rename(band="time")
    x["time"] = np.array(
        ["2026-01-01", "2026-01-02", "2026-01-05", "2026-02-01", "2026-02-03"], "M8[ns]"
    )
    made = sparse_pca(x, 3, sample_dim="time")
    assert made.n_features == 84
    assert made.feature_names is None  # x has no coordinates
    assert list(made.sample_names)[2] == "2026-01-05T00:00:00.000000000"
    made.save(tmp_path / "r")
    for result in (made, SVDResult.load(tmp_path / "r")):
        dataset = result.to_xarray(x)
        assert dataset.components.dims == ("component", "y", "x")
        assert dataset["mean"].shape == (12, 7)
        np.testing.assert_allclose(dataset["mean"], x.mean("time"), atol=1e-14)
        assert dataset.scores.dims == ("component", "time")
        np.testing.assert_array_equal(dataset.time, x.time)
        np.testing.assert_array_equal(dataset.y, x.y)
        rebuilt = (dataset.scores * dataset.components).sum("component") + dataset["mean"]
        assert rebuilt.transpose("time", "y", "x").shape == x.shape
        np.testing.assert_array_equal(
            dataset.components.values.reshape(3, -1), result.components.toarray()
        )
        np.testing.assert_array_equal(dataset.explained_variance, made.explained_variance)
        np.testing.assert_array_equal(result.sample_names, made.sample_names)


def test_xarray_without_names() -> None:
    package("xarray")
    made = sparse_svd(X, 3, n_transforms=40, normalize="features")
    dataset = made.to_xarray()
    assert dataset.components.dims == ("component", "feature")
    np.testing.assert_array_equal(dataset.scale, made.scale)
    np.testing.assert_array_equal(dataset.singular_values, made.singular_values)
    with_scores = made.to_xarray(X)
    np.testing.assert_array_equal(with_scores.scores, made.transform(X))


def test_zarr_arrays_with_named_dimensions(tmp_path: Path) -> None:
    for zarr_format, options, attributes in (
        (3, {"dimension_names": ["cell", "gene"]}, {}),
        (2, {"fill_value": None}, {"_ARRAY_DIMENSIONS": ["cell", "gene"]}),
    ):
        path = write_zarr(
            tmp_path / str(zarr_format),
            X.T,
            (13, 4),
            zarr_format=zarr_format,
            attributes=attributes,
            **options,
        )
        made = sparse_pca(path, 3, sample_dim="cell")
        assert changed(made, sparse_pca(X, 3)) == []
        assert made.to_xarray(path).scores.dims == ("component", "cell")
        with pytest.raises(OptionError, match=r"'time' is not a dimension of .*'cell' and 'gene'"):
            sparse_pca(path, 3, sample_dim="time")
    with pytest.raises(OptionError, match="no names of dimensions: pass sample_axis="):
        sparse_pca(write_zarr(tmp_path / "x", X), 3, sample_dim="cell")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "'band', 'y', 'x': name that of the samples"),
        ({"sample_axis": 1}, "'band', 'y', 'x': name that of the samples"),
        ({"sample_dim": "time"}, "sample_dim='time' must be among .* 'band', 'y', 'x'"),
        ({"sample_dim": ["y", "y"]}, "must be among"),
        ({"sample_dim": []}, "must be among"),
        ({"sample_dim": ("x", "y", "band")}, "leaves no dimension for the features"),
        ({"sample_dim": "y", "sample_axis": 0}, "not both"),
        ({"sample_dim": "y", "layer": "raw"}, "layer='raw' is for an AnnData"),
    ],
)
def test_dimensions_are_checked(options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        sparse_pca(cube(), 2, **options)


# -------------------------------------------------------------------------------------- AnnData


def test_results_in_anndata(tmp_path: Path) -> None:
    """Scores, loadings and variances where Scanpy looks for them; written and read again."""
    made = anndata_csr(tmp_path)
    some = made[:, GENES[2:]]
    result = sparse_pca(some, 3, max_fill=0.4)
    assert result.to_anndata(made) is made
    np.testing.assert_array_equal(made.obsm["X_pca"], result.transform(some))
    loadings = made.varm["PCs"]
    np.testing.assert_array_equal(loadings[2:].T, result.components.toarray())
    assert np.all(loadings[:2] == 0)
    again = package("anndata").read_zarr(written(made, tmp_path))
    found = again.uns["pca"]
    np.testing.assert_array_equal(found["variance"], result.explained_variance)
    np.testing.assert_array_equal(found["variance_ratio"], result.explained_variance_ratio)
    assert found["params"]["max_fill"] == 0.4
    np.testing.assert_array_equal(again.varm["PCs"], loadings)
    result.to_anndata(again)  # its own are replaced
    sparse_pca(made, 3, layer="doubled").to_anndata(made, key="twice")
    assert made.obsm["X_twice"].shape == (SAMPLES, 3)
    with pytest.raises(OptionError, match=r"2 feature\(s\) of the fit are not among.*gene 0"):
        sparse_pca(made, 3).to_anndata(some)


@pytest.mark.filterwarnings("ignore")  # what AnnData says of its own formats is no test of ours
def test_results_in_stored_anndata(zarr_format: int, tmp_path: Path) -> None:
    """Added to the store, beside what is there, and found by AnnData with its metadata."""
    made = anndata_csr(tmp_path)
    path = written(made, tmp_path, zarr_format)
    result = sparse_pca(path, 3, layer="doubled")
    for _ in range(2):  # replaced the second time
        assert result.to_anndata(path, key="twice") == path
    again = package("anndata").read_zarr(path)
    result.to_anndata(made, key="twice")
    np.testing.assert_array_equal(again.obsm["X_twice"], made.obsm["X_twice"])
    np.testing.assert_array_equal(again.varm["twice"].toarray(), made.varm["twice"].toarray())
    assert again.uns["twice"]["params"]["layer"] == "doubled"
    np.testing.assert_array_equal(again.X.toarray(), X.T)
    assert list(again.obs_names) == CELLS
    with pytest.raises(OptionError, match="7 features, the fit had 9"):
        result.to_anndata(written(made[:, :7].copy(), tmp_path / "other"))


def test_results_of_other_kinds_in_anndata(tmp_path: Path) -> None:
    """A fit without names fits an AnnData with as many variables."""
    made = anndata(tmp_path)
    result = sparse_pca(X, 3)
    result.to_anndata(made)
    np.testing.assert_array_equal(made.obsm["X_pca"].T, result.transform(X))


@pytest.mark.filterwarnings("ignore")
def test_another_pca_in_anndata_is_not_replaced(tmp_path: Path) -> None:
    """In memory and in a store; beside it there is room."""
    made, theirs = anndata(tmp_path), np.ones((SAMPLES, 2))
    made.obsm["X_pca"], made.uns["pca"] = theirs, {"params": {"zero_center": True}}
    result = sparse_pca(made, 3)
    path = written(made, tmp_path / "stored")
    for place in (made, path):
        with pytest.raises(OptionError, match=r"another PCA in obsm\['X_pca'\]; delete that"):
            result.to_anndata(place)
        result.to_anndata(place, key="sparse_pca")
    again = package("anndata").read_zarr(path)
    for one in (made, again):
        np.testing.assert_array_equal(one.obsm["X_pca"], theirs)
        np.testing.assert_array_equal(one.obsm["X_sparse_pca"], result.transform(made))
    del made.obsm["X_pca"]
    assert result.to_anndata(made).uns["pca"]["params"]["n_components"] == 3


@pytest.mark.parametrize("make", [anndata, anndata_view])
def test_anndata_options(make: Callable[[Path], Any], tmp_path: Path) -> None:
    made = make(tmp_path)
    with pytest.raises(OptionError, match="layer='none' is not among the layers"):
        sparse_pca(made, 3, layer="none")
    with pytest.raises(OptionError, match="sample_dim='obs' is for data with named dimensions"):
        sparse_pca(made, 3, sample_dim="obs")
    with pytest.raises(OptionError, match="layer='counts' is for an AnnData, not for"):
        sparse_pca(X, 3, layer="counts")
    empty = package("anndata").AnnData(obs=made.obs, var=made.var)
    for source in (empty, empty[:50]):
        with pytest.raises(SourceError, match="no X; name one of its layers"):
            sparse_pca(source, 3)


def test_anndata_in_zarr_that_is_not_whole(tmp_path: Path) -> None:
    path = written(anndata_csr(tmp_path), tmp_path)
    (path / ".zmetadata").unlink()
    group = zarr.open_group(path, mode="r+")
    group["var"].attrs["_index"] = "lost"
    assert sparse_pca(path, 3).feature_names is None
    group["var"].create_array("lost", data=np.arange(4))
    with pytest.raises(SourceError, match="4 names for 9 features"):
        sparse_pca(path, 3)
    del group["X"]
    with pytest.raises(SourceError, match="has no X; layer= can be one of: doubled"):
        sparse_pca(path, 3)


# -------------------------------------------------------------------------------- other kinds


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: polars_frame(folder).lazy(), r"cannot read LazyFrame: collect\(\)"),
        (lambda folder: pandas_frame(folder)["gene 1"], "the Series has shape"),
    ],
)
def test_kinds_with_a_remedy(make: Callable[[Path], Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=words):
        sparse_pca(make(tmp_path), 2)


def test_a_zip_that_changed_is_another_source(tmp_path: Path) -> None:
    """A run is not resumed on data that are no longer the same."""
    path = zip_store(tmp_path)
    options = {"workspace": tmp_path / "run", "center": "features"}
    first = sparse_svd(path, 3, n_transforms=10, **options)
    more = sparse_svd(path, 3, n_transforms=20, resume=True, **options)
    assert differences(more.at(10), first.at(10), path_only=True) == []
    path.unlink()
    with ZipStore(path, mode="w") as store:
        zarr.create_array(store, data=X + 1, chunks=(4, 13))
    with pytest.raises(OptionError, match="source"):
        sparse_svd(path, 3, n_transforms=30, resume=True, **options)


# --------------------------------------------------------------------------------------- memory


IN_MEMORY = [name for name in NAMED if not name.endswith(("Dask", "Zarr", "backed"))]
"""Kinds without small chunks or row pointers on disk, larger than these data when held."""


@pytest.mark.parametrize("name", [*IN_MEMORY, "CSR", "CSC", "npy", "HDF5"])
def test_no_more_than_a_strip_is_copied(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NumPy's and SciPy's allocations while all samples are read are a few strips at any time.

    The least of three readings: on a busy machine other threads and the collector have a share.
    """
    wide = np.tile(X, 100)
    monkeypatch.setitem(globals(), "X", wide)
    monkeypatch.setitem(globals(), "SAMPLES", wide.shape[1])
    monkeypatch.setitem(globals(), "CELLS", [f"cell {i}" for i in range(wide.shape[1])])
    make, options = (NAMED | NAMELESS)[name]
    source = open_data(make(tmp_path), Ask(options.get("sample_axis"), options.get("sample_dim")))
    reader = StripReader(source, np.dtype(np.float64), width=500)
    assert sum(strip.shape[1] for _, strip in reader) == wide.shape[1]
    peaks = []
    tracemalloc.start()
    try:
        for _ in range(3):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            for _, strip in reader:
                assert strip.shape[0] == N
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    assert min(peaks) < wide.nbytes / 3, peaks


def test_a_view_of_anndata_is_not_copied() -> None:
    """Neither when it is opened nor when it is read; its `X` would be a copy."""
    package("pandas")
    made = package("anndata").AnnData(np.ones((3000, 2000)))
    view = made[np.arange(3000) % 6 > 0, np.arange(2000) % 4 > 0]
    assert view.is_view
    tracemalloc.start()
    try:
        source = open_data(view, Ask())
        for _, strip in StripReader(source, np.dtype(np.float64), width=50):
            assert strip.shape == (1500, 50)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2500 * 1500 * 8 / 4, peak
