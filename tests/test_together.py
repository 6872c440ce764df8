"""What can be said of data, all of it together: the same as of data made so by hand.

Missing values, a mask, weights of features and of samples, and scales, in all combinations.
"""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from streamsvd import StreamingSparsePCA, SVDResult, sparse_pca

N, SAMPLES, P = 12, 40, 2


def data(rng: np.random.Generator, *, gaps: bool) -> np.ndarray:
    """(12, 40), with or without missing values, and a feature that has none."""
    X = rng.standard_normal((N, SAMPLES)) * np.linspace(3, 1, N)[:, None] + rng.standard_normal(
        (N, 1)
    )
    if gaps:
        X[rng.random(X.shape) < 0.1] = np.nan
        X[3] = np.nan
    return X


@pytest.mark.parametrize(
    ("gaps", "has_mask", "weighs", "counts", "scaled"), list(product([False, True], repeat=5))
)
def test_all_together(
    *, gaps: bool, has_mask: bool, weighs: bool, counts: bool, scaled: bool, tmp_path: Path
) -> None:
    rng = np.random.default_rng([gaps, has_mask, weighs, counts, scaled])
    X, w, c, kept = data(rng, gaps=gaps), np.ones(N), np.ones(SAMPLES, int), np.ones(N, bool)
    asked: dict[str, Any] = {"max_fill": 1.0, "normalize": "features" if scaled else None}
    if gaps:
        asked["missing"] = "mean"
    if has_mask:
        kept = np.arange(N) % 4 > 0
        asked["feature_mask"] = kept.copy()
    if weighs:
        asked["feature_weights"] = w = rng.uniform(0.5, 2, N)
    of_samples: dict[str, Any] = {}
    if counts:
        of_samples["sample_weights"] = c = rng.integers(0, 3, SAMPLES)
    kept &= ~np.isnan(X).all(axis=1)

    there = np.repeat(X, c, axis=1)[kept]
    mean = np.nanmean(there, axis=1, keepdims=True)
    scale = np.nanstd(there, axis=1, keepdims=True) if scaled else 1.0
    root = np.sqrt(w[kept])[:, None] / scale
    by_hand = np.where(np.isnan(there), 0.0, there - mean) * root
    energies = np.linalg.eigvalsh(by_hand @ by_hand.T)[::-1]
    variances = energies[:P] / (c.sum() - 1)

    reduction = ["gram", "samples", "factor"][rng.integers(3)]
    store = zarr.create_array(tmp_path / "x.zarr", shape=X.shape, chunks=(N, 7), dtype="f8")
    store[...] = X
    made = sparse_pca(store, P, reduction=reduction, **asked, **of_samples)
    np.testing.assert_allclose(made.explained_variance, variances, rtol=1e-7)
    np.testing.assert_allclose(
        made.explained_variance_ratio, energies[:P] / energies.sum(), rtol=1e-7
    )
    assert set(made.left_out) == set(np.flatnonzero(~kept))
    all_samples = np.where(np.isnan(X[kept]), 0.0, X[kept] - mean) * root
    scores = made.transform(X)
    np.testing.assert_allclose(scores, made.components[:, kept] @ all_samples, atol=1e-9)

    made.save(tmp_path / "r")
    again = SVDResult.load(tmp_path / "r")
    np.testing.assert_array_equal(again.transform(store), scores)
    refined = again.refine(X, max_nonzeros=P * kept.sum())
    np.testing.assert_allclose(refined.explained_variance, variances, rtol=1e-7)
    measured = again.accuracy(store, **of_samples)
    assert measured.captured_variance == pytest.approx(energies[:P].sum() / energies.sum())

    batches = StreamingSparsePCA(P, reduction="gram", **asked)
    for first in range(0, SAMPLES, 15):
        part = slice(first, first + 15)
        batches.partial_fit(X.T[part], **({"sample_weight": c[part]} if counts else {}))
    np.testing.assert_allclose(batches.explained_variance_, variances, rtol=1e-7)
