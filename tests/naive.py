"""The slow twin: Algorithm 1 and its kin in plain NumPy, sharing no code with the package.

`X` is `n x N`, features by samples; pairs `(i, j)` have `i < p` and `i < j < max(n, N)`. Where
`j >= n` there is no row `j` and where `j >= N` no column `j`: both count as zero. `p <= min(n, N)`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement, permutations
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Supports = list[set[int]]


@dataclass
class Run:
    """What a run of `m` transforms did; `X` is `U.T @ X0 @ V`, `support` counts the fill of `U_p`.

    `order[k]` is the row of the input that the loop called `k`: not the identity after a pivot.
    """

    pairs: Indices  # (m, 2)
    trace: Array  # (m,), after each transform
    support: Indices  # (m,), after each transform
    X: Array  # (n, N)
    U: Array  # (n, n)
    V: Array  # (N, N)
    order: Indices  # (n,)


@dataclass
class BlockRun:
    """What a run of block steps did; `X` is `U.T @ X0 @ V`."""

    indices: Indices  # (steps, 2p)
    trace: Array  # (steps,), after each step
    X: Array  # (n, N)
    U: Array  # (n, n)
    V: Array  # (N, N)


def scores(X: Array, p: int, selection: str) -> Array:
    """Score every pair: `(p, max(n, N))`, `-inf` where `j <= i`."""
    n, N = X.shape
    width = max(n, N)
    b, c, d = np.zeros((p, width)), np.zeros((p, width)), np.zeros(width)
    b[:, :N] = X[:p]
    c[:, :n] = X[:, :p].T
    d[: min(n, N)] = np.diag(X)
    a = d[:p, None]
    result = _score(a, b, c, d, selection)
    result[np.arange(width) <= np.arange(p)[:, None]] = -np.inf
    return result


def _score(a: Array, b: Array, c: Array, d: Array, selection: str) -> Array:
    """Score the 2x2 blocks `[[a, b], [c, d]]`; the result is `(p, width)`."""
    if selection == "kogbetliantz":
        return np.abs(b) + np.abs(c)
    rotation, reflection = np.hypot(a + d, b - c), np.hypot(a - d, b + c)
    nuclear: Array = np.maximum(rotation, reflection) - (a + d)
    if selection == "nuclear":
        return nuclear
    if selection == "gain":
        beyond = np.arange(d.size) >= a.size
        return np.where(beyond, (rotation + reflection) / 2 - a, nuclear)
    raise ValueError(f"selection={selection!r}: use 'nuclear', 'gain' or 'kogbetliantz'")


def best_pair(X: Array, p: int, selection: str) -> tuple[int, int, float]:
    """Find the pair with the best score, `(i, j, score)`; ties to the lowest `i`, then `j`."""
    return _argmax(scores(X, p, selection))


def _argmax(table: Array) -> tuple[int, int, float]:
    """Find the first largest entry in row-major order."""
    i, j = divmod(int(np.argmax(table)), table.shape[1])
    return i, j, float(table[i, j])


def factors(X: Array, i: int, j: int) -> tuple[Array, Array]:
    """Compute the 2x2 `G`, `H` that diagonalise the block of `(i, j)`: `M = G S H.T`."""
    n, N = X.shape
    if j >= n:
        return np.eye(2), _turn(X[i, i], X[i, j])
    if j >= N:
        return _turn(X[i, i], X[j, i]), np.eye(2)
    G, _, Ht = np.linalg.svd(X[np.ix_([i, j], [i, j])])
    return G, Ht.T


def _turn(x: float, y: float) -> Array:
    """Rotation `Q` with `[x, y] @ Q = [hypot(x, y), 0]`."""
    r = np.hypot(x, y)
    return np.array([[x, -y], [y, x]]) / r if r > 0 else np.eye(2)


def _apply(X: Array, U: Array, V: Array, indices: Sequence[int], G: Array, H: Array) -> None:
    """Do `X <- G.T X H`, `U <- U G`, `V <- V H` on those of `indices` that exist, in place."""
    rows = [k for k in indices if k < X.shape[0]]
    cols = [k for k in indices if k < X.shape[1]]
    G, H = G[: len(rows), : len(rows)], H[: len(cols), : len(cols)]
    X[rows] = G.T @ X[rows]
    X[:, cols] = X[:, cols] @ H
    U[:, rows] = U[:, rows] @ G
    V[:, cols] = V[:, cols] @ H


def _start(X: ArrayLike) -> tuple[Array, Array, Array]:
    """Copy `X`, with identities for `U` and `V` (by columns: untouched ones cost no memory)."""
    X = np.array(X, dtype=np.float64)
    return X, np.eye(X.shape[0], order="F"), np.eye(X.shape[1], order="F")


def _trace(X: Array, p: int) -> float:
    """Sum of the first `p` diagonal entries."""
    return float(np.diag(X)[:p].sum())


def _merge(supports: Supports, i: int, j: int) -> None:
    """Give columns `i` and `j` of `U` the union of their supports; no column `j`, no change."""
    if j < len(supports):
        supports[i] = supports[j] = supports[i] | supports[j]


def _fill(supports: Supports, p: int) -> int:
    """Count the structural nonzeros of the first `p` columns of `U`."""
    return sum(len(support) for support in supports[:p])


def batch_of_pairs(X: Array, p: int, selection: str, count: int) -> list[tuple[int, int]]:
    """Of the best pair of each row, those that share no index, best first; scores above zero."""
    table = scores(X, p, selection)
    ranked = sorted((-row.max(), i, int(np.argmax(row))) for i, row in enumerate(table))
    batch: list[tuple[int, int]] = []
    for loss, i, j in ranked:
        if loss < 0 and len(batch) < count and not {i, j} & {k for pair in batch for k in pair}:
            batch.append((i, j))
    return batch


def algorithm1(
    X: ArrayLike,
    p: int,
    m: int,
    selection: str,
    pairs: ArrayLike | None = None,
    batch_size: int = 1,
) -> Run:
    """Run Algorithm 1 for `m` transforms, or until no score is positive.

    Picks `batch_size` pairs at a time. With `pairs`, takes the first `m` of these in order,
    whatever their scores.
    """
    X, U, V = _start(X)
    supports: Supports = [{k} for k in range(X.shape[0])]
    given = None if pairs is None else np.asarray(pairs, dtype=np.int64)
    done: list[tuple[int, int]] = []
    trace: list[float] = []
    fill: list[int] = []
    batch: list[tuple[int, int]] = []
    for step in range(m if given is None else min(m, len(given))):
        if given is None:
            if not batch:
                batch = batch_of_pairs(X, p, selection, batch_size)
            if not batch:
                break
            i, j = batch.pop(0)
        else:
            i, j = int(given[step, 0]), int(given[step, 1])
        _apply(X, U, V, [i, j], *factors(X, i, j))
        _merge(supports, i, j)
        done.append((i, j))
        trace.append(_trace(X, p))
        fill.append(_fill(supports, p))
    return _run(done, trace, fill, X, U, V, np.arange(X.shape[0]))


def _run(
    pairs: list[tuple[int, int]],
    trace: list[float],
    fill: list[int],
    X: Array,
    U: Array,
    V: Array,
    order: Indices,
) -> Run:
    """Turn the lists of a loop into a `Run`."""
    picked = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Run(picked, np.array(trace), np.array(fill, dtype=np.int64), X, U, V, order)


def block_indices(X: Array, p: int, selection: str) -> Indices:
    """Choose the `2p` indices of a block step, sorted."""
    best = scores(X, p, selection).max(axis=0)
    chosen = set(range(p)) | set(np.argsort(-best, kind="stable")[:p].tolist())
    unused = [k for k in range(max(X.shape)) if k not in chosen]
    return np.array(sorted(chosen | set(unused[: 2 * p - len(chosen)])), dtype=np.int64)


def block_factors(X: Array, indices: Indices, symmetric: bool = False) -> tuple[Array, Array]:
    """Compute full SVD factors `G`, `H` of a block; the null space as the author's code has it."""
    n, N = X.shape
    M = X[np.ix_(indices[indices < n], indices[indices < N])]
    if symmetric:
        G = np.linalg.eigh((M + M.T) / 2)[1][:, ::-1]
        return G, G
    missing = max(M.shape[1] - M.shape[0], 0)
    G, _, Ht = scipy.linalg.svd(np.pad(M, ((0, missing), (0, 0))), lapack_driver="gesvd")
    return G[: len(M), : len(M)], Ht.T


