"""Fill that counts: supports against Python sets, budgets and penalties against the slow twin."""

import itertools
import math
import shutil
from pathlib import Path
from typing import Any

import naive
import numpy as np
import pytest
from helpers import PLACES, blocks_of, differences, normal, write_zarr
from hypothesis import given
from hypothesis import strategies as st
from test_sparse_pca import changed

from streamsvd import OptionError, SVDResult, sparse_svd
from streamsvd.algorithm.log import STRETCH, TransformLog, reached
from streamsvd.algorithm.supports import Supports
from streamsvd.cluster import forms
from streamsvd.kernels import supports
from streamsvd.passes.moments import pivot_order
from streamsvd.passes.preprocessing import Preprocessing

# ------------------------------------------------------------------------- against Python sets


def rotation(zeros: int, angle: float = 0.3) -> np.ndarray:
    """A 2x2 factor: of a general angle (0), the identity (1), an exchange (2)."""
    c, s = ((math.cos(angle), math.sin(angle)), (1.0, 0.0), (0.0, 1.0))[zeros]
    return np.array([[c, -s], [s, c]])


@st.composite
def joins(draw: st.DrawFn) -> tuple[int, int, list[tuple[int, int, int]]]:
    """`p`, `n` and transforms (i, j, kind of factor), some beyond the rows."""
    n = draw(st.sampled_from([1, 2, 5, 63, 64, 65, 130]))
    p = draw(st.integers(1, min(n, 5)))
    moves = []
    for _ in range(draw(st.integers(0, 40)) if n > 1 else 0):
        i = draw(st.integers(0, min(p, n - 1) - 1))
        j = draw(st.integers(i + 1, min(n + 3, i + 12) - 1))
        moves.append((i, j, draw(st.sampled_from([0, 0, 0, 1, 2]))))
    return p, n, moves


def check_state(made: Supports, sets: list[set[int]], p: int) -> None:
    n = len(sets)
    assert made.n_nonzeros == sum(len(s) for s in sets[:p])
    assert made.room == min(made.max_nonzeros - made.n_nonzeros, 2 * n - 1)
    expected = naive.new_nonzeros(sets, p)
    for i in range(p):
        np.testing.assert_array_equal(made.added[i, i + 1 : n], expected[i, i + 1 :])


@given(joins())
def test_joins_are_unions_of_sets(drawn: tuple[int, int, list[tuple[int, int, int]]]) -> None:
    p, n, moves = drawn
    made, sets = Supports(p, n, 0.5, 10**6), [{k} for k in range(n)]
    log = TransformLog(p, n, n + 3)
    check_state(made, sets, p)
    for i, j, kind in moves:
        g = rotation(kind) if j < n else rotation(1)
        log.extend(np.array([[i, j]]), g[None], np.eye(2)[None], np.zeros((1, 2)))
        if j < n:
            made.join(i, j, g)
            naive.mix_supports(sets, i, j, g)
            check_state(made, sets, p)
    assert log.n_nonzeros(len(log))[-1:].tolist() == ([made.n_nonzeros] if moves else [])
    assert log.components(len(log)).nnz == made.n_nonzeros
    replayed = Supports(p, n, 0.5, 10**6)
    replayed.replay(log)
    check_state(replayed, sets, p)
    np.testing.assert_array_equal(replayed.added, made.added)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 3.0])
def test_weights(alpha: float) -> None:
    made = Supports(2, 50, alpha, 30)
    added = np.arange(101)
    np.testing.assert_allclose(made.weights, (1.0 + added) ** -alpha, rtol=1e-15)


# ----------------------------------------------------------------------- against the slow twin

N_FEATURES, P = 24, 3
SHAPES = {"wide": (N_FEATURES, 90), "square": (N_FEATURES, N_FEATURES), "tall": (N_FEATURES, 9)}


def data(shape: str = "wide") -> np.ndarray:
    n, n_samples = SHAPES[shape]
    return normal(n, n_samples) * np.linspace(1, 2, n)[:, None]


def in_features(result: SVDResult) -> np.ndarray:
    """Pairs in terms of the features of the source."""
    pairs = result.pairs.copy()
    rows = pairs[:, 1] < result.n_features
    pairs[rows, 1] = result.log.order[pairs[rows, 1]]
    pairs[:, 0] = result.log.order[pairs[:, 0]]
    return pairs


