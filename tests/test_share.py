"""As many components as PCA needs for a share of the variance: those that scikit-learn counts."""

import re
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from click.testing import CliRunner
from helpers import differences, normal, write_zarr
from scipy import sparse
from sklearn.decomposition import PCA

from streamsvd import (
    OptionError,
    StreamingSparsePCA,
    SVDResult,
    plan_svd,
    sparse_pca,
    sparse_pca_cv,
    sparse_svd,
)
from streamsvd.cli.commands import main
from streamsvd.refinement.covariance import Gram, Samples, fewest

N, SAMPLES = 12, 90
X = normal(N, 5, 1) @ normal(5, SAMPLES, 2) + 0.4 * normal(N, SAMPLES, 3) + 7.0
SHARES = (0.05, 0.5, 0.8, 0.9, 0.97, 0.999)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("reduction", [None, "gram", "samples"])
def test_as_in_scikit_learn(share: float, reduction: str | None) -> None:
    p = PCA(share, svd_solver="full").fit(X.T).n_components_
    asked: dict[str, Any] = {"max_fill": 0.5, "reduction": reduction}
    made, hand = sparse_pca(X, share, **asked), sparse_pca(X, int(p), **asked)
    assert made.n_components == p
    assert made.settings == hand.settings | {"share": share}
    assert differences(made, hand) == []


@pytest.mark.parametrize("kind", ["rows", "sparse", "Zarr", "Dask", "missing", "mask"])
def test_of_any_kind_of_data(kind: str, tmp_path: Path) -> None:
    source, hand, options = X, X, dict[str, Any]()
    if kind == "rows":
        source, options = np.ascontiguousarray(X.T), {"sample_axis": 0}
    elif kind == "sparse":
        hand = np.where(X > 7, X, 0)
        source = sparse.csc_array(hand)
    elif kind == "Zarr":
        source = write_zarr(tmp_path / "x.zarr", X, (5, 20))
    elif kind == "Dask":
        source = da.from_array(X, chunks=(5, 20))
    elif kind == "missing":
        source = np.where(X > 10, np.nan, X)
        hand = np.where(X > 10, np.nanmean(source, axis=1, keepdims=True), X)
        options = {"missing": "mean"}
    elif kind == "mask":
        options = {"feature_mask": np.arange(N) > 3}
        hand = X[4:]
    made = sparse_pca(source, 0.85, max_fill=0.5, **options)
    assert made.n_components == PCA(0.85, svd_solver="full").fit(hand.T).n_components_


def test_no_variance_and_no_samples_beyond() -> None:
    assert fewest(Gram(np.zeros((4, 4))), 0.9, 4) == 1
    assert fewest(Gram(np.eye(4)), 0.5, 4) == 3  # more than half of it, as in scikit-learn
    assert fewest(Gram(np.eye(4)), 1 - 1e-16, 4) == 4
    assert fewest(Samples(np.eye(4)[:, :2]), 0.9, 2) == 2


def test_other_methods(tmp_path: Path) -> None:
    """Block steps, saving, batches, plans and the shell."""
    p = PCA(0.9, svd_solver="full").fit(X.T).n_components_
    asked: dict[str, Any] = {"center": "features", "reduction": "gram"}
    made = sparse_svd(X, 0.9, algorithm="block", **asked)
    assert differences(made, sparse_svd(X, int(p), algorithm="block", **asked)) == []
    many = sparse_svd(X, 0.9, batch_size=2, **asked)
    assert differences(many, sparse_svd(X, int(p), batch_size=2, **asked)) == []
    made.save(tmp_path / "r")
    loaded = SVDResult.load(tmp_path / "r")
    assert (loaded.n_components, loaded.settings["share"]) == (p, 0.9)
    assert plan_svd(X, 0.9, **asked).peak_memory > 0
    model = StreamingSparsePCA(0.9, max_fill=0.5)
    model.partial_fit(X.T[:50]).partial_fit(X.T[50:])
    assert model.components_.shape == (p, N)
    assert differences(model.result_, StreamingSparsePCA(0.9, max_fill=0.5).fit(X.T).result_) == []
    source = write_zarr(tmp_path / "x.zarr", X, (5, 20))
    args = ["pca", str(source), "--components", "0.9", "--out", str(tmp_path / "s"), "--quiet"]
    CliRunner().invoke(main, args, catch_exceptions=False)
    assert SVDResult.load(tmp_path / "s").n_components == p


@pytest.mark.parametrize("value", [0.0, 1.0, -0.5, 1.5, np.nan, "0.9", True, 0])
def test_what_is_no_share(value: Any) -> None:
    with pytest.raises(OptionError, match=r"a share .* between 0 and 1, or None .*; got"):
        sparse_pca(X, value)


def test_where_nothing_tells_what_pca_explains() -> None:
    remedy = r'n_components=0.9.*reduction={}.*pass reduction="gram"'
    with pytest.raises(OptionError, match=remedy.format(None)):
        sparse_svd(X, 0.9)
    with pytest.raises(OptionError, match=remedy.format("'factor'")):
        sparse_pca(X, 0.9, reduction="factor")
    with pytest.raises(OptionError, match=remedy.format("'factor'")):
        StreamingSparsePCA(0.9, reduction="factor").partial_fit(X.T)
    with pytest.raises(OptionError, match=r"must be an integer of at least 1; got 0\.9"):
        sparse_pca_cv(X, 0.9, max_fill=0.5)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="max_nonzeros must be an integer of at least"):
        sparse_pca(X, 0.9, max_nonzeros=2)
    args = ["pca", "x.zarr", "--components", "some", "--out", "r"]
    refused = CliRunner().invoke(main, args)
    assert re.search("Invalid value for '--components'", refused.output)


def test_on_a_cluster(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    source = write_zarr(tmp_path / "x.zarr", X, (5, 20))
    where: dict[str, Any] = {"n_workers": 2, "processes": False, "dashboard_address": ":0"}
    with distributed.LocalCluster(**where) as made, distributed.Client(made) as client:
        found = sparse_pca(source, 0.9, max_fill=0.5, client=client)
    assert differences(found, sparse_pca(source, 0.9, max_fill=0.5)) == []
