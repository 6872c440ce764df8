"""Where other packages do the same, the same comes out: dense components, the whole budget."""

import warnings
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

from streamsvd import OptionError, sparse_pca

pytestmark = pytest.mark.slow  # these packages take seconds to import


def sst() -> Any:
    """Temperatures (time, lat, lon), with land."""
    xarray = pytest.importorskip("xarray")
    random = np.random.default_rng(0)
    values = random.standard_normal((40, 5, 6)) * np.linspace(1, 2, 30).reshape(5, 6)
    values[:, 1, 2:4] = np.nan
    coords = {"time": np.arange(40), "lat": np.linspace(-60, 60, 5), "lon": np.arange(6) * 60.0}
    return xarray.DataArray(values, coords, ("time", "lat", "lon"))


@pytest.mark.parametrize("weigh", ["coslat", "weights"])
def test_xeofs(weigh: str) -> None:
    """`use_coslat` are our ``"coslat"``, and its weights the roots of ours."""
    xeofs = pytest.importorskip("xeofs")
    x = sst()
    w = x.lat**2 / 900 + 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = xeofs.single.EOF(n_modes=3, use_coslat=weigh == "coslat", solver="full")
        model.fit(x, dim="time", weights=w if weigh == "weights" else None)
        shares, series = model.explained_variance_ratio().values, model.scores()
    weights = "coslat" if weigh == "coslat" else w**2
    made = sparse_pca(
        x, 3, sample_dim="time", feature_weights=weights, missing="mean", max_fill=1.0
    )
    np.testing.assert_allclose(made.explained_variance_ratio, shares, rtol=1e-6)
    ours = made.to_xarray(x).scores.values
    theirs = series.transpose("mode", "time").values
    cosines = (ours * theirs).sum(axis=1)
    cosines /= np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    np.testing.assert_allclose(np.abs(cosines), 1.0, rtol=1e-6)


def test_scanpy() -> None:
    """`mask_var` is our ``feature_mask``."""
    scanpy, anndata = pytest.importorskip("scanpy"), pytest.importorskip("anndata")
    random = np.random.default_rng(1)
    cells = anndata.AnnData(random.gamma(1.0, np.linspace(1, 2, 20), (60, 20)))
    cells.var["highly_variable"] = np.arange(20) % 3 > 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scanpy.pp.pca(cells, n_comps=3, mask_var="highly_variable")
    made = sparse_pca(cells, 3, feature_mask="highly_variable", max_fill=1.0)
    theirs = cells.uns["pca"]["variance_ratio"]
    np.testing.assert_allclose(made.explained_variance_ratio, theirs, rtol=1e-5)
    assert not made.components.toarray()[:, ::3].any()
    with pytest.raises(OptionError, match="another PCA"):
        made.to_anndata(cells)
    made.to_anndata(cells, key="sparse_pca")
    np.testing.assert_allclose(
        np.abs(cells.obsm["X_sparse_pca"]), np.abs(cells.obsm["X_pca"]), atol=1e-3
    )
    del cells.obsm["X_pca"]
    made.to_anndata(cells)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scanpy.pl.pca_loadings(cells, components="1,3", n_points=7, show=False)
        panels = plt.gcf().axes
        for c, ax in zip((0, 2), panels, strict=False):
            largest = made.components[[c]].toarray().ravel().argmax()
            assert cells.var_names[largest] in {text.get_text() for text in ax.texts}
        scanpy.pl.pca_variance_ratio(cells, n_pcs=3, show=False)
        scanpy.pl.pca(cells, show=False)
        scanpy.pp.neighbors(cells, n_neighbors=5, method="gauss")  # the other compiles for long
    plt.close("all")
    assert cells.uns["neighbors"]["params"].get("use_rep", "X_pca") == "X_pca"
