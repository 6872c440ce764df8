"""Scores in single precision where that is asked for: those of double precision, rounded."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from helpers import normal, write_zarr
from scipy import sparse

from streamsvd import OptionError, SparseSVD, StreamingSparsePCA, SVDResult, sparse_pca
from streamsvd.cli.commands import main

X = (normal(9, 120) * np.linspace(1, 4, 9)[:, None] + 3).astype(np.float32)


@pytest.fixture(scope="module")
def made() -> SVDResult:
    return sparse_pca(X, 3, max_fill=0.5)


@pytest.mark.parametrize("dtype", ["float32", np.float32, np.dtype("float64")])
@pytest.mark.parametrize("kind", ["float32", "float64", "sparse", "store", "rows"])
def test_in_memory_and_on_disk(made: SVDResult, dtype: Any, kind: str, tmp_path: Path) -> None:
    values = X if kind == "float32" else X.astype(float)
    source: Any = {"sparse": sparse.csc_array(values), "rows": values.T}.get(kind, values)
    if kind == "store":
        source = write_zarr(tmp_path / "x.zarr", X, (9, 25))
    reading: Any = {"sample_axis": 0} if kind == "rows" else {}
    expected = made.transform(source, **reading)
    assert expected.dtype == np.float64  # also of float32 data, unless asked otherwise
    found = made.transform(source, dtype=dtype, **reading)
    np.testing.assert_array_equal(found, expected.astype(dtype))
    by_hand = made.components @ (values.astype(float) - made.mean[:, None])
    scores = found.T if kind == "rows" else found
    np.testing.assert_allclose(scores, by_hand, atol=1e-5)
    written = made.transform(source, tmp_path / "s.zarr", dtype=dtype, **reading)
    assert found.dtype == written.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(written[:], found)


def test_estimators(made: SVDResult) -> None:
    for model in (
        StreamingSparsePCA(3, max_fill=0.5, scores_dtype="float32"),
        SparseSVD(3, scores_dtype="float32"),
    ):
        scores = model.fit_transform(X.T)
        assert scores.dtype == np.float32
        np.testing.assert_array_equal(
            scores, model.result_.transform(X, sample_axis=1).T.astype("f4")
        )
    assert StreamingSparsePCA(3, max_fill=0.5).fit_transform(X.T).dtype == np.float64
    with pytest.raises(OptionError, match="dtype must be one of float32, float64; got 'int8'"):
        SparseSVD(3, scores_dtype="int8").fit(X.T)


def test_what_is_refused(made: SVDResult) -> None:
    with pytest.raises(OptionError, match="dtype must be one of float32, float64; got 'float16'"):
        made.transform(X, dtype="float16")
    large = X.astype(float) * 1e38
    with pytest.raises(OptionError, match="beyond float32: leave dtype= out"):
        sparse_pca(large, 2).transform(large, dtype="float32")


def test_the_command_line_and_a_cluster(made: SVDResult, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    source = write_zarr(tmp_path / "x.zarr", X, (9, 25))
    made.save(tmp_path / "r")
    args = ["transform", str(tmp_path / "r"), str(source), "--out", str(tmp_path / "s"), "--quiet"]
    done = CliRunner().invoke(main, [*args, "--dtype", "float32"], catch_exceptions=False)
    assert "3 x 120, float32" in done.output
    where: dict[str, Any] = {"n_workers": 2, "processes": False, "dashboard_address": ":0"}
    with distributed.LocalCluster(**where) as cluster, distributed.Client(cluster) as client:
        found = made.transform(source, tmp_path / "c", dtype="float32", client=client)
    np.testing.assert_array_equal(found[:], made.transform(X).astype(np.float32))