def algorithm1_block(
    X: ArrayLike,
    p: int,
    steps: int,
    selection: str,
    *,
    indices: ArrayLike | None = None,
    symmetric: bool = False,
) -> BlockRun:
    """Run the block form of Algorithm 1 (Remark 4) for `steps` steps, of full rank.

    With `indices`, takes these in order, whatever the scores.
    """
    X, U, V = _start(X)
    width = min(2 * p, max(X.shape))
    taken, trace = np.zeros((steps, width), dtype=np.int64), np.zeros(steps)
    for step in range(steps):
        given = block_indices(X, p, selection) if indices is None else np.asarray(indices)[step]
        taken[step] = given
        G, H = block_factors(X, taken[step], symmetric)
        _apply(X, U, V, taken[step].tolist(), G, H)
        trace[step] = _trace(X, p)
    return BlockRun(taken, trace, X, U, V)


def preprocess(
    X: ArrayLike, center: str | None, normalize: str | None
) -> tuple[Array, Array, Array]:
    """Centre, then scale, each along "features", "samples" or not: `(Y, mean, scale)`.

    Features get unit population variance (constant ones keep scale 1), samples unit norm.
    """
    Y = np.array(X, dtype=np.float64)
    mean, scale = np.zeros(len(Y)), np.ones(len(Y))
    if center == "features":
        mean = Y.mean(axis=1)
        Y = Y - mean[:, None]
    elif center == "samples":
        Y = Y - Y.mean(axis=0)
    if normalize == "features":
        std = Y.std(axis=1)
        scale = np.where((std > 0) & (np.ptp(Y, axis=1) > 0), std, 1.0)
        Y = Y / scale[:, None]
    elif normalize == "samples":
        norm = np.linalg.norm(Y, axis=0)
        Y = Y / np.where(norm > 0, norm, 1.0)
    return Y, mean, scale