def twin_of(result: SVDResult, X: np.ndarray, m: int) -> naive.Run:
    """The same by the slow twin."""
    settings = result.settings
    return naive.greedy(
        X @ X.T if result.is_reduced else X,
        result.n_components,
        m,
        settings["selection"],
        fill_penalty=settings["fill_penalty"],
        max_nonzeros=settings["max_nonzeros"],
        max_per_component=settings["max_nonzeros_per_component"],
        order=result.log.order,
        symmetric=result.is_reduced,
    )


def check_path(result: SVDResult, twin: naive.Run, at_each: int = 7) -> None:
    """The pairs of the twin, its objective and its fill; supports counted four ways agree."""
    p, m = result.n_components, until_rounding(twin)
    assert len(result.log) >= m  # beyond it, either may go on with rounding errors
    np.testing.assert_array_equal(in_features(result)[:m], twin.pairs[:m])
    np.testing.assert_allclose(result.history.trace[:m], twin.trace[:m], rtol=1e-10)
    np.testing.assert_array_equal(result.history.n_nonzeros[:m], twin.support[:m])
    for k in {*range(0, m, at_each), m}:
        here = result.at(k)
        counted = Supports(p, result.n_features, 0.0, 10**6)
        counted.replay(prefix(result.log, k))
        assert here.components.nnz == here.n_nonzeros == counted.n_nonzeros
        assert counted.n_nonzeros == (twin.support[k - 1] if k else p)
    columns = twin.U[:, :p].T
    for row in result.components.toarray():
        assert np.abs(columns @ row).max() == pytest.approx(1, abs=1e-9)


def until_rounding(twin: naive.Run) -> int:
    """Transforms before the first that gains nothing but a rounding error."""
    gains = np.diff(twin.trace) > 1e-12 * twin.trace[1:]
    return min(len(twin.trace), 1 + int(np.argmin(np.append(gains, False))))


def prefix(log: TransformLog, k: int) -> TransformLog:
    part = TransformLog(log.n_components, log.n_features, log.n_samples)
    part.extend(log.pairs[:k], log.g[:k], log.h[:k], log.values[:k])
    return part


ENGINES = [
    ("gram", "gain"),
    ("gram", "kogbetliantz"),
    (None, "nuclear"),
    (None, "gain"),
    (None, "kogbetliantz"),
]


@pytest.mark.parametrize("pivot", [False, True])
@pytest.mark.parametrize("budget", [None, 3, 4, 10, 31])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("reduction", "selection"), ENGINES)
def test_greedy_path(
    reduction: str | None, selection: str, alpha: float, budget: int | None, pivot: bool
) -> None:
    X = data()
    result = sparse_svd(
        X,
        P,
        n_transforms=60,
        reduction=reduction,
        selection=selection,
        fill_penalty=alpha,
        max_nonzeros=budget,
        pivot=pivot,
    )
    check_path(result, twin_of(result, X, 60))
    assert budget is None or result.n_nonzeros <= budget


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("p", [1, 5])
@pytest.mark.parametrize("place", PLACES)
def test_greedy_path_in_blocks(shape: str, p: int, place: str, tmp_path: Path) -> None:
    """In place, for data with and without a tail, in memory and on disk."""
    X = data(shape)
    path = write_zarr(tmp_path / "x.zarr", X, (N_FEATURES, 5))
    with blocks_of(7, place):
        result = sparse_svd(path, p, n_transforms=50, fill_penalty=0.5, max_nonzeros=20, pivot=True)
    check_path(result, twin_of(result, X, 50))
    whole = sparse_svd(X, p, n_transforms=50, fill_penalty=0.5, max_nonzeros=20, pivot=True)
    assert differences(result, whole) == []


@pytest.mark.parametrize("n", [70, 129])
def test_more_features_than_bits_in_a_word(n: int) -> None:
    X = normal(n, 200) * np.linspace(1, 3, n)[:, None]
    for reduction in ("gram", None):
        options: dict[str, Any] = {"max_nonzeros": 150, "fill_penalty": 0.5, "pivot": True}
        result = sparse_svd(X, 4, n_transforms=120, reduction=reduction, **options)
        check_path(result, twin_of(result, X, 120), at_each=40)


