"""Packed numbers, masks and what was never written: values as in xarray, or named; not data."""

import json
import shutil
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import naive
import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from helpers import differences, normal, write_zarr
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from test_sparse_pca import changed

from streamsvd import (
    OptionError,
    SourceError,
    SparseSVD,
    StreamingSparsePCA,
    SVDResult,
    sparse_pca,
    sparse_svd,
)
from streamsvd.cli.commands import main
from streamsvd.data.kinds import open_data
from streamsvd.data.packing import packing_of
from streamsvd.options import Ask
from streamsvd.options.rules import working_dtype

xr = pytest.importorskip("xarray")
h5py = pytest.importorskip("h5py")

pytestmark = pytest.mark.usefixtures("narrow_strips", "serial_dask")

N, SAMPLES = 9, 101
FIT: dict[str, Any] = {"n_transforms": 40, "center": "features"}


def numbers(dtype: str = "int16") -> np.ndarray:
    """(N, SAMPLES) stored numbers, none of which is 0 or the largest of the type."""
    X = normal(N, SAMPLES) * np.linspace(5, 20, N)[:, None]
    if np.dtype(dtype).kind == "f":
        return X.astype(dtype)
    whole = np.clip(np.round(X), -99, 99).astype(int)
    return (whole + 100 if np.dtype(dtype).kind == "u" else np.where(whole, whole, 1)).astype(dtype)


def write(path: Path, X: np.ndarray, attributes: dict[str, Any], **options: Any) -> Path:
    return write_zarr(path, X, (4, 13), attributes=attributes, **options)


def all_of(x: Any, **asked: Any) -> np.ndarray:
    """The values that a source gives, in its own type."""
    source = open_data(x, Ask(1, **asked))
    return source.read(0, source.n_samples, source.dtype)


def as_xarray(X: np.ndarray, attributes: dict[str, Any]) -> np.ndarray:
    """The values that xarray decodes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of several fill values
        variable = xr.Variable(("y", "t"), X, attributes)
        return xr.conventions.decode_cf_variable("x", variable).values


def fit(x: Any, **options: Any) -> SVDResult:
    return sparse_svd(x, 3, **(FIT | options))


# ---------------------------------------------------------------------------- as xarray does

WRITTEN: dict[str, dict[str, Any]] = {
    "scale": {"dtype": "int16", "scale_factor": 0.01},
    "whole scale": {"dtype": "int16", "scale_factor": 2.0},
    "offset": {"dtype": "int16", "add_offset": 273.15},
    "both": {"dtype": "int16", "scale_factor": 0.01, "add_offset": 273.15},
    "both, int32": {"dtype": "int32", "scale_factor": 1e-4, "add_offset": -7.0},
    "fill": {"dtype": "int16", "_FillValue": -999},
    "missing": {"dtype": "int32", "missing_value": -999},
    "all": {"dtype": "int16", "scale_factor": 0.01, "add_offset": 273.15, "_FillValue": -32768},
    "bytes": {"dtype": "uint8", "scale_factor": 0.5, "add_offset": -3.0, "_FillValue": 255},
    "unsigned": {"dtype": "int8", "_Unsigned": "true", "scale_factor": 0.5, "_FillValue": -1},
    "float": {"dtype": "float32", "_FillValue": -9999.0},
    "NaN": {"dtype": "float64", "_FillValue": np.nan},
    "scaled float": {"dtype": "float32", "scale_factor": 0.1, "_FillValue": np.nan},
    "plain": {"dtype": "float32"},
}
"""Encodings of xarray; it writes `_FillValue` as base64, as a number, and as Zarr's fill value."""


def dataset(folder: Path, name: str, zarr_format: int, with_gaps: bool) -> Path:
    """What xarray writes."""
    encoding = WRITTEN[name] | {"chunks": (4, 13)}
    is_unsigned = np.dtype(encoding["dtype"]).kind == "u" or "_Unsigned" in encoding
    X = np.round(normal(N, SAMPLES) * np.linspace(5, 20, N)[:, None]).clip(-99, 99)
    X = (X + 100 if is_unsigned else X) * encoding.get("scale_factor", 1)
    X += encoding.get("add_offset", 0)
    if with_gaps:
        X[2, 5] = X[:, 40] = X[7, 100] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it makes of its own encodings
        made = xr.DataArray(X, dims=("y", "t")).to_dataset(name="x")
        where: dict[str, Any] = {"zarr_format": zarr_format, "consolidated": False}
        made.to_zarr(folder / name, encoding={"x": encoding}, **where)
    return folder / name / "x"


