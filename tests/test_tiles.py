"""Kernels and parts of block steps against plain NumPy; also with ``NUMBA_DISABLE_JIT=1``."""

from itertools import product
from typing import Any

import naive
import numpy as np
import pytest
from helpers import normal
from hypothesis import given
from hypothesis import strategies as st

from streamsvd.algorithm.block_steps import block_factors
from streamsvd.kernels import scores, supports
from streamsvd.matrix import tiled
from streamsvd.matrix.partition import Partition

CODES = {"nuclear": scores.NUCLEAR, "gain": scores.GAIN, "kogbetliantz": scores.KOGBETLIANTZ}
SHAPES = [(6, 20, 2), (20, 6, 3), (7, 7, 7), (1, 9, 1), (9, 1, 1), (5, 12, 5)]


@pytest.fixture(params=[3, 8])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Narrow tiles, so that small data has many."""
    monkeypatch.setattr(tiled, "WIDTH", request.param)
    return request.param


def partition(X: np.ndarray, p: int, c: int, start: int, stop: int, apart: bool) -> Partition:
    """Some columns of `X` in blocks of `c`, their first p rows in arrays of their own or not."""
    n = len(X)
    blocks = []
    for first in range(start, stop, c):
        block = np.full((n, c), np.nan, X.dtype)
        block[:, : min(c, stop - first)] = X[:, first : min(first + c, stop)]
        blocks.append(block)
    tops = [block[:p].copy() for block in blocks] if apart else None
    if apart:
        for block in blocks:
            block[:p] = np.nan
    return Partition(blocks, start, stop, p, tops)


def content(held: Partition) -> np.ndarray:
    return held.take_columns(np.arange(held.start, held.stop))


def cuts(N: int) -> list[tuple[int, int, int, bool]]:
    """Block width, start, stop, whether the first rows are apart."""
    return [(N, 0, N, False), (1, 0, N, True), (4, N // 3, N, False), (5, 0, 1 + N // 2, True)]


# ------------------------------------------------------------------------------------- scores


@pytest.mark.usefixtures("width")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("n", "N", "p"), SHAPES)
@pytest.mark.parametrize("selection", CODES)
def test_best_columns(selection: str, n: int, N: int, p: int, dtype: str) -> None:
    """The largest entries of the full table of scores, ties to the lowest column."""
    X = np.round(normal(n, N), 1).astype(dtype)
    X[:, N // 2 :] = X[:, : N - N // 2]
    best = naive.scores(X.astype(float), p, selection).max(axis=0)
    diag = np.zeros(n, dtype)
    diag[: min(n, N)] = np.diag(X)
    left = np.ascontiguousarray(X[:, :p].T)
    for c, start, stop, apart in cuts(N):
        held = partition(X, p, c, start, stop, apart)
        scores, columns = held.best_columns(CODES[selection], left, diag)
        assert len(columns) == min(p, stop - start)
        mine = columns[columns >= p]
        np.testing.assert_allclose(scores[columns >= p], best[mine], rtol=1e-12, atol=1e-13)
        assert np.all(scores[columns < p] == -np.inf)
        others = np.setdiff1d(np.arange(max(start, p), stop), mine)
        if len(others) and len(mine):
            assert len(mine) == p
            assert best[others].max() <= scores[-1] + 1e-12
        order = np.lexsort((columns, -scores))
        np.testing.assert_array_equal(order, np.arange(len(order)))


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=30), st.integers(1, 12))
def test_top_columns(values: list[int], count: int) -> None:
    scores = np.array(values, dtype=float)
    scores[scores == -3] = -np.inf
    expected = np.argsort(-scores, kind="stable")[:count]
    np.testing.assert_array_equal(tiled.top_columns(scores, count), expected)


# ------------------------------------------------------------------------------------ products


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("n", "N", "p"), SHAPES)
def test_a_step_on_partitions(width: int, n: int, N: int, p: int, dtype: str) -> None:
    """The numbers of a product, the same bits however the columns are cut, and on a panel."""
    random = np.random.default_rng(n)
    X = normal(n, N).astype(dtype)
    rows = np.union1d(np.arange(p), random.choice(n, size=min(n, 2 * p), replace=False))
    g = np.linalg.qr(random.standard_normal((len(rows), len(rows))))[0]
    beyond = np.arange(p, N)
    indices = np.sort(random.choice(beyond, size=min(p, len(beyond)), replace=False))
    columns = normal(n, len(indices), 5).astype(dtype)
    left, diag = np.ascontiguousarray(X[:, :p].T), np.ones(n, dtype)
    found: Any = None
    for c, start, stop, apart in cuts(N):
        held = partition(X, p, c, start, stop, apart)
        best = held.apply_block(scores.NUCLEAR, rows, g, indices, columns, left, diag)
        if found is None:
            found = content(held)
            expected = X.astype(float)
            expected[rows] = g.T @ expected[rows]
            expected[:, indices] = columns
            np.testing.assert_allclose(found, expected, atol=1e-13 if dtype == "float64" else 1e-5)
        assert np.array_equal(content(held), found[:, start:stop])
        again = held.best_columns(scores.NUCLEAR, left, diag)
        assert all(np.array_equal(a, b) for a, b in zip(best, again, strict=True))
        silent = held.apply_block(-1, rows, g, indices, columns, left, diag)
        assert [len(part) for part in silent] == [0, 0]
    panel = X[:, ::2].copy()
    whole = tiled.TiledColumns([X], [X], 0, N)
    tiled.RowProduct(rows, g, whole).on_panel(panel, np.arange(0, N, 2))
    untouched = np.setdiff1d(np.arange(0, N, 2), indices)
    assert np.array_equal(panel[:, untouched // 2], found[:, untouched])
    assert all(hi - lo <= width for lo, hi, _ in whole.tiles())


def test_tiles_are_counted_from_the_first_column_of_all(width: int) -> None:
    X = normal(2, 10)
    held = list(tiled.TiledColumns([X], [X], 5, 15).tiles())
    assert held[0][0] == 5
    assert held[-1][1] == 15
    assert all(lo == stop for (lo, _, _), (_, stop, _) in zip(held[1:], held, strict=False))
    assert [at for _, _, at in held] == [lo % width for lo, _, _ in held]


# ------------------------------------------------------------------------------------- factors

MATRICES = {
    "full": normal(6, 6),
    "wide": normal(4, 9),
    "tall": normal(9, 4),
    "one row": normal(1, 4),
    "one": np.array([[-2.0]]),
    "zeros": np.zeros((3, 5)),
    "zero rows": normal(4, 7) * np.array([[1], [0], [1], [0]]),
    "rank one": np.outer(normal(1, 5)[0], normal(1, 8, 1)[0]),
    "rank one, tall": np.outer(normal(1, 8)[0], normal(1, 5, 1)[0]),
    "rank two, tiny": normal(5, 2) @ normal(2, 10, 1) * 1e-150,
    "graded": normal(5, 9) * 10.0 ** -np.arange(0, 25, 5)[:, None],
    "equal rows": np.repeat(normal(1, 7), 4, axis=0),
}


@pytest.mark.parametrize("name", MATRICES)
def test_block_factors(name: str) -> None:
    """Orthogonal whatever the rank; what they make of the block is its singular values."""
    M = MATRICES[name]
    g, h = block_factors(M)
    for factor, size in zip((g, h), M.shape, strict=True):
        assert factor.shape == (size, size)
        np.testing.assert_allclose(factor.T @ factor, np.eye(size), atol=1e-14 * size)
    expected = np.zeros(M.shape)
    np.fill_diagonal(expected, np.linalg.svd(M, compute_uv=False))
    np.testing.assert_allclose(g.T @ M @ h, expected, atol=1e-14 * max(np.linalg.norm(M), 1e-300))


@pytest.mark.parametrize("rank", [0, 1, 5])
def test_block_factors_of_a_symmetric_block(rank: int) -> None:
    A = normal(5, rank) @ normal(5, rank).T
    g, h = block_factors(A, symmetric=True)
    assert np.array_equal(g, h)
    values = np.diag(g.T @ A @ g)
    np.testing.assert_allclose(g.T @ A @ g, np.diag(values), atol=1e-13)
    assert np.all(np.diff(values) <= 1e-13)


# ------------------------------------------------------------------------------------ supports


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("size", [3, 70])
def test_mix_supports(size: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    sets = [set(np.flatnonzero(random.random(size) < 0.1).tolist()) for _ in range(size)]
    bits = np.zeros((size, -(-size // 64)), dtype=np.uint64)
    for row, k in product(range(size), range(size)):
        if k in sets[row]:
            bits[row, k // 64] |= np.uint64(1) << np.uint64(k % 64)
    rows = np.sort(random.choice(size, 3, replace=False))
    factor = random.standard_normal((3, 3)) * (random.random((3, 3)) < 0.6)
    supports.mix_supports(bits, rows, factor)
    before = [sets[r] for r in rows.tolist()]
    for b, r in enumerate(rows.tolist()):
        sets[r] = set().union(*(before[a] for a in range(3) if factor[a, b]))
    for row in range(size):
        words = np.unpackbits(bits[row].view(np.uint8), bitorder="little")
        assert set(np.flatnonzero(words).tolist()) == sets[row]