@pytest.mark.parametrize(("reduction", "selection"), ENGINES)
def test_no_penalty_and_no_budget_change_nothing(reduction: str | None, selection: str) -> None:
    """Scores times a weight of one, and a budget that all pairs fit in, have the same bits."""
    X = data()
    options: dict[str, Any] = {"n_transforms": 80, "reduction": reduction, "selection": selection}
    counted = sparse_svd(X, P, max_fill=1.0, **options)
    assert changed(counted, sparse_svd(X, P, **options)) == []


# ----------------------------------------------------------------------------------- the budget


def open_pairs(result: SVDResult, X: np.ndarray) -> list[tuple[int, int, float]]:
    """Pairs that would gain and fit when the run ended, scored from the source anew."""
    A, n, p = X @ X.T, result.n_features, result.n_components
    order, sets = result.log.order, [{k} for k in range(len(X))]
    U = np.eye(n)[:, order]
    for (i, j), g in zip(result.pairs.tolist(), result.log.g, strict=False):
        U[:, [i, j]] = U[:, [i, j]] @ g
        naive.mix_supports(sets, i, j, g)
    table = naive.scores(U.T @ A @ U, p, "gain")
    fits = naive.new_nonzeros(sets, p) <= result.settings["max_nonzeros"] - result.n_nonzeros
    enough = table > result.settings["tol"] * np.trace(A) * 2
    return [(int(i), int(j), float(table[i, j])) for i, j in np.argwhere(fits & enough)]


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("budget", [*range(3, 14), 20, 40, 71, 72])
def test_the_budget_is_never_passed_and_used_as_far_as_possible(
    budget: int, alpha: float, batch_size: int
) -> None:
    X = data()
    # the penalty divides the score that tol is compared with
    tol = 1e-9
    options: dict[str, Any] = {"reduction": "gram", "fill_penalty": alpha, "pivot": True}
    options |= {"batch_size": batch_size, "tol": tol}
    result = sparse_svd(X, P, max_nonzeros=budget, n_transforms=5000, **options)
    assert result.stopped in ("budget", "converged")
    assert np.all(result.history.n_nonzeros <= budget)
    if alpha == 0:
        assert open_pairs(result, X) == []
    # with no pair added at a time that would pass it, at most the largest support is left over
    assert budget - result.n_nonzeros <= N_FEATURES // 2


