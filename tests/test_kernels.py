"""Kernels against plain NumPy and brute force; passes with and without ``NUMBA_DISABLE_JIT=1``."""

import itertools
import math
import os
import subprocess
import sys
from pathlib import Path

import naive
import numpy as np
import pytest
from helpers import reached
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from streamsvd.algorithm.log import TransformLog
from streamsvd.kernels import moments, products, rotations, scores, supports
from streamsvd.kernels import sparse as sparse_kernels
from streamsvd.matrix.partition import Partition
from streamsvd.passes.moments import Moments, add_up

JIT = os.environ.get("NUMBA_DISABLE_JIT", "0") == "0"
EXAMPLES = 500 if JIT else 40
EPS = 2.0**-53
"""Half a unit in the last place of 1."""

CODES = {
    "nuclear": scores.NUCLEAR,
    "gain": scores.GAIN,
    "kogbetliantz": scores.KOGBETLIANTZ,
}
SHAPES = [(6, 20), (20, 6), (7, 7), (1, 9), (9, 1), (1, 1), (2, 2)]

# ------------------------------------------------------------------------------------ 2x2 SVD

R = 0.6, 0.8
BLOCKS = {
    "zeros": [[0, 0], [0, 0]],
    "identity": [[1, 0], [0, 1]],
    "minus identity": [[-1, 0], [0, -1]],
    "rotation": [[R[0], -R[1]], [R[1], R[0]]],
    "rotation backwards": [[R[0], R[1]], [-R[1], R[0]]],
    "rotation by 180 degrees, nearly": [[-1, 1e-17], [-1e-17, -1]],
    "reflection": [[R[0], R[1]], [R[1], -R[0]]],
    "reflection of the first": [[-1, 0], [0, 1]],
    "reflection of the second": [[1, 0], [0, -1]],
    "swap": [[0, 1], [1, 0]],
    "swap with a sign": [[0, -1], [1, 0]],
    "wrong order": [[1, 0], [0, 2]],
    "negative": [[-3, 0], [0, -2]],
    "rank one": [[1, 2], [2, 4]],
    "rank one, no diagonal": [[0, 5], [0, 0]],
    "rank one, lower": [[0, 0], [-5, 0]],
    "rank one, second": [[0, 0], [0, -5]],
    "one row": [[3, 4], [0, 0]],
    "one column": [[3, 0], [4, 0]],
    "almost diagonal": [[2, 1e-9], [-1e-9, 1]],
    "almost equal": [[1, 1e-16], [0, 1 + 1e-15]],
    "negative zeros": [[-0.0, -0.0], [-0.0, -0.0]],
    "general": [[0.3, -1.7], [2.9, 0.4]],
    "graded": [[1, 1e-8], [1e-8, 1e-16]],
    "far apart": [[1, 1e-155], [1e-170, 1e-160]],
    "identity with a speck": [[1, 1e-160], [0, 1]],
    "reflection with a speck": [[1, 0], [-1e-160, -1]],
}
SCALES = [1.0, 1e-6, 1e6, 1e140, 1e-140, 1e-150, 1e-155, 3e-160, 1e-162, 1e-170, 1e-300]


svd_of_block = reached(rotations.svd_2x2)
eigen_of_block = reached(rotations.eigen_2x2)
rotation_of_pair = reached(rotations.rotation_to_first)
score_row = reached(scores.score_row)
tail_score = reached(scores.tail_score)


def rotation(c: float, s: float) -> np.ndarray:
    return np.array([[c, -s], [s, c]])


