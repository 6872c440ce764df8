"""The compiled loop against the readable one, which it must equal bit for bit."""

from typing import Any

import numpy as np
import pytest
from helpers import PLACES, blocks_of, differences, fit_in_blocks, normal

import streamsvd.algorithm.compiled
from streamsvd import SVDResult, sparse_pca, sparse_svd
from streamsvd.algorithm import method
from streamsvd.algorithm.algorithm_1 import algorithm_1
from streamsvd.algorithm.compiled import algorithm_1_here
from streamsvd.algorithm.seam import SerialExecutor
from streamsvd.fitting import in_place
from streamsvd.kernels.rotations import SPAN
from streamsvd.kernels.steps import block_at, make_transforms

SHAPES = [(9, 40), (30, 9), (8, 8)]
P = 3


def readable(coordinator: Any, partition: Any, *args: Any) -> str:
    """`algorithm_1`, called as the compiled loop is."""
    *rest, after_step = args
    executor = SerialExecutor([partition])
    return algorithm_1(coordinator, executor, *rest, None, after_step)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop is compiled for the first transform."""
    monkeypatch.setattr(streamsvd.algorithm.compiled, "FEW", 0)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which loop ran; the first fit of a test has the compiled one, the second the readable."""
    made: list[str] = []

    def loop(*args: Any) -> str:
        made.append("readable" if made else "compiled")
        return (algorithm_1_here if made == ["compiled"] else readable)(*args)

    monkeypatch.setattr(method, "algorithm_1_here", loop)
    return made


def fit(X: np.ndarray, width: int, place: str = "memory", **options: Any) -> SVDResult:
    return fit_in_blocks(X, P, width=width, place=place, n_transforms=70, **options)


def check(calls: list[str], one: SVDResult, other: SVDResult) -> None:
    assert calls == ["compiled", "readable"]
    assert one.stopped == other.stopped
    assert differences(one, other) == []


@pytest.mark.parametrize("fill", [{}, {"fill_penalty": 0.7}, {"max_fill": 0.5}])
@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("selection", ["nuclear", "gain", "kogbetliantz"])
@pytest.mark.parametrize("shape", SHAPES)
def test_same_bits(
    shape: tuple[int, int], selection: str, batch_size: int, fill: dict[str, Any], calls: list[str]
) -> None:
    options = {"selection": selection, "batch_size": batch_size, **fill}
    one, other = (fit(normal(*shape), 7, **options) for _ in range(2))
    check(calls, one, other)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [1, 7, 1000])
@pytest.mark.parametrize("place", PLACES)
def test_same_bits_in_any_blocks(
    place: str, width: int, dtype: str, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mapped ones are in the page cache."""
    made = []
    for _ in range(2):
        with blocks_of(width, place):
            monkeypatch.setattr(in_place, "page_cache", lambda: 2**60)
            made.append(sparse_svd(normal(9, 40), P, n_transforms=70, dtype=dtype))
    check(calls, *made)


def test_pages_that_must_be_asked_for(calls: list[str]) -> None:
    """The readable loop asks for them."""
    assert differences(fit(normal(9, 40), 7, "disk"), fit(normal(9, 40), 7)) == []
    assert calls == ["compiled"]


def test_same_bits_in_many_spans(calls: list[str]) -> None:
    one, other = (fit(normal(4, 3 * SPAN + 9), 2 * SPAN - 5) for _ in range(2))
    check(calls, one, other)


def test_same_bits_on_the_gram_matrix(calls: list[str]) -> None:
    X = normal(12, 60)
    one, other = (
        sparse_pca(X, P, sample_axis=1, max_fill=0.6, refine=False, n_transforms=40)
        for _ in range(2)
    )
    check(calls, one, other)


def test_same_end(calls: list[str]) -> None:
    """No score is above the threshold any more."""
    one, other = (
        sparse_svd(normal(9, 40), P, n_transforms=5000, tol=1e-3, dtype="float64") for _ in range(2)
    )
    check(calls, one, other)
    assert one.stopped == "converged"


def test_how_long_it_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transform at a time where there is no time, else twice as many each time."""
    for seconds, expected in ((0.0, [1] * 20), (1e9, [1, 2, 4, 8, 5])):
        monkeypatch.setattr(streamsvd.algorithm.compiled, "SECONDS", seconds)
        counts = []

        def loop(*args: Any, counts: list[int] = counts) -> str:
            *rest, _ = args
            return algorithm_1_here(*rest, lambda count: bool(counts.append(count)))

        monkeypatch.setattr(method, "algorithm_1_here", loop)
        sparse_svd(normal(9, 40), P, n_transforms=20)
        assert counts == expected


@pytest.mark.parametrize("few", [1, 20, 60, 1000])
def test_few_transforms_are_not_worth_compiling(
    few: int, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The readable loop makes them, with the same bits, and hands over after some."""
    counts: list[int] = []

    def compiled(*args: Any) -> int:
        counts.append(make_transforms(*args))
        return counts[-1]

    monkeypatch.setattr(streamsvd.algorithm.compiled, "FEW", few)
    monkeypatch.setattr(streamsvd.algorithm.compiled, "_made", 0)
    monkeypatch.setattr(streamsvd.algorithm.compiled, "is_compiled", lambda *_: False)
    monkeypatch.setattr(streamsvd.algorithm.compiled, "make_transforms", compiled)
    one, other = (fit(normal(9, 40), 7, max_fill=0.9) for _ in range(2))
    check(calls, one, other)
    assert sum(counts) == max(0, len(one.pairs) - few)


def test_an_array_by_its_address() -> None:
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(block_at(x.ctypes.data, 2, 3, x), x)
