"""What a result says of data: likelihoods, covariances, samples from scores, by plain NumPy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from helpers import normal, write_zarr
from scipy import sparse

from streamsvd import OptionError, SourceError, SVDResult, sparse_pca, sparse_svd

N, SAMPLES, P = 12, 70, 3
MASK = np.arange(N) % 5 > 0
WEIGHTS = np.linspace(0.5, 2, N)


def data(*, gaps: bool = False) -> np.ndarray:
    X = normal(N, 4) @ normal(4, SAMPLES, 1) + 0.3 * normal(N, SAMPLES, 2) + 4
    if gaps:
        X[normal(N, SAMPLES, 3) > 1.5] = np.nan
        X[7] = np.nan
    return X


KINDS: dict[str, dict[str, Any]] = {
    "pca": {},
    "scaled": {"normalize": "features"},
    "weighted": {"normalize": "features", "feature_weights": WEIGHTS},
    "masked, with gaps": {"feature_mask": MASK, "missing": "mean", "normalize": "features"},
    "samples": {"center": "samples", "normalize": "samples", "feature_weights": WEIGHTS},
    "as it is": {"center": None},
}


def by_hand(made: SVDResult, X: np.ndarray) -> tuple[Any, ...]:
    """Samples as in the fit, less what is left out; the model's covariance; the divisors."""
    kept = np.setdiff1d(np.arange(N), made.left_out)
    of = made.preprocessing
    Y, D = X[kept].copy(), np.ones(len(kept))
    if of.center == "features":
        Y -= made.mean[kept, None]
        Y[np.isnan(Y)] = 0.0
    elif of.center == "samples":
        Y -= Y.mean(axis=0)
    if of.normalize == "features":
        D = made.scale[kept].copy()
    elif of.normalize == "samples":
        Y /= np.linalg.norm(Y, axis=0)
    if of.weights is not None:
        D /= np.sqrt(of.weights)
    Y /= D[:, None]
    U = made.components.toarray()[:, kept]
    variances = np.sum((U @ Y) ** 2, axis=1) / (SAMPLES - 1)
    noise = (np.sum(Y**2) / (SAMPLES - 1) - variances.sum()) / (min(Y.shape) - P)
    above = np.maximum(variances - noise, 0)
    return kept, Y, D, U, noise, U.T @ np.diag(above) @ U + noise * np.eye(len(kept))


@pytest.mark.usefixtures("narrow_strips")
@pytest.mark.parametrize("kind", KINDS)
def test_the_model(kind: str, tmp_path: Path) -> None:
    """Covariance and its inverse, and the likelihood of samples, strip by strip."""
    X, options = data(gaps="gaps" in kind), KINDS[kind]
    store = write_zarr(tmp_path / "x", X, (5, 13))
    made = sparse_pca(store, P, max_fill=0.4, **options)
    kept, Y, D, _, noise, C = by_hand(made, X)
    places = np.ix_(kept, kept)
    assert made.noise_variance == pytest.approx(noise, rel=1e-9)
    covariance, precision = made.get_covariance(), made.get_precision()
    np.testing.assert_allclose(covariance[places], C * np.outer(D, D), rtol=1e-9, atol=1e-12)
    inverse = np.linalg.inv(C * np.outer(D, D))
    np.testing.assert_allclose(precision[places], inverse, rtol=1e-8, atol=1e-9)
    assert np.isnan(covariance[made.left_out]).all()
    distances = np.einsum("ij,ij->j", Y, np.linalg.solve(C, Y))
    volume = np.linalg.slogdet(2 * np.pi * C)[1] + 2 * np.log(D).sum()
    found = made.score_samples(store)
    np.testing.assert_allclose(found, -0.5 * (volume + distances), rtol=1e-9)
    assert made.score(store) == pytest.approx(found.mean(), rel=1e-12)
    weights = np.arange(SAMPLES) % 3
    weighted = np.repeat(found, weights).mean()
    assert made.score(store, sample_weights=weights) == pytest.approx(weighted, rel=1e-12)
    if made.missing is not None:
        made.save(tmp_path / "r")
        again = SVDResult.load(tmp_path / "r")
        assert again.score(store) == pytest.approx(found.mean(), rel=1e-12)


@pytest.mark.usefixtures("narrow_strips")
@pytest.mark.parametrize(
    ("kind", "axis"),
    [("pca", 0), ("scaled", 1), ("weighted", 0), ("masked, with gaps", 1), ("as it is", 0)],
)
def test_there_and_back(kind: str, axis: int, tmp_path: Path) -> None:
    """Whitened scores, and samples from them, in memory and from store to store."""
    X, options = data(gaps="gaps" in kind), KINDS[kind]
    store = write_zarr(tmp_path / "x", X if axis else X.T.copy(), (5, 13))
    made = sparse_pca(store, P, max_fill=0.4, sample_axis=axis, **options)
    kept, Y, D, U, *_ = by_hand(made, X)
    plain = U @ Y
    expected = np.full((N, SAMPLES), np.nan)
    expected[kept] = (U.T @ plain) * D[:, None] + made.mean[kept, None]
    deviations = np.sqrt(np.sum(plain**2, axis=1, keepdims=True) / (SAMPLES - 1))
    for whiten, scores in ((False, plain), (True, plain / deviations)):
        path = tmp_path / f"scores {whiten}"
        found = made.transform(store, path, whiten=whiten)[...]
        np.testing.assert_allclose(found if axis else found.T, scores, atol=1e-9)
        back = made.inverse_transform(found, whiten=whiten)
        np.testing.assert_allclose(back if axis else back.T, expected, atol=1e-9)
    stored = made.inverse_transform(path, tmp_path / "back", whiten=True, dtype="float32")
    assert isinstance(stored, zarr.Array)
    assert stored.dtype == np.float32
    assert stored.chunks[axis] < SAMPLES
    np.testing.assert_array_equal(stored[...], back.astype(np.float32))


def test_data_of_other_kinds() -> None:
    """Single precision, and a sparse matrix, say the same."""
    X = np.maximum(data() - 4, 0)
    made = sparse_pca(X, P, max_fill=0.4)
    single = sparse_pca(X.astype(np.float32), P, max_fill=0.4)
    assert made.score(sparse.csc_array(X)) == pytest.approx(made.score(X), rel=1e-12)
    assert single.score(X) == pytest.approx(made.score(X), rel=1e-4)


def test_refused() -> None:
    X = data()
    made = sparse_pca(X, P, max_fill=0.4)
    with pytest.raises(OptionError, match=r"of 4 components, but there are 3 components$"):
        made.inverse_transform(np.zeros((4, 5)))
    with pytest.raises(OptionError, match="pass sample_axis=0 if samples are on the other axis"):
        made.inverse_transform(np.zeros((5, 3)))
    with pytest.raises(SourceError, match="holds NaN"):
        made.inverse_transform(np.full((3, 5), np.nan))
    own = sparse_svd(X, P, n_transforms=20, center="samples")
    with pytest.raises(OptionError, match="cannot undo"):
        own.inverse_transform(np.zeros((3, 5)))
    few = sparse_pca(X[:, :5], None, max_fill=1.0)
    assert (few.n_components, few.noise_variance) == (5, 0.0)
    for ask in (few.get_precision, lambda: few.score(X)):
        with pytest.raises(OptionError, match="singular for 12 features"):
            ask()
    on_the_way = sparse_svd(X, P, n_transforms=20).at(5)
    for ask in (on_the_way.get_covariance, lambda: on_the_way.transform(X, whiten=True)):
        with pytest.raises(OptionError, match="not known at this point"):
            ask()