def covariance(
    X: ArrayLike, center: str | None, normalize: str | None
) -> tuple[Array, Array, Array]:
    """``Y Y^T`` of the centred and scaled samples, mean and scale."""
    Y, mean, scale = preprocess(X, center, normalize)
    return Y @ Y.T, mean, scale


def factor(
    X: ArrayLike, center: str | None, normalize: str | None, test: Array
) -> tuple[Array, Array]:
    """``B`` and ``d`` of ``A ~ B B^T + diag(d)`` from a sketch of `A` with `test`.

    Of scaled features `test` is multiplied by their scale first. `B` is the symmetric square root
    of the Nystroem form, unlike that of the package, whose ``B B^T`` it has.
    """
    A, _, scale = covariance(X, center, normalize)
    Q, _ = np.linalg.qr(A @ (test * scale[:, None]))
    return nystroem(A, Q)


def nystroem(A: Array, T: Array) -> tuple[Array, Array]:
    """``B`` and ``d`` of ``A ~ B B^T + diag(d)`` from ``A @ T`` alone."""
    C = A @ T
    low_rank = C @ np.linalg.pinv(T.T @ C, hermitian=True) @ C.T
    values, vectors = np.linalg.eigh((low_rank + low_rank.T) / 2)
    B = vectors * np.sqrt(np.maximum(values, 0))
    return B, np.maximum(np.diag(A) - np.sum(B**2, axis=1), 0)