@pytest.mark.parametrize("fill", [0.05, 0.3, 0.6, 1.0])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_the_budget_ends_the_run(fill: float, alpha: float) -> None:
    """By default, as documented: not a million transforms that turn rounding errors about."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamsvd.options.options.MOST_TRANSFORMS", 20_000)
        options: dict[str, Any] = {"reduction": "gram", "fill_penalty": alpha}
        result = sparse_svd(normal(30, 200), 3, max_fill=fill, **options)
    assert result.stopped == ("budget" if fill < 1 else "converged")


@pytest.mark.parametrize("cap", [1, 2, 5, 24])
@pytest.mark.parametrize("reduction", [None, "gram"])
@pytest.mark.parametrize("budget", [None, 9])
def test_no_component_passes_its_limit(cap: int, reduction: str | None, budget: int | None) -> None:
    X = data()
    result = sparse_svd(
        X,
        P,
        n_transforms=60,
        reduction=reduction,
        selection="gain",
        fill_penalty=0.5,
        max_nonzeros=budget,
        max_nonzeros_per_component=cap,
    )
    check_path(result, twin_of(result, X, 60))
    sizes = np.diff(result.components.indptr)
    assert sizes.max() <= cap
    assert budget is None or sizes.sum() <= budget
    if cap < 24 and budget is None:
        assert (sizes == cap).any()


@pytest.mark.parametrize(("reduction", "selection"), ENGINES)
@pytest.mark.parametrize("budget", [{"max_nonzeros": 7}, {"max_fill": 0.1}])
def test_the_budget_holds_for_every_selection(
    budget: dict[str, Any], reduction: str | None, selection: str
) -> None:
    options: dict[str, Any] = {"n_transforms": 50, "reduction": reduction, "selection": selection}
    result = sparse_svd(data(), P, **options, **budget)
    assert result.n_nonzeros <= 7
    assert np.all(result.history.n_nonzeros <= 7)


@pytest.mark.parametrize("reduction", ["gram", None])
@pytest.mark.parametrize("budget", [{"max_nonzeros": 7}, {"max_fill": 0.1}, {"fill_penalty": 1.0}])
def test_random_pairs_do_not_see_fill(budget: dict[str, Any], reduction: str | None) -> None:
    """They would pass any budget: refused, not ignored."""
    options: dict[str, Any] = {"n_transforms": 50, "reduction": reduction, "random_state": 0}
    with pytest.raises(OptionError, match=r'selection="random".*max_nonzeros'):
        sparse_svd(data(), P, selection="random", **options, **budget)


def test_the_smaller_of_two_budgets_counts() -> None:
    for budgets, most in (
        ({"max_fill": 0.5, "max_nonzeros": 8}, 8),
        ({"max_fill": 9 / 72, "max_nonzeros": 50}, 9),
    ):
        result = sparse_svd(data(), P, n_transforms=200, reduction="gram", tol=1e-9, **budgets)
        assert result.n_nonzeros == most


def test_a_full_budget_leaves_moves_in_the_tail_and_within_supports() -> None:
    """In place, what adds no nonzero goes on until the transforms are used up."""
    X = data()
    result = sparse_svd(X, P, n_transforms=400, max_nonzeros=6)
    assert result.n_transforms == 400
    assert result.n_nonzeros == 6
    full = int(np.argmax(result.history.n_nonzeros == 6))
    assert np.all(result.history.n_nonzeros[full:] == 6)
    assert np.any(result.pairs[full + 1 :, 1] >= N_FEATURES)


def blocks_without_correlation(seed: int) -> np.ndarray:
    """A Gram matrix of blocks of 2 to 4 features, exactly uncorrelated with each other."""
    random = np.random.default_rng(seed)
    A = np.zeros((12, 12))
    at = 0
    while at < 12:
        size = min(int(random.integers(2, 5)), 12 - at)
        part = random.integers(-3, 4, (size, size + 2)).astype(float)
        A[at : at + size, at : at + size] = part @ part.T * random.integers(1, 6)
        at += size
    shuffled = random.permutation(12)
    return A[np.ix_(shuffled, shuffled)]


@pytest.mark.parametrize("alpha", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("seed", range(6))
def test_exact_exchanges_give_nonzeros_back(
    seed: int, alpha: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uncorrelated features are exchanged, not mixed: supports move, and may even shrink."""
    A = blocks_without_correlation(seed) + np.diag(np.arange(12) * 1e-3)

    def given_matrix(source: Any, *args: Any, **options: Any) -> Any:
        preprocessing = Preprocessing(None, None, np.zeros(12), np.ones(12))
        return A.copy(), preprocessing

    monkeypatch.setattr(forms, "gram_matrix", given_matrix)
    for budget, p in itertools.product([5, 8, 30], [2, 4]):
        options: dict[str, Any] = {"fill_penalty": alpha, "max_nonzeros": budget}
        result = sparse_svd(np.eye(12), p, reduction="gram", n_transforms=12, **options)
        twin = naive.greedy(A, p, 12, "gain", symmetric=True, **options)
        same = min(len(twin.pairs), len(result.pairs))
        same = min(same, until_rounding(twin))
        np.testing.assert_array_equal(result.pairs[:same], twin.pairs[:same])
        np.testing.assert_array_equal(result.history.n_nonzeros[:same], twin.support[:same])
        assert np.all(result.history.n_nonzeros <= budget)


# ------------------------------------------------------------------------------------- the pivot


@pytest.mark.parametrize("p", [1, 3, 8])
@pytest.mark.parametrize("seed", range(5))
def test_order_of_the_pivot(p: int, seed: int) -> None:
    """A permutation; the rows of largest energy first, descending, ties to the lowest feature."""
    energies = np.random.default_rng(seed).integers(0, 6, 8).astype(float)
    order = pivot_order(energies, p)
    assert sorted(order.tolist()) == list(range(8))
    best = sorted(range(8), key=lambda feature: (-energies[feature], feature))
    assert order[:p].tolist() == best[:p]
    # rows that need not move stay where they are: at most two rows for each component move
    assert np.count_nonzero(order != np.arange(8)) <= 2 * p