def svd_2x2(M: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    c, s, u, v, sign = svd_of_block(*(float(x) for x in M.ravel()))
    assert abs(sign) == 1
    return rotation(c, s), rotation(u, v) * [1, sign]


def check_svd(M: np.ndarray) -> None:
    left, right = svd_2x2(M)
    norm = np.abs(M).max()
    for factor in (left, right):
        assert np.max(np.abs(factor.T @ factor - np.eye(2))) <= 4 * EPS
    assert np.linalg.det(left) > 0
    unit = M / norm if norm > 0 else M
    S = left.T @ unit @ right
    tolerance = 16 * EPS
    assert abs(S[0, 1]) <= tolerance
    assert abs(S[1, 0]) <= tolerance
    assert S[0, 0] >= S[1, 1] - tolerance
    assert S[1, 1] >= -tolerance
    expected = np.linalg.svd(unit, compute_uv=False)
    assert np.max(np.abs(np.diag(S) - expected)) <= tolerance


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", BLOCKS)
def test_svd_2x2_of_special_blocks(name: str, scale: float) -> None:
    check_svd(np.array(BLOCKS[name], dtype=float) * scale)


ENTRY = st.floats(-1e140, 1e140) | st.floats(-10, 10) | st.sampled_from([0.0, 1.0, -1.0])


@settings(max_examples=EXAMPLES)
@given(st.lists(ENTRY, min_size=4, max_size=4))
def test_svd_2x2_of_any_block(entries: list[float]) -> None:
    check_svd(np.array(entries).reshape(2, 2))


def test_svd_2x2_leaves_nothing_of_a_diagonal_block_to_rounding() -> None:
    left, right = svd_2x2(np.diag([3.0, 2.0]))
    np.testing.assert_array_equal(left, np.eye(2))
    np.testing.assert_array_equal(right, np.eye(2))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(
    "block", [(2, 0, 1), (1, 0, 2), (1, 0, 1), (0, 0, 0), (2, 1, 1), (1, -1, 2), (1, 1, 1)]
)
def test_eigen_2x2(block: tuple[int, int, int], scale: float) -> None:
    a, b, d = (x * scale for x in block)
    g = rotation(*eigen_of_block(a, b, d))
    assert np.max(np.abs(g.T @ g - np.eye(2))) <= 4 * EPS
    M = np.array([[block[0], block[1]], [block[1], block[2]]], dtype=float)
    values = np.linalg.eigvalsh(M)[::-1]
    np.testing.assert_allclose(g.T @ M @ g, np.diag(values), rtol=0, atol=16 * EPS)
    if b == 0:  # supports stay apart
        assert np.count_nonzero(g) == 2


@settings(max_examples=EXAMPLES)
@given(ENTRY, ENTRY)
def test_rotation_to_first(a: float, b: float) -> None:
    check_rotation(a, b)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("pair", [(0, 0), (3, 4), (-3, 4), (0, -2), (-2, 0), (1, 1e-9), (1e-9, 1)])
def test_rotation_to_first_at_any_scale(pair: tuple[float, float], scale: float) -> None:
    check_rotation(pair[0] * scale, pair[1] * scale)


def check_rotation(a: float, b: float) -> None:
    Q = rotation(*rotation_of_pair(a, b))
    assert np.max(np.abs(Q.T @ Q - np.eye(2))) <= 4 * EPS
    assert np.linalg.det(Q) > 0
    norm = math.hypot(a, b)
    if norm == 0:
        np.testing.assert_array_equal(Q, np.eye(2))
        return
    turned = np.array([a / norm, b / norm]) @ Q
    coarse = 5e-324 / norm  # what the norm of numbers with few digits left is known to
    assert np.max(np.abs(turned - [1, 0])) <= 8 * EPS + 2 * coarse


def test_long_products_stay_orthonormal() -> None:
    """Rounding errors of the factors' norms must not have a bias: they would add up linearly."""
    random = np.random.default_rng(0)
    product = np.eye(2)
    count = 20_000 if JIT else 2000
    for k, M in enumerate(random.standard_normal((count, 2, 2))):
        product = product @ (rotation(*rotation_of_pair(*M[0])) if k % 2 else svd_2x2(M)[1])
    assert np.max(np.abs(product.T @ product - np.eye(2))) < 1e-13


# ------------------------------------------------------------------------------------- scores


ANY_FILL = np.empty((0, 0), dtype=np.int64), np.empty(0), 0
"""The arguments of `update_scores` where fill does not count."""


class State:
    """What the coordinator holds of a dense matrix `X`, by brute force."""

    def __init__(self, X: np.ndarray, p: int) -> None:
        n, N = X.shape
        m = min(n, N)
        self.left = np.array(X[:, :p].T, order="C")
        self.head = np.zeros((p, n), dtype=X.dtype)
        self.head[:, :m] = X[:p, :m]
        self.diag = np.zeros(n, dtype=X.dtype)
        self.diag[:m] = np.diag(X)
        self.scores = np.full((p, n), -np.inf)
        self.best = np.full(p, -1)

    def update(self, code: int, i: int, j: int) -> tuple[float, float]:
        values, pairs = np.zeros((1, 2)), np.array([[i, j]])
        scores.update_scores(
            code, self.head, self.left, self.diag, self.scores, self.best, pairs, *ANY_FILL, values
        )
        return values[0, 0], values[0, 1]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("selection", CODES)
def test_head_scores_are_the_naive_ones(
    selection: str, shape: tuple[int, int], dtype: type
) -> None:
    X = np.random.default_rng(1).standard_normal(shape).astype(dtype)
    for p in sorted({1, min(shape)}):
        state = State(X, p)
        state.update(CODES[selection], -1, -1)
        expected = naive.scores(X.astype(float), p, selection)[:, : shape[0]]
        np.testing.assert_array_equal(np.isfinite(state.scores), np.isfinite(expected))
        finite = np.isfinite(expected)
        np.testing.assert_allclose(state.scores[finite], expected[finite], atol=1e-14, rtol=0)
        for i, row in enumerate(expected):
            assert state.best[i] == (np.argmax(row) if finite[i].any() else -1)


@pytest.mark.parametrize("selection", CODES)
def test_tail_scores_are_the_naive_ones(selection: str) -> None:
    X = np.random.default_rng(2).standard_normal((4, 12))
    expected = naive.scores(X, 4, selection)
    for i in range(4):
        for j in range(4, 12):
            score = tail_score(CODES[selection], X[i, i], X[i, j])
            assert abs(score - expected[i, j]) < 1e-14


@settings(max_examples=EXAMPLES)
@given(*[st.just(0.0) | st.floats(1e-140, 1e140)] * 2)
def test_a_diagonal_block_scores_exactly_zero(a: float, d: float) -> None:
    zero, out = np.zeros(1), np.ones(1)
    for selection in ("nuclear", "kogbetliantz"):
        score_row(CODES[selection], a, zero, zero, np.array([d]), 1, 0, 1, out)
        assert out[0] == 0
    assert tail_score(scores.NUCLEAR, a, 0.0) == 0


def best_of(head: list[list[float]], tail: list[list[float]], where: list[list[int]]) -> tuple:
    """The first of `best_pairs`; with diagonals of 0 a tail entry scores its absolute value."""
    table = np.array(head)
    head_best = np.array([int(np.argmax(r)) if np.isfinite(r).any() else -1 for r in table])
    pairs, values = np.full((1, 2), -1), np.zeros(1)
    work, places = np.empty((2, len(table))), np.empty(len(table), dtype=np.int64)
    scores.best_pairs(
        scores.NUCLEAR,
        np.zeros(len(table)),
        table,
        head_best,
        np.array(tail),
        np.array(where),
        np.empty((0, 0), dtype=np.int64),
        0,
        -1.0,
        work,
        places,
        pairs,
        values,
    )
    return int(pairs[0, 0]), int(pairs[0, 1]), float(values[0])


NO = -np.inf


@pytest.mark.parametrize(
    ("scores", "tail", "where", "expected"),
    [
        ([[NO, 2.0], [NO, NO]], [[1.0, 1.0]], [[4, 5]], (0, 1, 0.0)),
        ([[NO, 2.0], [NO, NO]], [[-3.0, 1.0]], [[4, 5]], (0, 4, -3.0)),
        ([[NO, 2.0], [NO, NO]], [[2.0, 2.0]], [[4, 5]], (0, 1, 0.0)),  # the head is lower
        ([[NO, 1.0], [NO, NO]], [[2.0, -2.0]], [[4, 3]], (0, 4, 2.0)),  # the lower i
        ([[NO, 0.0], [NO, NO]], [[1, 0], [-1, 0]], [[4, 5], [7, 8]], (0, 4, 1.0)),
        ([[NO, 0.0], [NO, NO]], [[1, 0], [-2, 0]], [[4, 5], [7, 8]], (0, 7, -2.0)),
        ([[NO, 0.0], [NO, NO]], [[0, 0], [-2, 0]], [[-1, -1], [7, 8]], (0, 7, -2.0)),
        ([[NO, NO], [NO, NO]], [[0.0, 0.0]], [[-1, -1]], (-1, -1, 0.0)),
        ([[NO, NO], [NO, NO]], [[0.0, 0.0]], [[3, 4]], (0, 3, 0.0)),
    ],
)
def test_best_pair_ties_go_to_the_lowest(
    scores: list, tail: list, where: list, expected: tuple
) -> None:
    tail_value = [[float(x) for x in row] for row in tail]
    assert best_of(scores, tail_value, where) == expected


# ------------------------------------------------------------------- the books of a long run

C, S = math.cos(0.7), math.sin(0.7)
MOVES = [
    np.array(m, dtype=float)
    for m in (
        [[1, 0], [0, 1]],
        [[0, -1], [1, 0]],
        [[0, 1], [1, 0]],
        [[1, 0], [0, -1]],
        [[C, -S], [S, C]],
        [[C, S], [S, -C]],
    )
]
"""The first four keep numbers apart from signs: ties and near-ties all along."""


def rotate(x: np.ndarray, y: np.ndarray, f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``[x, y] @ f`` with the roundings of the kernels."""
    u, v = x.astype(float), y.astype(float)
    return (
        (f[0, 0] * u + f[1, 0] * v).astype(x.dtype),
        (f[0, 1] * u + f[1, 1] * v).astype(x.dtype),
    )


def move(X: np.ndarray, i: int, j: int, g: np.ndarray, h: np.ndarray) -> np.ndarray:
    """``X <- G^T X H`` in place, rows first; column i as it is between the two."""
    if j < X.shape[0]:
        X[i], X[j] = rotate(X[i].copy(), X[j].copy(), g)
    column = X[:, i].copy()
    if j < X.shape[1]:
        X[:, i], X[:, j] = rotate(X[:, i].copy(), X[:, j].copy(), h)
    return column


def draw_moves(random: np.random.Generator, n: int, N: int, p: int, count: int, kind: str):
    """Random moves ``(i, j, g, h)``: j below p, below n and in the tail in turn."""
    limits = (p, n, max(n, N))
    moves = MOVES if kind == "normal" else MOVES[:4]
    for k in range(count):
        i = int(random.integers(min(p, max(n, N) - 1)))
        limit = limits[k % 3]
        j = int(random.integers(i + 1, limit if limit > i + 1 else max(n, N)))
        g = moves[random.integers(len(moves))] if j < n else np.eye(2)
        h = moves[random.integers(len(moves))] if j < N else np.eye(2)
        yield i, j, g, h


def numbers(kind: str, random: np.random.Generator, shape: tuple[int, int], dtype) -> np.ndarray:
    """Ties, numbers that differ in their last bits, or numbers without structure."""
    if kind == "ties":
        return random.integers(-3, 4, shape).astype(dtype)
    if kind == "near ties":
        last_bits = 1 + random.integers(0, 4, shape) * np.finfo(dtype).eps
        return (last_bits * random.choice([-1, 1], shape)).astype(dtype)
    return random.standard_normal(shape).astype(dtype)


SPAN = rotations.SPAN


@pytest.mark.parametrize("kind", ["ties", "near ties", "normal"])
@pytest.mark.parametrize("apart", [False, True], ids=["whole", "apart"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("n", "N", "p", "width"),
    [
        (5, 40, 3, 7),
        (5, 40, 3, 40),
        (5, 40, 5, 1),
        (12, 5, 3, 2),
        (1, 30, 1, 4),
        (4, 2 * SPAN + 9, 2, 2 * SPAN + 9),
        (4, 2 * SPAN + 9, 2, SPAN),
        (4, 2 * SPAN + 9, 2, SPAN + 1),
        (4, SPAN + 5, 3, SPAN - 1),
    ],
)
def test_partitions_know_their_largest_tail_entries(
    n: int, N: int, p: int, width: int, dtype: type, kind: str, apart: bool
) -> None:
    random = np.random.default_rng(n + N + width)
    X = numbers(kind, random, (n, N), dtype)
    blocks = []
    for start in range(0, N, width):
        block = np.full((n, width), np.nan, dtype=dtype)  # padding is never read
        block[:, : min(width, N - start)] = X[:, start : start + width]
        blocks.append(block)
    tops = [block[:p].copy() for block in blocks] if apart else None
    if apart:
        for block in blocks:
            block[:p] = np.nan  # nor is what the top rows replace
    partition = Partition(blocks, 0, N, p, tops)
    partition.start_up()
    check_tail(partition, X, p)
    for i, j, g, h in draw_moves(random, n, N, p, 60, kind):
        column = move(X, i, j, g, h)
        report = partition.apply(np.array([[i, j]]), g[None], h[None], column[None])
        check_tail(partition, X, p)
        check_report(report, X, [(i, j)], p)
        held = np.concatenate(partition.chunks, axis=1)
        held[:p] = np.concatenate(partition.tops, axis=1)
        np.testing.assert_array_equal(held[:, p:N], X[:, p:])


def check_tail(partition: Partition, X: np.ndarray, p: int) -> None:
    n, N = X.shape
    for i in range(p):
        if n >= N:
            assert partition.tail_where[i] == -1
            continue
        where = n + int(np.argmax(np.abs(X[i, n:])))
        assert partition.tail_where[i] == where
        assert partition.tail_value[i] == X[i, where]


def check_report(report, X: np.ndarray, moves: list[tuple[int, int]], p: int) -> None:
    """Columns below `p` are the coordinator's; the partition's copy of them is stale."""
    n, N = X.shape
    rows = [row for i, j in moves if j < n for row in (i, j) if row < p]
    if rows:
        np.testing.assert_array_equal(report.head_rows[:, p:], X[rows, p : min(n, N)])
    else:
        assert report.head_rows is None
    assert report.rows == rows
    assert report.held == [k for k, (_, j) in enumerate(moves) if p <= j < N]
    np.testing.assert_array_equal(report.columns, X[:, [moves[k][0] for k in report.held]].T)
    assert report.heads == [j for _, j in moves if p <= j < min(n, N)]
    if report.heads:
        tops, diagonal = X[:p, report.heads], X[report.heads, report.heads]
        np.testing.assert_array_equal(report.head_columns, np.vstack([tops, diagonal]).T)
    else:
        assert report.head_columns is None


@pytest.mark.parametrize("kind", ["ties", "near ties", "normal"])
@pytest.mark.parametrize("shape", [(9, 30), (30, 9), (8, 8), (1, 9), (9, 1)])
@pytest.mark.parametrize("selection", CODES)
def test_updated_scores_have_the_bits_of_new_ones(
    selection: str, shape: tuple[int, int], kind: str
) -> None:
    n, N = shape
    p = min(n, N, 4)
    random = np.random.default_rng(n)
    X = numbers(kind, random, shape, np.float64)
    kept = State(X, p)
    kept.update(CODES[selection], -1, -1)
    for i, j, g, h in draw_moves(random, n, N, p, 60, kind):
        move(X, i, j, g, h)
        new = State(X, p)
        new.update(CODES[selection], -1, -1)
        kept.left[:] = new.left
        kept.head[i, p:] = new.head[i, p:]
        if j < p:
            kept.head[j, p:] = new.head[j, p:]
        if p <= j < n:
            kept.head[:, j], kept.diag[j] = new.head[:, j], new.diag[j]
        values = kept.update(CODES[selection], i, j)
        for mine, theirs in zip(vars(kept).values(), vars(new).values(), strict=True):
            np.testing.assert_array_equal(mine, theirs)
        assert values == (X[i, i], X[j, j] if j < min(n, N) else 0.0)


# ------------------------------------------------------------------------- sums over samples


def cuts(random: np.random.Generator, N: int) -> list[int]:
    inner = random.integers(0, N + 1, random.integers(0, 12))
    return [0, *sorted(inner.tolist()), N]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("N", [1, 7, 8, 9, 1000, 2 * moments.FLUSH + 13])
def test_moments_have_the_same_bits_for_any_cuts(N: int, dtype: type) -> None:
    random = np.random.default_rng(N)
    X = (random.standard_normal((2, N)) * 10 ** random.uniform(-5, 5, (2, 1))).astype(dtype)
    whole = Moments(2, N, X[:, 0])
    whole.add(0, X)
    expected = [part.tobytes() for part in whole.leaves]
    for _ in range(10 if JIT else 3):
        parts = Moments(2, N, X[:, 0])
        bounds = cuts(random, N)
        for start, stop in itertools.pairwise(bounds):
            padded = np.full((2, stop - start + 3), np.nan, dtype=dtype)
            padded[:, : stop - start] = X[:, start:stop]
            parts.add(start, padded, stop - start)
        assert [part.tobytes() for part in parts.leaves] == expected


@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_moments_are_accurate(offset: float) -> None:
    N = 200_000 if JIT else 10_000
    X = np.random.default_rng(3).standard_normal((2, N)) + offset
    moments = Moments(2, N)
    moments.add(0, X)
    sums, squares = add_up(moments.leaves)
    for i in range(2):
        z = X[i] - X[i, 0]
        size = math.fsum(np.abs(z))
        assert abs(sums[i] - math.fsum(z)) <= 100 * EPS * size
        assert abs(squares[i] - math.fsum(z * z)) <= 100 * EPS * math.fsum(z * z)


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        (moments.center_samples, ("samples", None)),
        (moments.normalize_samples, (None, "samples")),
    ],
)
@pytest.mark.parametrize(("dtype", "atol"), [(np.float64, 1e-15), (np.float32, 1e-6)])
def test_samples_are_centred_and_normalized(kernel, options, dtype: type, atol: float) -> None:
    X = np.random.default_rng(4).standard_normal((6, 11)).astype(dtype)
    X[:, 3] = 0
    done = X.copy()
    kernel(done)
    np.testing.assert_allclose(done, naive.preprocess(X, *options)[0], atol=atol)
    for k in range(X.shape[1]):
        alone = np.array(X[:, k : k + 1], order="C")
        kernel(alone)
        np.testing.assert_array_equal(alone[:, 0], done[:, k])


# ------------------------------------------------------------------------------ the transforms

EXACT_ZEROS = [np.eye(2), np.array([[0.0, 1.0], [1.0, 0.0]]), np.diag([1.0, -1.0])]


def random_log(n: int, N: int, p: int, m: int, seed: int) -> TransformLog:
    """A log of random pairs; of the factors a third has exact zeros."""
    random = np.random.default_rng(seed)
    pairs, sides = np.zeros((m, 2), dtype=np.int64), np.zeros((2, m, 2, 2))
    for k in range(m):
        i = int(random.integers(p))
        j = int(random.integers(i + 1, max(n, N)))
        pairs[k] = i, j
        for factors, size in zip(sides, (n, N), strict=True):
            if j >= size:
                factors[k] = np.eye(2)
            elif random.random() < 1 / 3:
                factors[k] = EXACT_ZEROS[random.integers(3)]
            else:
                angle = random.uniform(0.1, 1.4)
                c, s = math.cos(angle), math.sin(angle)
                factors[k] = [[c, -s], [s, c]]
    log = TransformLog(p, n, N)
    log.extend(pairs, *sides, np.zeros((m, 2)))
    return log


def product_and_supports(log: TransformLog, side: str) -> tuple:
    """First p columns of the product, and of their supports after each transform, with sets."""
    size = log.n_features if side == "g" else log.n_samples
    p = log.n_components
    U = np.eye(size)
    supports = [{k} for k in range(size)]
    fill = []
    for k, (i, j) in enumerate(log.pairs.tolist()):
        if j < size:
            F = getattr(log, side)[k]
            U[:, [i, j]] = U[:, [i, j]] @ F
            old = supports[i], supports[j]
            for column, place in ((0, i), (1, j)):
                supports[place] = set().union(*(old[r] for r in (0, 1) if F[r, column] != 0))
        fill.append(sum(len(s) for s in supports[:p]))
    return U[:, :p], supports[:p], np.array(fill)


@pytest.mark.parametrize(
    ("n", "N", "p", "m"),
    [
        (20, 50, 4, 60),
        (50, 20, 4, 60),
        (200, 10, 10, 150),
        (3, 4, 3, 30),
        (2, 1, 1, 5),
        (70, 66, 66, 90),
    ],
)
def test_log_gives_products_and_supports(monkeypatch, n: int, N: int, p: int, m: int) -> None:
    """Slices of 64 features and words of 64 components are both passed by some case."""
    monkeypatch.setattr("streamsvd.algorithm.log.SLICE", 64)
    log = random_log(n, N, p, m, seed=n + N)
    with np.errstate(over="ignore"):  # without the JIT, NumPy sees the overflow of `popcount`
        counts = log.n_nonzeros(m)
    for side, rows in (("g", log.components(m)), ("h", log.right_vectors(m))):
        U, supports, fill = product_and_supports(log, side)
        np.testing.assert_allclose(rows.toarray(), U.T, atol=1e-14)
        stored = [
            set(rows.indices[a:b].tolist())
            for a, b in zip(rows.indptr[:-1], rows.indptr[1:], strict=True)
        ]
        assert stored == supports
        if side == "g":
            np.testing.assert_array_equal(counts, fill)
            assert counts[-1] == rows.nnz


@settings(max_examples=EXAMPLES)
@given(st.lists(st.integers(0, 2**64 - 1), max_size=5))
def test_popcount(words: list[int]) -> None:
    with np.errstate(over="ignore"):
        found = supports.popcount(np.array(words, dtype=np.uint64))
    assert found == sum(word.bit_count() for word in words)


def test_trace_path_is_the_sum_of_the_diagonal() -> None:
    random = np.random.default_rng(6)
    pairs = np.array([(0, 1), (1, 7), (0, 2), (2, 3)])
    values, diag = random.standard_normal((4, 2)), random.standard_normal(3)
    expected, now = [], diag.copy()
    for (i, j), (a, d) in zip(pairs, values, strict=True):
        now[i] = a
        if j < 3:
            now[j] = d
        expected.append(now.sum())
    out = np.empty(4)
    products.trace_path(diag, pairs, values, out)
    np.testing.assert_allclose(out, expected, rtol=1e-15)
    np.testing.assert_array_equal(diag, now)


# ----------------------------------------------------------------------------- sparse samples


def sparse_samples(n_samples: int, n: int, seed: int = 0) -> sparse.csr_array:
    random = np.random.default_rng(seed)
    X = random.standard_normal((n_samples, n)) * (random.random((n_samples, n)) < 0.3)
    return sparse.csr_array(X)


def test_sparse_products() -> None:
    S, random = sparse_samples(17, 9), np.random.default_rng(1)
    test, products = random.standard_normal((9, 11)), random.standard_normal((9, 11))
    expected = products + S.T @ (S @ test)
    samples = (S.indptr, S.indices, S.data)
    whole, parts = products.copy(), products.copy()
    sparse_kernels.add_sparse_products(*samples, test, whole, 0, 11)
    np.testing.assert_allclose(whole, expected, rtol=1e-13, atol=1e-14)
    for lo, hi in [(0, 4), (4, 7), (7, 17)]:
        for first, stop in [(0, 8), (8, 11)]:
            part = (S.indptr[lo : hi + 1], S.indices, S.data)
            sparse_kernels.add_sparse_products(*part, test, parts, first, stop)
    assert parts.tobytes() == whole.tobytes()


@pytest.mark.parametrize("turns", [1, 2, 5])
def test_sparse_gram(turns: int) -> None:
    S = sparse_samples(17, 9)
    gram = np.zeros((9, 9))
    for turn in range(turns):
        sparse_kernels.add_sparse_gram(S.indptr, S.indices, S.data, gram, turn, turns)
    np.testing.assert_allclose(gram, np.tril((S.T @ S).toarray()), rtol=1e-13, atol=1e-14)


def test_sparse_moments_and_norms() -> None:
    S = sparse_samples(17, 9)
    S.data[S.indptr[3] : S.indptr[4]] = 0
    shift, found, dense = np.arange(9.0), np.zeros((3, 9)), S.toarray()
    sparse_kernels.add_sparse_moments(S.indptr, S.indices, S.data, shift, found)
    there = np.zeros((17, 9), dtype=bool)
    there[np.repeat(np.arange(17), np.diff(S.indptr)), S.indices] = True
    z = np.where(there, dense - shift, 0)
    expected = [z.sum(axis=0), (z**2).sum(axis=0), there.sum(axis=0)]
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)
    sparse_kernels.normalize_sparse(S.indptr, S.data)
    norms = np.linalg.norm(dense, axis=1, keepdims=True)
    np.testing.assert_allclose(S.toarray(), dense / np.where(norms > 0, norms, 1), rtol=1e-14)


@pytest.mark.parametrize("width", [1, 7, 8, 29])
def test_row_moments(width: int) -> None:
    z = np.random.default_rng(0).standard_normal((5, width))
    found = np.ones((3, 5))
    moments.add_row_moments(z, found)
    expected = [z.sum(axis=1), (z**2).sum(axis=1), np.full(5, width)]
    np.testing.assert_allclose(found, 1 + np.array(expected), rtol=1e-13, atol=1e-14)


# -------------------------------------------------------------------------------- without JIT


@pytest.mark.slow
@pytest.mark.skipif(not JIT, reason="this is the run without the JIT")
def test_all_this_without_the_jit() -> None:
    command = [
        sys.executable,
        "-P",
        "-m",
        "pytest",
        __file__,
        str(Path(__file__).with_name("test_tiles.py")),
        "-m",
        "not slow",
        "-p",
        "no:cacheprovider",
    ]
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout[-3000:]
    assert " passed" in run.stdout