def left_out_errors(T: Array, C: Array) -> Array:
    """Of samples with the products `T`: squared errors of each feature, predicted from the others.

    By the regression of a normal distribution with covariance `C`, from which feature j is deleted.
    """
    errors = np.empty(len(T))
    for j in range(len(T)):
        rest = np.delete(np.arange(len(T)), j)
        coefficients = np.linalg.solve(C[np.ix_(rest, rest)], C[rest, j])
        row = np.zeros(len(T))
        row[j], row[rest] = 1.0, -coefficients
        errors[j] = row @ T @ row
    return errors


def least_squares_errors(X: Array, U: Array) -> Array:
    """Squared errors of each feature of `X`, by the scores that fit the other features best."""
    errors = np.empty(len(X))
    for j in range(len(X)):
        rest = np.delete(np.arange(len(X)), j)
        scores = np.linalg.lstsq(U[rest], X[rest])[0]
        errors[j] = np.sum((X[j] - U[j] @ scores) ** 2)
    return errors


def best_order(U: Array, W: Array) -> tuple[int, ...]:
    """Which row of `W` stands for each row of `U`: the order with the largest sum of |u . w|."""
    orders = permutations(range(len(U)))
    return max(orders, key=lambda order: np.abs(np.sum(U * W[list(order)], axis=1)).sum())


def energy_order(A: Array, p: int) -> Indices:
    """Permutation with the `p` rows of largest `A[i, i]` first, the others in their order."""
    first = np.argsort(-np.diag(A), kind="stable")[:p]
    return np.concatenate([first, np.setdiff1d(np.arange(len(A)), first)])


def new_nonzeros(supports: Supports, p: int) -> Array:
    """Count, for every pair, the nonzeros that the move would add to `U_p`: `(p, n)`."""
    new = np.zeros((p, len(supports)))
    for i in range(p):
        for j in range(i + 1, len(supports)):
            union = len(supports[i] | supports[j])
            new[i, j] = union - len(supports[i]) + (union - len(supports[j]) if j < p else 0)
    return new


def greedy(
    X: ArrayLike,
    p: int,
    m: int,
    selection: str,
    *,
    fill_penalty: float = 0.0,
    max_nonzeros: int | None = None,
    max_per_component: int | None = None,
    order: ArrayLike | None = None,
    symmetric: bool = False,
) -> Run:
    """Run Algorithm 1 with penalised scores within a budget of nonzeros.

    `symmetric`: on a symmetric positive semidefinite matrix, with `G = H`. The loop has the rows
    (and, when symmetric, the columns) in `order`; pairs and the rows of `U` are numbered as in `X`.
    """
    X = np.array(X, dtype=np.float64)
    order = np.arange(len(X)) if order is None else np.array(order)
    X, U, V = _start(X[np.ix_(order, order)] if symmetric else X[order])
    n = len(X)
    supports: Supports = [{k} for k in range(n)]
    budget = p * n if max_nonzeros is None else max_nonzeros
    done: list[tuple[int, int]] = []
    trace: list[float] = []
    fill: list[int] = []
    while len(done) < m:
        new = np.zeros((p, max(X.shape)))
        new[:, :n] = new_nonzeros(supports, p)
        table = scores(X, p, selection) / (1 + new) ** fill_penalty
        table[new > budget - _fill(supports, p)] = -np.inf
        if max_per_component is not None:
            for i in range(p):
                for j in range(i + 1, n):
                    if len(supports[i] | supports[j]) > max_per_component:
                        table[i, j] = -np.inf
        i, j, score = _argmax(table)
        if score <= 0:
            break
        if symmetric:
            G = H = np.linalg.eigh(X[np.ix_([i, j], [i, j])])[1][:, ::-1]
        else:
            G, H = factors(X, i, j)
        _apply(X, U, V, [i, j], G, H)
        if j < n:
            mix_supports(supports, i, j, G)
        done.append((int(order[i]), int(order[j]) if j < n else j))
        trace.append(_trace(X, p))
        fill.append(_fill(supports, p))
    return _run(done, trace, fill, X, U[np.argsort(order)], V, order)