def opened(path: Path) -> Any:
    """The DataArray of an array that xarray wrote."""
    return xr.open_zarr(path.parent, chunks=None, consolidated=False)[path.name]


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("name", WRITTEN)
def test_a_path_is_the_data_array(name: str, zarr_format: int, tmp_path: Path) -> None:
    """The same type, and the same bits of fits; samples as columns and as rows."""
    path = dataset(tmp_path, name, zarr_format, with_gaps=False)
    array = opened(path)
    assert all_of(path).dtype == array.dtype
    np.testing.assert_array_equal(all_of(path), array.values)
    for axis in (0, 1):
        made = fit(path, sample_axis=axis)
        assert differences(made, fit(array, sample_axis=axis)) == []
        assert made.dtype == fit(array.values, sample_axis=axis).dtype
    reduced = sparse_pca(path, 3, max_fill=0.5)
    assert changed(reduced, sparse_pca(array, 3, max_fill=0.5, sample_axis=1)) == []
    np.testing.assert_array_equal(reduced.transform(path), reduced.transform(array))


GAPS = [name for name in WRITTEN if "FillValue" in str(WRITTEN[name]) or name == "missing"]


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("name", GAPS)
def test_gaps_are_those_of_the_data_array(name: str, zarr_format: int, tmp_path: Path) -> None:
    path = dataset(tmp_path, name, zarr_format, with_gaps=True)
    array = opened(path)
    assert np.isnan(array.values).sum() == N + 2
    np.testing.assert_array_equal(all_of(path), array.values)
    with pytest.raises(SourceError, match="feature 2, sample 5") as raised:
        sparse_pca(path, 3)
    (code,) = (key for key in ("_FillValue", "missing_value") if key in WRITTEN[name])
    is_nan = WRITTEN[name][code] != WRITTEN[name][code]
    assert ("holds NaN" if is_nan else f"its {code})") in str(raised.value)


def test_a_fill_value_of_zarr_alone_means_nothing(tmp_path: Path) -> None:
    """Zarr writes 0 by itself: zeros of counts are data, unless xarray wrote them as missing."""
    X = numbers("uint8")
    X[3, 4] = 0
    for zarr_format in (2, 3):
        path = write(tmp_path / str(zarr_format), X, {}, fill_value=0, zarr_format=zarr_format)
        assert open_data(path, Ask()).packing is None
        assert differences(fit(path), fit(X)) == []
    dims = {"_ARRAY_DIMENSIONS": ["y", "t"]}
    path = write(tmp_path / "none", X, dims, fill_value=None, zarr_format=2)
    assert differences(fit(path), fit(X)) == []
    path = write(tmp_path / "zero", X, dims, fill_value=0, zarr_format=2)
    with pytest.raises(SourceError, match=r"missing value \(0, its _FillValue\) at feature 3, sam"):
        fit(path)
    assert differences(fit(path, decode=False), fit(X)) == []


def test_an_array_that_is_not_packed_is_read_as_before(tmp_path: Path) -> None:
    """Attributes that say nothing of numbers, or that all of them are values."""
    about = {"units": "K", "long_name": "temperature", "valid_range": [-32768, 32767]}
    for attributes in ({}, about, {"_FillValue": None}, {"missing_value": 1e20}):
        path = write(tmp_path / str(len(attributes)), numbers(), attributes)
        assert open_data(path, Ask()).packing is None
        assert differences(fit(path), fit(numbers())) == []
        shutil.rmtree(path)


# ------------------------------------------------------------------------------- the attributes

SINGLE, DOUBLE = np.float32, np.float64
ATTRIBUTES: list[tuple[str, dict[str, Any]]] = [
    ("int16", {"scale_factor": SINGLE(0.01), "add_offset": SINGLE(1.5)}),
    ("int16", {"scale_factor": SINGLE(0.01), "add_offset": DOUBLE(1.5)}),
    ("int32", {"scale_factor": SINGLE(0.01), "add_offset": SINGLE(1.5)}),
    ("int64", {"scale_factor": SINGLE(0.01), "add_offset": SINGLE(1.5)}),
    ("int16", {"scale_factor": SINGLE(0.01)}),
    ("int16", {"add_offset": SINGLE(1.5)}),
    ("int16", {"scale_factor": DOUBLE(0.01), "_FillValue": np.int16(7)}),
    ("uint8", {"_FillValue": np.uint8(101), "missing_value": np.uint8(99)}),
    ("int16", {"missing_value": np.array([5, 6, 7], "i2")}),
    ("int8", {"_Unsigned": "true", "_FillValue": np.int8(-5)}),
    ("uint8", {"_Unsigned": "false", "scale_factor": SINGLE(2)}),
    ("float32", {"missing_value": SINGLE(numbers("float32")[3, 4])}),
    ("float64", {"scale_factor": 3.0, "add_offset": 2, "_FillValue": np.nan}),
    ("float16", {"_FillValue": np.nan}),
    (">i2", {"scale_factor": 0.1, "_FillValue": 7}),
]


