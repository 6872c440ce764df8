"""A warning where samples were taken for features, as it seems, and nobody said which they are."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from helpers import normal, write_zarr
from scipy import sparse
from sklearn.datasets import load_digits

from streamsvd import (
    SparseSVD,
    StreamingSparsePCA,
    StreamSVDWarning,
    plan_svd,
    sparse_pca,
    sparse_pca_cv,
    sparse_svd,
)
from streamsvd.data.kinds import open_data
from streamsvd.options import Ask

WIDE = normal(61, 6)


def npy(folder: Path) -> Path:
    np.save(folder / "x.npy", WIDE)
    return folder / "x.npy"


KINDS: dict[str, Callable[[Path], Any]] = {
    "NumPy": lambda folder: WIDE,
    "CSC": lambda folder: sparse.csc_array(WIDE),
    "Dask": lambda folder: da.from_array(WIDE, chunks=(30, 3)),
    "Zarr": lambda folder: write_zarr(folder / "x.zarr", WIDE),
    "zarr.Array": lambda folder: zarr.open_array(write_zarr(folder / "x.zarr", WIDE), mode="r"),
    "npy": npy,
}


@pytest.mark.parametrize("kind", KINDS)
def test_of_every_kind_without_a_natural_axis(kind: str, tmp_path: Path) -> None:
    source = KINDS[kind](tmp_path)
    said = r"61 features and 6 samples, .* pass sample_axis=0 if .*, or sample_axis=1"
    with pytest.warns(StreamSVDWarning, match=said) as caught:
        open_data(source, Ask())
    assert len(caught) == 1
    open_data(source, Ask(1))  # warnings are errors here
    if kind not in ("CSC",):
        open_data(source, Ask(0))
    open_data(source, Ask(), Ask(1))  # by a result that knows


@pytest.mark.parametrize("method", [sparse_svd, sparse_pca, sparse_pca_cv, plan_svd])
def test_of_every_function_at_the_line_that_calls_it(method: Any) -> None:
    more: dict[str, Any] = {"max_fill": 0.1, "folds": 2} if method is sparse_pca_cv else {}
    with pytest.warns(StreamSVDWarning) as caught:
        method(WIDE, 2, **more)
    assert [Path(one.filename) for one in caught] == [Path(__file__)]


def test_the_images_of_digits() -> None:
    """Taken with samples as columns, the default, they are 1797 features."""
    digits = load_digits().data
    with pytest.warns(StreamSVDWarning, match=r"1797 features and 64 samples"):
        plan_svd(digits, 3)
    plan_svd(digits, 3, sample_axis=0)
    plan_svd(digits.T, 3)


def test_what_says_which_axis_it_is() -> None:
    pandas, xarray = pytest.importorskip("pandas"), pytest.importorskip("xarray")
    anndata = pytest.importorskip("anndata")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # what AnnData says is no test of ours
        annotated = anndata.AnnData(WIDE.T)
    plan_svd(pandas.DataFrame(WIDE.T, columns=[str(i) for i in range(61)]), 3)
    plan_svd(xarray.DataArray(WIDE, dims=("place", "time")), 3, sample_dim="time")
    plan_svd(annotated, 3)
    plan_svd(normal(60, 6), 3)
    plan_svd(normal(60, 1), 1)
    for model in (SparseSVD(2), StreamingSparsePCA(2)):  # rows are samples, as in scikit-learn
        model.fit(WIDE.T)
        model.transform(WIDE.T)