def mix_supports(supports: Supports, i: int, j: int, G: Array) -> None:
    """Mix columns `i` and `j` by `G`; what its exact zeros leave out joins nothing."""
    pair = supports[i], supports[j]
    supports[i], supports[j] = (
        set().union(*(s for s, factor in zip(pair, column, strict=True) if factor))
        for column in G.T
    )


# ------------------------------------------------------------------- the best sparse components


def most_explained(A: np.ndarray, p: int, K: int) -> float:
    """What `p` orthonormal columns with `K` nonzeros explain at most, over all supports.

    Exact for one component, and where supports are equal or disjoint; where they overlap each
    column in turn is the best one orthogonal to the others.
    """
    n = len(A)
    supports = [s for k in range(1, n + 1) for s in combinations(range(n), k)]
    best = 0.0
    for chosen in combinations_with_replacement(supports, p):
        if sum(map(len, chosen)) == min(K, p * n):
            best = max(best, _explained_on(A, [list(s) for s in chosen]))
    return best


def _explained_on(A: np.ndarray, supports: list[list[int]]) -> float:
    n, p = len(A), len(supports)
    U = np.zeros((n, p))
    reached = 0.0
    for _ in range(8):
        for c, support in enumerate(supports):
            others = np.delete(U, c, axis=1)[support]
            # orthonormal basis of what is orthogonal to the other columns on this support
            left, sizes, _ = np.linalg.svd(others, full_matrices=True)
            free = left[:, np.count_nonzero(sizes > 1e-9) :]
            if free.shape[1] == 0:
                return 0.0
            part = free.T @ A[np.ix_(support, support)] @ free
            U[:, c] = 0.0
            U[support, c] = free @ np.linalg.eigh(part)[1][:, -1]
        now = float(np.trace(U.T @ A @ U))
        if now <= reached * (1 + 1e-9):
            break
        reached = now
    return reached


def unpacked(numbers: NDArray[Any], attributes: dict[str, Any]) -> Array:
    """Values of packed numbers by the CF conventions, one by one, in Python's own arithmetic.

    NaN where one is missing. Bounds and codes may be those of the signed type that a number with
    `_Unsigned` is stored in.
    """
    bits = 8 * numbers.dtype.itemsize
    is_unsigned = attributes.get("_Unsigned") == "true"

    def as_stored(value: Any) -> Any:
        return value % 2**bits if is_unsigned else value

    values = []
    for number in map(as_stored, numbers.ravel().tolist()):
        codes = [attributes[key] for key in ("_FillValue", "missing_value") if key in attributes]
        low, high = attributes.get("valid_range", (-math.inf, math.inf))
        lows = (low, attributes.get("valid_min", -math.inf))
        highs = (high, attributes.get("valid_max", math.inf))
        is_missing = any(number == as_stored(code) for code in codes)
        is_missing |= any(number < as_stored(one) for one in lows if one != -math.inf)
        is_missing |= any(number > as_stored(one) for one in highs if one != math.inf)
        value = number * attributes.get("scale_factor", 1) + attributes.get("add_offset", 0)
        values.append(math.nan if is_missing else float(value))
    return np.array(values).reshape(numbers.shape)


def filled(X: Array) -> tuple[Array, Indices, Indices]:
    """Missing entries (NaN) as the means of their features, entry by entry, in Python's own sums.

    Returns the matrix without the features that have no value, which features it has, and how many
    entries of each were missing.
    """
    rows, kept, missing = [], [], []
    for i, row in enumerate(X.tolist()):
        there = [x for x in row if not math.isnan(x)]
        if there:
            mean = math.fsum(there) / len(there)
            rows.append([mean if math.isnan(x) else x for x in row])
            kept.append(i)
            missing.append(len(row) - len(there))
    return np.array(rows), np.array(kept), np.array(missing)


def scales_present(X: Array) -> Array:
    """Standard deviations of features over what is not NaN, the divisor how many that are."""
    scales = []
    for row in X.tolist():
        there = [x for x in row if not math.isnan(x)]
        mean = math.fsum(there) / len(there)
        scales.append(math.sqrt(math.fsum((x - mean) ** 2 for x in there) / len(there)))
    return np.array(scales)