def h5_file(folder: Path) -> Any:
    return h5py.File(folder / "x.h5", "w")


@pytest.mark.parametrize(("dtype", "attributes"), ATTRIBUTES)
def test_a_dataset_of_hdf5_is_that_of_xarray(
    dtype: str, attributes: dict[str, Any], tmp_path: Path
) -> None:
    """Attributes have types there, which decide that of the values; netCDF writes rows of one."""
    X = numbers(dtype)
    expected = as_xarray(X, attributes)
    with h5_file(tmp_path) as file:
        for k, form in enumerate((lambda value: value, np.atleast_1d)):
            data = file.create_dataset(str(k), data=X, chunks=(4, 13))
            for key, value in attributes.items():
                text = isinstance(value, str)
                data.attrs[key] = np.bytes_(value) if text and k else value if text else form(value)
            found = all_of(data)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
            if not np.isnan(expected).any():
                assert differences(fit(data), fit(expected)) == []
            raw = all_of(data, decode=False)
            np.testing.assert_array_equal(raw, X)


BEYOND: list[tuple[str, dict[str, Any], Callable[[np.ndarray], np.ndarray]]] = [
    ("int16", {"valid_range": [-30, 20]}, lambda X: (X < -30) | (X > 20)),
    ("int16", {"valid_min": -30.0, "scale_factor": 0.1}, lambda X: X < -30),
    ("int16", {"valid_max": 20, "add_offset": 9}, lambda X: X > 20),
    ("int16", {"valid_range": [-30, 9e9], "valid_max": 50}, lambda X: (X < -30) | (X > 50)),
    ("int8", {"valid_range": [0, -2], "_Unsigned": "true"}, lambda X: X.view("u1") > 254),
    ("int8", {"missing_value": -1, "_Unsigned": "true"}, lambda X: X == -1),
    ("int8", {"_FillValue": 255, "_Unsigned": "true"}, lambda X: X == -1),
    ("float32", {"valid_min": 0.1}, lambda X: np.float32(0.1) > X),
    ("float32", {"_FillValue": 1e20}, lambda X: np.float32(1e20) == X),
    ("float64", {"valid_max": "5.5"}, lambda X: X > 5.5),
    ("float64", {"valid_range": [-1e308, float("inf")]}, lambda X: X < -1e308),
    ("bool", {"_FillValue": True}, lambda X: X),
]
"""Where more is missing than xarray says, as netCDF4 and the conventions do."""


@pytest.mark.parametrize(("dtype", "attributes", "where"), BEYOND)
def test_what_is_missing_beyond_xarray(
    dtype: str, attributes: dict[str, Any], where: Callable[[np.ndarray], np.ndarray]
) -> None:
    X = numbers(dtype if dtype != "bool" else "int8")
    X = X > 0 if dtype == "bool" else X
    if dtype == "float32":
        X[2, 3], X[4, 5] = 0.1, 1e20  # equal to an attribute, as far as the type can tell
    packing = packing_of(attributes, X.dtype, "x")
    if packing is None:
        assert not where(X).any()
        return
    found = packing.decode(X)
    np.testing.assert_array_equal(np.isnan(found), where(X))
    assert all(packing.why(number) for number in X[where(X)])
    assert not any(packing.why(number) for number in X[~where(X)])
    scaled = X.astype(found.dtype) * attributes.get("scale_factor", 1)
    scaled += attributes.get("add_offset", 0)
    if "_Unsigned" not in attributes:
        np.testing.assert_array_equal(found[~where(X)], scaled[~where(X)])


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("int16", {"scale_factor": "0.01"}, "scale_factor='0.01' is not a finite number"),
    ("int16", {"scale_factor": float("nan")}, "scale_factor=nan is not a finite number"),
    ("int16", {"scale_factor": True}, "scale_factor=True is not a finite number"),
    ("int16", {"scale_factor": 0}, "scale_factor=0 makes all values equal"),
    ("int16", {"scale_factor": [1.0, 2.0]}, r"scale_factor=\[1.0, 2.0\] has 2 values; need one"),
    ("int16", {"scale_factor": {"a": 1}}, "scale_factor={'a': 1} is not a finite number"),
    ("int16", {"add_offset": []}, r"add_offset=\[\] has 0 values"),
    ("int16", {"add_offset": float("inf")}, "add_offset=inf is not a finite number"),
    ("int16", {"add_offset": 10**400}, "add_offset=1000.* is not a finite number"),
    ("int16", {"_FillValue": "none"}, "_FillValue='none' is no number"),
    ("float32", {"_FillValue": "AAAA!AAAAAA="}, "_FillValue='AAAA!AAAAAA=' is no number"),
    ("int16", {"missing_value": [1, None]}, r"missing_value=\[1, None\] is no number"),
    ("int16", {"valid_range": [1]}, r"valid_range=1 has 1 values; need 2"),
    ("int16", {"valid_range": [9, 3]}, r"valid_range=\[9, 3\] leaves no number of int16 valid"),
    ("int16", {"valid_range": [70000, 90000]}, "valid_range=.* leaves no number of int16 valid"),
    ("int16", {"valid_min": 99.5}, "valid_min=99.5 is not in the units of the packed int16"),
    ("float32", {"valid_min": float("nan")}, "valid_min=nan is not a number"),
    ("float32", {"valid_min": 1e300}, "valid_min=.* leaves no number of float32 valid"),
    ("int16", {"_Unsigned": "maybe"}, """_Unsigned='maybe' is neither "true" nor "false\""""),
]


