"""The picks and values of the author's own MATLAB code, from every container and chunking."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import PLACES, differences, fit_in_blocks, write_zarr

from streamsvd import SVDResult, sparse_svd

FILES = ("rand40x100", "rand30x30", "usps")
WHOLE = 10**9
WIDTHS = (1, 7, 1000, WHOLE)


@dataclass
class Golden:
    """A golden file: its source, the options that make its input of it, and our fit in memory."""

    X: np.ndarray
    n_components: int
    options: dict[str, Any]
    pairs: np.ndarray
    trace: np.ndarray
    left: np.ndarray
    result: SVDResult
    block_indices: np.ndarray
    block_trace: np.ndarray


@pytest.fixture(scope="module", params=FILES)
def golden(request: pytest.FixtureRequest, shared: Path) -> Golden:
    """USPS goes in as stored, samples as rows in float32: the package does what the file's did."""
    file = np.load(shared / "golden" / f"{request.param}.npz")
    options: dict[str, Any] = {"n_transforms": len(file["pairs"])}
    if request.param == "usps":
        data = np.load(shared / "data" / "usps.npz")
        X = np.concatenate([data["x_train"], data["x_test"]])
        options |= {"sample_axis": 0, "center": "samples", "normalize": "samples"}
        options["dtype"] = "float64"
    else:
        X = file["X"]
    p = int(file["n_components"])
    result = sparse_svd(X, p, **options)
    blocks = np.sort(file["block_indices"], axis=1), file["block_trace"]
    return Golden(X, p, options, file["pairs"], file["trace"], file["left"], result, *blocks)


@pytest.fixture(scope="module", params=WIDTHS, ids=lambda w: "whole" if w == WHOLE else str(w))
def store(
    request: pytest.FixtureRequest, golden: Golden, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The source in a Zarr store, in chunks of so many samples."""
    axis = golden.options.get("sample_axis", 1)
    chunks = list(golden.X.shape)
    chunks[axis] = min(request.param, chunks[axis])
    return write_zarr(tmp_path_factory.mktemp("golden") / "x.zarr", golden.X, tuple(chunks))


def test_pairs_are_the_authors(golden: Golden) -> None:
    np.testing.assert_array_equal(golden.result.pairs, golden.pairs)


def test_traces_are_the_authors(golden: Golden) -> None:
    assert np.max(np.abs(golden.result.history.trace - golden.trace)) < 1e-10


def test_components_are_the_authors_up_to_signs(golden: Golden) -> None:
    ours = golden.result.log.components(len(golden.pairs)).toarray().T
    signs = np.sign(np.sum(ours * golden.left, axis=0))
    assert np.max(np.abs(ours * signs - golden.left)) < 1e-8


def test_reported_components_are_those_in_order_of_singular_values(golden: Golden) -> None:
    match = golden.result.components.toarray() @ golden.left
    order = np.argmax(np.abs(match), axis=1)
    assert sorted(order) == list(range(golden.n_components))
    np.testing.assert_allclose(np.abs(match[range(len(order)), order]), 1, atol=1e-8)
    assert np.all(np.diff(golden.result.singular_values) <= 0)


def test_same_bits_from_zarr_in_any_chunks(golden: Golden, store: Path) -> None:
    """Read whole, and in strips of about a seventh, which end within blocks."""
    result = sparse_svd(store, golden.n_components, **golden.options)
    assert differences(result, golden.result) == []
    strip = 8 * golden.X.size // 7
    result = fit_in_blocks(store, golden.n_components, width=50, strip=strip, **golden.options)
    assert differences(result, golden.result) == []


@pytest.mark.parametrize("width", WIDTHS[:3])
@pytest.mark.parametrize(
    ("place", "n_threads"), [(place, 1) for place in PLACES] + [(place, 3) for place in PLACES[1:]]
)
def test_same_bits_in_any_blocks(golden: Golden, place: str, width: int, n_threads: int) -> None:
    """On disk in at most 900 blocks, each of which takes an open file; in memory by one thread."""
    if place != "memory":
        width = max(width, max(golden.X.shape) // 900)
    result = fit_in_blocks(
        golden.X,
        golden.n_components,
        width=width,
        place=place,
        n_threads=n_threads,
        **golden.options,
    )
    assert differences(result, golden.result) == []


@pytest.mark.parametrize("normalize", [None, "features"])
def test_same_statistics_of_features_in_any_chunks(
    golden: Golden, store: Path, normalize: str | None
) -> None:
    options = golden.options | {"center": "features", "normalize": normalize, "n_transforms": 20}
    whole = sparse_svd(golden.X, golden.n_components, **options)
    strip = 8 * golden.X.size // 7
    result = fit_in_blocks(
        store, golden.n_components, width=50, strip=strip, n_threads=3, **options
    )
    assert differences(result, whole) == []
    assert np.any(whole.mean != 0)
    assert np.all(whole.scale != 1) if normalize else np.all(whole.scale == 1)


# ---------------------------------------------------------------------------------- block steps


@pytest.fixture(scope="module")
def blocks(golden: Golden) -> SVDResult:
    """The author's block steps, in memory."""
    return sparse_svd(golden.X, golden.n_components, **block_options(golden))


def block_options(golden: Golden) -> dict[str, Any]:
    return golden.options | {"algorithm": "block", "n_transforms": len(golden.block_trace)}


def test_block_indices_are_the_authors(golden: Golden, blocks: SVDResult) -> None:
    """Also where columns beyond the rows have come in before: the null space is his too."""
    np.testing.assert_array_equal(blocks.log.arrays()["indices"], golden.block_indices)


def test_block_traces_are_the_authors(golden: Golden, blocks: SVDResult) -> None:
    assert np.max(np.abs(blocks.history.trace - golden.block_trace)) < 1e-10


@pytest.mark.parametrize(
    ("place", "width", "n_threads"), [("memory", 7, 3), ("disk, rows held", 1000, 2)]
)
def test_same_bits_of_block_steps(
    golden: Golden, blocks: SVDResult, place: str, width: int, n_threads: int
) -> None:
    cut = fit_in_blocks(
        golden.X,
        golden.n_components,
        width=width,
        place=place,
        n_threads=n_threads,
        **block_options(golden),
    )
    assert differences(cut, blocks) == []
