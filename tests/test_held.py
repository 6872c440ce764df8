"""Columns of a working store that are held in memory: which, what they are, what is asked for."""

from pathlib import Path
from typing import Any

import helpers
import numpy as np
import pytest
from helpers import blocks_of, differences, normal, write_zarr
from test_kernels import draw_moves, move, numbers

from streamsvd import sparse_svd
from streamsvd.matrix.held import HeldColumns
from streamsvd.matrix.partition import Partition
from streamsvd.matrix.prefetch import PagePrefetch

n, N, P, WIDTH = 12, 200, 3, 50


class Asked:
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.columns: list[tuple[int, int]] = []

    def row(self, i: int) -> None:
        """Nothing is to be read."""

    def column(self, b: int, k: int) -> None:
        self.columns.append((b, k))

    def rows(self, b: int, rows: np.ndarray) -> None:
        """Nothing is to be read."""


@pytest.mark.parametrize("step", [1, 7, 60])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_largest_columns_are_held(step: int, dtype: type) -> None:
    """However the strips are cut; offered again, they are what they have become."""
    X, room = normal(n, 60).astype(dtype), 5
    held, none = HeldColumns(n, room, np.dtype(dtype)), np.full((n, 60), np.nan, dtype)
    for times in (1.0, -2.0, 1.0 + np.arange(60)):
        data = (times * X).astype(dtype)
        for first in range(0, 60, step):
            held.offer(first, data[:, first : first + step])
        largest = np.sort(np.argsort((data**2).sum(axis=0))[-room:])
        assert [k for k in range(60) if k in held] == largest.tolist()
        for k in largest.tolist():
            assert held.take(k, none[:2], none).tobytes() == data[:, k].tobytes()
    order = np.random.default_rng(0).permutation(n)
    held.swap_rows(order)
    assert held.take(int(largest[0]), none[:2], none).tobytes() == data[order, largest[0]].tobytes()
    held.forget(largest[:2])
    assert [k for k in range(60) if k in held] == largest[2:].tolist()


@pytest.mark.parametrize("kind", ["ties", "normal"])
@pytest.mark.parametrize("apart", [False, True], ids=["whole", "apart"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("room", [1, 2, 9])
@pytest.mark.parametrize(("rows", "columns", "p", "width"), [(5, 40, 3, 7), (5, 9, 5, 4)])
def test_moves_on_held_columns(
    rows: int, columns: int, p: int, width: int, room: int, dtype: type, apart: bool, kind: str
) -> None:
    """Against plain NumPy to the last bit; a chunk has what it had until they are written back."""
    random = np.random.default_rng(rows + columns + room)
    X = numbers(kind, random, (rows, columns), dtype)
    blocks, held = [], []
    for start in range(0, columns, width):
        block = np.zeros((rows, width), dtype)
        block[:, : min(width, columns - start)] = X[:, start : start + width]
        blocks.append(block)
        held.append(HeldColumns(rows, room, np.dtype(dtype)))
        held[-1].offer(0, block[:, : min(width, columns - start)])
    tops = [block[:p].copy() for block in blocks] if apart else None
    partition = Partition(blocks, 0, columns, p, tops, asked := Asked(), held)
    partition.start_up()
    for i, j, g, h in draw_moves(random, rows, columns, p, 80, kind):
        column = move(X, i, j, g, h)
        report = partition.apply(np.array([[i, j]]), g[None], h[None], column[None])
        if report.columns is not None and len(report.columns):
            assert report.columns[0].tobytes() == X[:, i].tobytes()
        if report.head_columns is not None:
            assert report.head_columns[0].tobytes() == np.append(X[:p, j], X[j, j]).tobytes()
    for b, one in enumerate(held):
        one.write_back(p, blocks[b], lambda k, b=b: asked.column(b, k))
    made = np.concatenate(blocks, axis=1)
    made[:p] = np.concatenate(partition.tops, axis=1)
    np.testing.assert_array_equal(made[:, p:columns], X[:, p:])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The columns whose pages are asked for."""
    columns: list[int] = []
    ask = PagePrefetch.column

    def column(self: PagePrefetch, b: int, k: int) -> None:
        columns.append(b * WIDTH + k)
        ask(self, b, k)

    monkeypatch.setattr(PagePrefetch, "column", column)
    monkeypatch.setitem(helpers.HELD_COLUMNS, "disk, rows held", 20)
    return columns


OPTIONS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "features": {"center": "features", "normalize": "features"},
    "samples, pivot": {"center": "samples", "pivot": True},
    "batches": {"batch_size": P},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_column_is_asked_for_once(name: str, asked: list[int], tmp_path: Path) -> None:
    """And not at all where it was held from the start; nothing is written to a store that goes.

    One that is kept has all that was combined at the end, and what comes after a stop has not seen
    the data pass by: it asks for all.
    """
    X = normal(n, N) * (1 + 9 * (np.arange(N) % 5 == 0))  # 10 large ones of 50
    path = write_zarr(tmp_path / "x.zarr", X, (n, 30))
    options: dict[str, Any] = {"n_transforms": 39} | OPTIONS[name]
    more = options | {"n_transforms": 60}
    expected, longer = (sparse_svd(path, P, **asked_for) for asked_for in (options, more))
    combined = np.unique(expected.pairs[:, 1])
    combined = combined[combined >= P].tolist()
    with blocks_of(WIDTH, "disk, rows held"):
        assert differences(sparse_svd(path, P, **options), expected) == []
        once = asked.copy()
        assert len(set(once)) == len(once)
        assert set(once) < set(combined)
        assert len(once) < len(combined) / 2
        asked.clear()
        made = sparse_svd(path, P, workspace=tmp_path / "w", **options)
        assert differences(made, expected) == []
        assert asked == once + combined
        asked.clear()
        made = sparse_svd(path, P, workspace=tmp_path / "w", resume=True, **more)
        assert differences(made, longer) == []
    later = np.unique(longer.pairs[39:, 1])
    later = later[later >= P].tolist()
    assert sorted(asked) == sorted(2 * later)