@pytest.mark.parametrize(("dtype", "attributes", "words"), WRONG)
def test_attributes_that_make_no_sense(
    dtype: str, attributes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    """Said before any work, with the remedy, which works."""
    path = write(tmp_path / "x.zarr", numbers(dtype), attributes)
    with pytest.raises(SourceError, match=rf"x\.zarr: attribute {words}.*decode=False"):
        fit(path)
    assert differences(fit(path, decode=False), fit(numbers(dtype))) == []


# ------------------------------------------------------------------------------- against the twin

WHOLE = ("int8", "uint8", "int16", "uint16", "int32")


@st.composite
def packed(draw: st.DrawFn) -> tuple[np.ndarray, dict[str, Any]]:
    """Stored numbers, and attributes that make sense for them."""
    dtype = np.dtype(draw(st.sampled_from(WHOLE)))
    ends = np.iinfo(dtype)
    some = st.integers(int(ends.min), int(ends.max))
    listed = draw(st.lists(some, min_size=6, max_size=6))
    factors = st.floats(-1e6, 1e6).filter(lambda one: abs(one) > 1e-6)
    attributes: dict[str, Any] = {}
    for key, values in (
        ("scale_factor", factors),
        ("add_offset", factors),
        ("_FillValue", st.sampled_from(listed)),
        ("missing_value", some),
    ):
        if draw(st.booleans()):
            attributes[key] = draw(values)
    if dtype.kind == "i" and draw(st.booleans()):
        attributes["_Unsigned"] = "true"
    if draw(st.booleans()):
        is_unsigned = "_Unsigned" in attributes
        order = (lambda one: one % 2 ** (8 * dtype.itemsize)) if is_unsigned else int
        attributes["valid_range"] = sorted(draw(st.tuples(some, some)), key=order)
    return np.array(listed, dtype).reshape(2, 3), attributes


@given(packed())
def test_decoding_is_that_of_the_twin(case: tuple[np.ndarray, dict[str, Any]]) -> None:
    X, attributes = case
    expected = naive.unpacked(X, attributes)
    packing = packing_of(attributes, X.dtype, "x")
    found = X.astype(float) if packing is None else packing.decode(X)
    np.testing.assert_array_equal(found, expected.astype(found.dtype))
    if packing is not None:
        told = [bool(packing.why(number)) for number in X.ravel()]
        assert told == np.isnan(expected).ravel().tolist()


@given(packed())
def test_decoding_is_that_of_xarray(case: tuple[np.ndarray, dict[str, Any]]) -> None:
    """With what xarray knows of: no bounds, codes of the stored type."""
    X, attributes = case
    attributes = {k: v for k, v in attributes.items() if k != "valid_range"}
    if "_Unsigned" in attributes:
        attributes.pop("missing_value", None)
    expected = as_xarray(X, dict(attributes))
    packing = packing_of(attributes, X.dtype, "x")
    found = X if packing is None else packing.decode(X)
    if expected.dtype.kind == "f":  # numbers without a sign stay whole there
        assert found.dtype == expected.dtype
    assert working_dtype(found.dtype) == working_dtype(expected.dtype)
    np.testing.assert_array_equal(found, expected)


# --------------------------------------------------------------------------- everywhere the same

SCALED = {"scale_factor": 0.25, "add_offset": -7.0, "_FillValue": -999, "valid_range": [-300, 300]}


def values() -> np.ndarray:
    return numbers().astype(float) * 0.25 - 7.0


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write(tmp_path / "x.zarr", numbers(), SCALED)


@pytest.fixture
def gaps(tmp_path: Path) -> Path:
    X = numbers()
    X[4, 60], X[5, 70] = -999, 301
    return write(tmp_path / "gaps.zarr", X, SCALED)


def test_all_ways_to_the_same_array(store: Path, tmp_path: Path) -> None:
    expected = fit(values())
    root = zarr.create_group(tmp_path / "group")
    root.create_array("x", data=numbers(), chunks=(4, 13), attributes=SCALED)
    for x in (str(store), zarr.open_array(store, mode="r"), tmp_path / "group" / "x"):
        assert differences(fit(x), expected) == []
    shards: dict[str, Any] = {"chunks": (N, 5), "shards": (N, 20), "compressors": "auto"}
    sharded = write_zarr(tmp_path / "s.zarr", numbers(), attributes=SCALED, **shards)
    assert differences(fit(sharded), expected) == []


def test_results_read_as_the_fit_did(store: Path, tmp_path: Path) -> None:
    """Also one that was saved, and one from before there was `decode`, of stored numbers."""
    for decode, X in ((True, values()), (False, numbers())):
        made, expected = fit(store, decode=decode), fit(X)
        assert differences(made, expected) == []
        made.save(tmp_path / "result", overwrite=True)
        loaded = SVDResult.load(tmp_path / "result")
        for one in (made, loaded):
            assert one.settings["decode"] is decode
            np.testing.assert_array_equal(one.transform(store), expected.transform(X))
            assert one.accuracy(store).captured_variance == one.accuracy(X).captured_variance
            other = values() if not decode else numbers()
            again = one.transform(store, decode=not decode)
            np.testing.assert_array_equal(again, expected.transform(other))
    loaded.settings.pop("decode")
    np.testing.assert_array_equal(loaded.transform(store), expected.transform(numbers()))
    refined, other = fit(store).refine(store, max_fill=0.5), fit(values())
    assert changed(refined, other.refine(values(), max_fill=0.5)) == []


MODELS = [SparseSVD(3, **FIT), StreamingSparsePCA(3, max_fill=0.5)]


@pytest.mark.parametrize("model", MODELS, ids=["svd", "pca"])
def test_estimators_are_the_functions(model: Any, store: Path, gaps: Path) -> None:
    model = clone(model).set_params(sample_axis=1)
    for decode, X in ((True, values()), (False, numbers())):
        made = clone(model).set_params(decode=decode).fit(store)
        expected = clone(model).fit(X.T)
        np.testing.assert_array_equal(made.components_, expected.components_)
        np.testing.assert_array_equal(made.transform(store), expected.transform(X.T))
        assert made.score(store) == expected.score(X.T)
    for call in (clone(model).fit, model.fit(store).transform):
        with pytest.raises(SourceError, match=r"\(-999, its _FillValue\) at feature 4, sample 60"):
            call(gaps)
    if isinstance(model, StreamingSparsePCA):
        batches = clone(model).partial_fit(store)
        assert changed(batches.result_, clone(model).partial_fit(values().T).result_) == []
        with pytest.raises(SourceError, match="_FillValue"):
            batches.partial_fit(gaps)


def test_missing_values_are_named_by_what_makes_them_missing(gaps: Path) -> None:
    result = fit(values())
    for call in (fit, lambda x: sparse_pca(x, 3), result.transform, result.accuracy):
        with pytest.raises(SourceError) as raised:
            call(gaps)
        for word in ("gaps.zarr", "(-999, its _FillValue)", "feature 4, sample 60", "decode=False"):
            assert word in str(raised.value)
    array = zarr.open_array(gaps, mode="r+")
    array[4, 60] = 5
    with pytest.raises(SourceError, match=r"\(301, outside of its valid range\) at feature 5, sam"):
        fit(gaps)
    array[5, 70] = 5
    assert fit(gaps).n_samples == SAMPLES


def test_a_missing_chunk_reads_as_a_missing_value(store: Path) -> None:
    """First as one that is missing; when that is allowed, as what its fill value says."""
    (store / "c" / "1" / "2").unlink()
    with pytest.raises(SourceError, match=r"chunk\(s\) are missing.*c/1/2"):
        fit(store)
    metadata = json.loads((store / "zarr.json").read_text())
    (store / "zarr.json").write_text(json.dumps(metadata | {"fill_value": -999}))
    with pytest.raises(SourceError, match=r"_FillValue\) at feature 4, sample 26"):
        fit(store, missing_chunks="fill")


def test_a_run_does_not_go_on_with_other_attributes(store: Path, tmp_path: Path) -> None:
    options = FIT | {"workspace": tmp_path / "run"}
    first = sparse_svd(store, 3, **options)
    more = options | {"n_transforms": 60, "resume": True}
    made = sparse_svd(store, 3, **more)
    assert differences(made, fit(values(), n_transforms=60)) == []
    assert differences(made.at(40), first, path_only=True) == []
    with pytest.raises(OptionError, match="another decode: True there, False now"):
        sparse_svd(store, 3, decode=False, **more)
    zarr.open_array(store, mode="r+").update_attributes({"scale_factor": 0.5})
    with pytest.raises(OptionError, match="another source"):
        sparse_svd(store, 3, **more)


def test_stored_numbers_are_not_overwritten(tmp_path: Path) -> None:
    X = numbers("float32")
    path = write_zarr(tmp_path / "x.zarr", X, (N, 13), attributes={"_FillValue": -999.0})
    with pytest.raises(OptionError, match=r"packed \(float32, _FillValue=-999.0\).*decode=False"):
        fit(path, overwrite_x=True)
    np.testing.assert_array_equal(zarr.open_array(path, mode="r")[...], X)
    assert differences(fit(path, overwrite_x=True, decode=False), fit(X)) == []


@pytest.mark.parametrize("value", [None, 1, "yes"])
def test_decode_is_a_flag(value: Any, store: Path) -> None:
    with pytest.raises(OptionError, match=f"decode must be one of False, True; got {value!r}"):
        fit(store, decode=value)
    if value is not None:  # which means: as in the fit
        with pytest.raises(OptionError, match="decode must be one of False, True"):
            fit(values()).transform(store, decode=value)


def test_anndata_in_zarr(tmp_path: Path) -> None:
    """Attributes of a part of an AnnData mean the same."""
    X, attributes = numbers(), {"encoding-type": "array", "encoding-version": "0.2.0"}
    root = zarr.create_group(tmp_path / "a.zarr", attributes={"encoding-type": "anndata"})
    root.create_array("X", data=X.T, chunks=(13, 4), attributes=attributes | SCALED)
    assert differences(fit(tmp_path / "a.zarr"), fit(values())) == []
    assert differences(fit(tmp_path / "a.zarr", decode=False), fit(X)) == []


# --------------------------------------------------------------------------------- the command


def run(*args: Any, code: int = 0) -> Any:
    result = CliRunner().invoke(main, [str(arg) for arg in args])
    assert result.exit_code == code, result.output
    return result


def test_the_command_line(store: Path, gaps: Path, tmp_path: Path) -> None:
    fitted, scores = tmp_path / "r.zarr", tmp_path / "s.zarr"
    for flags, X in (((), values()), (("--no-decode",), numbers())):
        pca = ("pca", store, "--components", 3, "--max-fill", 0.5, *flags)
        run(*pca, "--out", fitted, "--overwrite")
        expected = sparse_pca(X, 3, max_fill=0.5)
        assert changed(SVDResult.load(fitted), expected) == []
        run("transform", fitted, store, "--out", scores)
        found = zarr.open_array(scores, mode="r")[...]
        np.testing.assert_array_equal(found, expected.transform(X))
        shutil.rmtree(scores)
        run("transform", fitted, store, "--out", scores, "--no-decode")
        found = zarr.open_array(scores, mode="r")[...]
        np.testing.assert_array_equal(found, expected.transform(numbers()))
        shutil.rmtree(scores)
    run("fit", store, "--components", 2, "--out", tmp_path / "f.zarr")
    said = run("info", tmp_path / "f.zarr").stdout
    assert "int16, scale_factor=0.25, add_offset=-7.0, _FillValue=-999, valid_range=" in said
    assert "decode              True" in said
    failed = run("pca", gaps, "--components", 2, "--out", tmp_path / "g.zarr", code=1)
    assert "its _FillValue" in failed.stderr
    assert "pass --no-decode to take" in failed.stderr


# ---------------------------------------------------------------------------------------- masks


def masked(X: np.ndarray, *places: tuple[int, int]) -> np.ma.MaskedArray[Any, Any]:
    made = np.ma.MaskedArray(X.copy())
    for place in places:
        made[place] = np.ma.masked
    return made


@pytest.mark.parametrize("dtype", ["float64", "float32", "int16", "int64", "bool"])
@pytest.mark.parametrize("mask", [np.ma.nomask, np.zeros((N, SAMPLES), bool)])
def test_nothing_masked_is_a_plain_array(dtype: str, mask: Any) -> None:
    X = numbers("int64").astype(dtype) if dtype != "bool" else numbers() > 0
    made = np.ma.MaskedArray(X, mask)
    assert differences(fit(made), fit(X)) == []
    assert differences(fit(made.T, sample_axis=0), fit(X)) == []
    for model in MODELS:
        found, expected = clone(model).fit(made.T), clone(model).fit(X.T)
        np.testing.assert_array_equal(found.components_, expected.components_)
        np.testing.assert_array_equal(found.transform(made.T), expected.transform(X.T))
    structured = np.ma.zeros((N, SAMPLES), dtype=[("a", float)])
    with pytest.raises(SourceError, match="real numbers"):
        fit(structured)
    copied = made.copy()
    expected_svd = fit(X, overwrite_x=True) if dtype == "float64" else None
    if expected_svd is not None:
        assert differences(fit(copied, overwrite_x=True), expected_svd) == []


WORDS = "a masked value at feature 4, sample 60.*fill or drop the masked entries"


@pytest.mark.parametrize("dtype", ["float64", "int8", "int64"])
def test_masked_entries_are_missing_everywhere(dtype: str) -> None:
    X = numbers(dtype)
    bad = masked(X, (4, 60), (2, 80))
    before = bad.copy()
    result = fit(X)
    for call in (fit, lambda x: sparse_pca(x, 3), result.transform, result.accuracy):
        with pytest.raises(SourceError, match=WORDS):
            call(bad)
    for model in MODELS:
        calls = [clone(model).fit, clone(model).fit_transform]
        fitted = clone(model).fit(X.T)
        calls += [fitted.transform, fitted.score]
        if isinstance(model, StreamingSparsePCA):
            calls += [clone(model).partial_fit]
        for call in calls:
            with pytest.raises(SourceError, match=WORDS):
                call(bad.T)
            with pytest.raises(SourceError, match=WORDS):
                call(list(bad.T))
        scores = masked(fitted.transform(X.T), (3, 1))
        with pytest.raises(ValueError, match="contains NaN"):
            fitted.inverse_transform(scores)
    with pytest.raises(OptionError, match=r"overwrite_x=True.*masked entries"):
        fit(masked(numbers("float64"), (4, 60)), overwrite_x=True)
    np.testing.assert_array_equal(bad.mask, before.mask)
    np.testing.assert_array_equal(bad.data, before.data)


def in_blocks(X: np.ndarray, mask: np.ndarray, meta: Any, every: int = 1) -> Any:
    """A Dask array of masked blocks, or with plain ones among them; `meta` is what it says."""

    def block(part: np.ndarray, hidden: np.ndarray, block_info: Any = None) -> Any:
        place = sum(block_info[0]["chunk-location"]) if block_info else 0
        return np.ma.MaskedArray(part, hidden) if place % every == 0 else part

    chunks = (4, 13)
    parts = (da.from_array(X, chunks), da.from_array(mask, chunks))
    return da.map_blocks(block, *parts, dtype=X.dtype, meta=meta)


METAS = {"masked": np.ma.MaskedArray(np.empty((0, 0))), "plain": np.empty((0, 0))}


@pytest.mark.parametrize("meta", METAS)
@pytest.mark.parametrize("every", [1, 2])
def test_masked_blocks_of_dask(meta: str, every: int) -> None:
    """Whatever the array says that its blocks are, which may be of two kinds."""
    X, mask = numbers("float64"), np.zeros((N, SAMPLES), bool)
    made = in_blocks(X, mask, METAS[meta], every)
    assert differences(fit(made), fit(X)) == []
    mask[4, 60] = True  # in the block (1, 4)
    mask[4, 60 + 13] = True  # in the block (1, 5)
    bad = in_blocks(X, mask, METAS[meta], every)
    sample = 60 if every == 1 else 73
    words = f"the Dask array holds a masked value at feature 4, sample {sample}"
    for call in (fit, lambda x: sparse_pca(x, 3), fit(X).transform):
        with pytest.raises(SourceError, match=words):
            call(bad)
    with pytest.raises(SourceError, match=words):
        SparseSVD(3, sample_axis=1).fit(bad)
    words = f"(a masked value|NaN) at feature 4, sample {sample}"  # which xarray may have made it
    with pytest.raises(SourceError, match=words):
        fit(xr.DataArray(bad, dims=("y", "t")), sample_dim="t")


def test_masked_arrays_of_dask_ma() -> None:
    X = numbers("float64")
    bad = da.ma.masked_greater(da.from_array(X, chunks=(4, 13)), X.max() - 1e-9)
    feature, sample = (int(at[0]) for at in np.nonzero(X.max() == X))
    with pytest.raises(SourceError, match=f"masked value at feature {feature}, sample {sample}"):
        sparse_pca(bad, 3)
    made = da.ma.masked_greater(da.from_array(X, chunks=(4, 13)), X.max())
    assert changed(sparse_pca(made, 3), sparse_pca(X, 3)) == []


# ------------------------------------------------------------------------------ HDF5, not written


def test_chunks_of_hdf5_that_were_never_written(tmp_path: Path) -> None:
    X = numbers("float64")
    X[4:8, 26:39] = X[8, 91:] = 7
    with h5_file(tmp_path) as file:
        data = file.create_dataset("x", (N, SAMPLES), "f8", chunks=(4, 13), fillvalue=7)
        for row in range(0, N, 4):
            for column in range(0, SAMPLES, 13):
                if (row, column) not in ((4, 26), (8, 91)):
                    part = np.s_[row : row + 4, column : column + 13]
                    data[part] = X[part]
        words = r"2 chunk\(s\) were never written and would read as 7.0: 1/2, 2/7; .*=\"fill\""
        result = fit(X)
        for call in (fit, lambda x: sparse_pca(x, 3), result.transform):
            with pytest.raises(SourceError, match=words):
                call(data)
        with pytest.raises(SourceError, match=words):
            SparseSVD(3, sample_axis=1).fit(data)
        assert differences(fit(data, missing_chunks="fill"), result) == []
        model = SparseSVD(3, sample_axis=1, missing_chunks="fill", **FIT).fit(data)
        assert changed(model.result_, result) == []
        data.attrs["_FillValue"] = 7.0
        with pytest.raises(SourceError, match=r"\(7.0, its _FillValue\) at feature 4, sample 26"):
            fit(data, missing_chunks="fill")
        data[4:8, 26:39] = data[8, 91:] = 1
        assert fit(data).n_samples == SAMPLES


def test_a_dataset_without_chunks_that_was_never_written(tmp_path: Path) -> None:
    X = numbers("float64")
    with h5_file(tmp_path) as file:
        empty = file.create_dataset("empty", (N, SAMPLES), "f8")
        with pytest.raises(SourceError, match=r"never written and would read as 0.0: all of it"):
            fit(empty)
        assert fit(empty, missing_chunks="fill").total_energy == 0
        whole = file.create_dataset("whole", data=X)
        assert differences(fit(whole), fit(X)) == []


@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option")  # of AnnData
@pytest.mark.parametrize("part", ["data", "indices"])
def test_a_part_of_a_sparse_matrix_that_was_never_written(part: str, tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata")
    matrix = sparse.csr_matrix(numbers("float64").T)
    anndata.AnnData(matrix).write_h5ad(tmp_path / "a.h5ad")
    with h5py.File(tmp_path / "a.h5ad", "r+") as file:
        del file[f"X/{part}"]
        file.create_dataset(f"X/{part}", (matrix.nnz,), getattr(matrix, part).dtype, chunks=(90,))
    backed = anndata.read_h5ad(tmp_path / "a.h5ad", backed="r")
    words = rf"CSRDataset/{part}: 11 chunk\(s\) were never written"
    for x in (backed, backed.X):
        with pytest.raises(SourceError, match=words):
            fit(x, sample_axis=0)
    backed.file.close()


def test_a_virtual_dataset_whose_files_are_gone(tmp_path: Path) -> None:
    X = numbers("float64")
    layout = h5py.VirtualLayout((N, SAMPLES), "f8")
    for k, columns in enumerate((np.s_[:, :50], np.s_[:, 50:])):
        with h5py.File(tmp_path / f"part{k}.h5", "w") as part:
            layout[columns] = h5py.VirtualSource(part.create_dataset("x", data=X[columns]))
    with h5_file(tmp_path) as file:
        made = file.create_virtual_dataset("x", layout, fillvalue=0)
        assert differences(fit(made), fit(X)) == []
    (tmp_path / "part1.h5").unlink()
    with h5py.File(tmp_path / "x.h5") as file:
        with pytest.raises(SourceError, match=r"1 file\(s\) of the virtual .*part1\.h5"):
            fit(file["x"])
        X[:, 50:] = 0
        assert differences(fit(file["x"], missing_chunks="fill"), fit(X)) == []


# ---------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("kind", ["Zarr", "HDF5"])
def test_reading_takes_what_the_plan_says(kind: str, tmp_path: Path) -> None:
    """A strip at a time, of the size that `decoded_bytes` tells."""
    X = np.tile(numbers(), (20, 50))
    with h5_file(tmp_path) as file:
        if kind == "Zarr":
            x: Any = write_zarr(tmp_path / "x.zarr", X, (180, 500), attributes=SCALED)
        else:
            x = file.create_dataset("x", data=X, chunks=(180, 500))
            x.attrs.update(SCALED)
        source = open_data(x, Ask(1))
        source.read(0, 500, source.dtype)
        tracemalloc.start()
        try:
            for start in range(0, 5000, 500):
                source.read(start, start + 500, source.dtype)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert X.shape[0] * 500 * 8 < peak < 3 * source.decoded_bytes(500)
    assert peak < X.nbytes