@pytest.mark.parametrize("reduction", ["gram", None])
def test_pivot_of_what_is_in_order_does_nothing(reduction: str | None) -> None:
    X = data()[::-1]
    X = X[np.argsort(-np.sum(X**2, axis=1))]
    options: dict[str, Any] = {"n_transforms": 40, "reduction": reduction}
    pivoted = sparse_svd(X, P, pivot=True, **options)
    np.testing.assert_array_equal(pivoted.log.order, np.arange(N_FEATURES))
    assert changed(pivoted, sparse_svd(X, P, **options)) == []


@pytest.mark.parametrize("m", [0, 1, 40])
@pytest.mark.parametrize("reduction", ["gram", None])
def test_components_are_those_of_the_features(reduction: str | None, m: int) -> None:
    """The same as permuting the features by hand."""
    X = data()
    options: dict[str, Any] = {"n_transforms": m, "reduction": reduction, "fill_penalty": 0.5}
    pivoted = sparse_svd(X, P, pivot=True, **options)
    order = pivoted.log.order
    assert not np.array_equal(order, np.arange(N_FEATURES))
    by_hand = sparse_svd(X[order], P, **options)
    np.testing.assert_array_equal(pivoted.pairs, by_hand.pairs)
    assert pivoted.n_nonzeros == by_hand.n_nonzeros
    np.testing.assert_allclose(
        pivoted.components.toarray()[:, order], by_hand.components.toarray(), atol=1e-12
    )
    np.testing.assert_allclose(pivoted.explained_variance, by_hand.explained_variance, rtol=1e-12)
    if m == 0:
        largest = np.argsort(-np.sum(X**2, axis=1))[:P]
        assert sorted(pivoted.components.indices.tolist()) == sorted(largest.tolist())
    if reduction is None:
        products = (pivoted.components @ X @ pivoted.right.toarray().T).diagonal()
        np.testing.assert_allclose(products, pivoted.singular_values, rtol=1e-11, atol=1e-12)
    scores = pivoted.transform(X)
    np.testing.assert_allclose(scores, pivoted.components @ X, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("reduction", ["gram", None])
def test_pivot_with_features_centred_and_scaled(reduction: str | None) -> None:
    """Means and scales are those of the features, whatever the order of the rows."""
    X = data() + np.linspace(-3, 9, N_FEATURES)[:, None]
    options: dict[str, Any] = {"n_transforms": 30, "reduction": reduction, "center": "features"}
    result = sparse_svd(X, P, pivot=True, **options)
    np.testing.assert_allclose(result.mean, X.mean(axis=1))
    captured = result.accuracy(X).captured_variance
    assert captured == pytest.approx(result.explained_variance_ratio.sum(), rel=1e-10)


def test_features_may_come_in_any_order() -> None:
    """On the Gram matrix; in place, which sample a feature meets first is part of the problem."""
    X = data()
    shuffled = np.random.default_rng(1).permutation(N_FEATURES)
    options: dict[str, Any] = {"pivot": True, "fill_penalty": 0.5, "reduction": "gram"}
    one = sparse_svd(X, P, n_transforms=50, **options).components.toarray()
    other = sparse_svd(X[shuffled], P, n_transforms=50, **options).components.toarray()
    np.testing.assert_array_equal(one[:, shuffled] != 0, other != 0)
    np.testing.assert_allclose(one[:, shuffled], other, atol=1e-12)


def test_a_pivot_is_saved_and_loaded(tmp_path: Path) -> None:
    result = sparse_svd(data(), P, n_transforms=30, pivot=True)
    result.save(tmp_path / "r.zarr")
    loaded = SVDResult.load(tmp_path / "r.zarr")
    assert differences(loaded, result) == []
    np.testing.assert_array_equal(loaded.log.order, result.log.order)


# ------------------------------------------------------------------------------------ workspaces

KEPT: dict[str, Any] = {
    "pivot": True,
    "fill_penalty": 0.5,
    "max_nonzeros": 25,
    "center": "features",
}


@pytest.mark.parametrize("harm", ["none", "not clean", "no store"])
@pytest.mark.parametrize("first", [0, 1, 17, 60])
def test_pivot_and_budget_across_a_stop(first: int, harm: str, tmp_path: Path) -> None:
    """Resumed from the store as it stands, or from the source by replay: the same bits."""
    X = data()
    path = write_zarr(tmp_path / "x.zarr", X, (N_FEATURES, 20))
    options = KEPT | {"workspace": tmp_path / "w"}
    begun = sparse_svd(path, P, n_transforms=first, **options)
    assert len(begun.log) == first
    if harm != "none":
        (tmp_path / "w" / "state.json").unlink(missing_ok=True)
    if harm == "no store":
        shutil.rmtree(tmp_path / "w" / "x.zarr")
    resumed = sparse_svd(path, P, n_transforms=60, resume=True, **options)
    whole = sparse_svd(X, P, n_transforms=60, **KEPT)
    assert differences(resumed, whole) == []
    np.testing.assert_array_equal(resumed.log.order, whole.log.order)
    again = sparse_svd(path, P, n_transforms=60, resume=True, **options)
    assert differences(again, whole) == []
    shorter = sparse_svd(path, P, n_transforms=30, resume=True, **options)
    assert differences(shorter, whole.at(30), path_only=True) == []


def test_batches_keep_to_the_limit_of_each_component() -> None:
    result = sparse_svd(data(), P, n_transforms=60, batch_size=P, max_nonzeros_per_component=5)
    sizes = np.diff(result.components.indptr)
    assert sizes.max() == 5


def test_another_penalty_is_another_run(tmp_path: Path) -> None:
    path = write_zarr(tmp_path / "x.zarr", data(), (N_FEATURES, 20))
    options = KEPT | {"workspace": tmp_path / "w", "n_transforms": 5}
    sparse_svd(path, P, **options)
    for name, value in (("fill_penalty", 0.0), ("max_nonzeros", 26), ("pivot", False)):
        with pytest.raises(ValueError, match=f"another {name}"):
            sparse_svd(path, P, resume=True, **(options | {name: value}))


def test_kernels_count_bits_of_many_words() -> None:
    """`join_supports` on its own, three words wide."""
    n, p = 150, 2
    bits = np.zeros((3, n), dtype=np.uint64)
    sets = [{k, (7 * k + 3) % n, (k * k) % n} for k in range(n)]
    for k, members in enumerate(sets):
        for feature in members:
            bits[feature // 64, k] |= np.uint64(1) << np.uint64(feature % 64)
    sizes = np.array([len(s) for s in sets])
    common = np.zeros((p + 1, n), dtype=np.int64)
    common[:p] = [[len(sets[i] & members) for members in sets] for i in range(p)]
    added = np.triu(naive.new_nonzeros(sets, p), 1)
    work = np.empty((2, 3), dtype=np.uint64)
    supports.join_supports(bits, sizes, common, work, added, 1, 149, rotation(0), n)
    naive.mix_supports(sets, 1, 149, rotation(0))
    np.testing.assert_array_equal(np.triu(added, 1), np.triu(naive.new_nonzeros(sets, p), 1))
    assert sizes.tolist() == [len(s) for s in sets]
    shared = [[len(sets[i] & members) for members in sets] for i in range(p)]
    assert common[:p].tolist() == shared


def test_what_many_transforms_reach() -> None:
    """More of them on one column than a number can be halved before it vanishes."""
    n, p, m = 12, 3, 3 * STRETCH + 7
    random = np.random.default_rng(0)
    rows = np.sort(np.argsort(random.random((m, n)))[:, :2])
    rows[: 2 * STRETCH] = (0, n - 1)
    factors = np.where(random.random((m, 2, 2)) < 0.998, 0.0, 1e-200)
    factors[:, [0, 1], [0, 1]] = 1e-200
    expected = np.eye(n, p, dtype=bool)
    for (a, b), f in zip(rows[::-1], factors[::-1] != 0.0, strict=True):
        u, v = expected[a].copy(), expected[b].copy()
        expected[a] = (f[0, 0] & u) | (f[0, 1] & v)
        expected[b] = (f[1, 0] & u) | (f[1, 1] & v)
    found = reached(n, p, rows, factors)
    np.testing.assert_array_equal(found, expected)
    assert not expected.all()
