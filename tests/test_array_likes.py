"""Lists, tables of pyarrow and objects with `__array__`, in functions and estimators."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import normal
from test_sparse_pca import changed

from streamsvd import SourceError, SparseSVD, SVDResult, sparse_pca, sparse_svd

N, SAMPLES = 9, 41
X = normal(N, SAMPLES) * np.linspace(1, 2, N)[:, None]
NAMES = [f"gene {k}" for k in range(N)]


class Tensor:
    """As of torch: NumPy does not know its type, and it makes an array of itself."""

    dtype = "torch.float64"

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.values


class Stored(Tensor):
    """One that is sliced, as arrays on a disk are: never taken whole."""

    def __init__(self, values: np.ndarray) -> None:
        super().__init__(values)
        self.dtype, self.shape = values.dtype, values.shape  # type: ignore[assignment]

    def __getitem__(self, where: Any) -> Tensor:
        return Tensor(self.values[where])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise MemoryError("taken whole")


@pytest.fixture(scope="module")
def expected() -> SVDResult:
    return sparse_pca(X, 3, max_fill=0.4)


@pytest.mark.parametrize(
    "make",
    [
        np.ndarray.tolist,
        lambda X: tuple(map(tuple, X)),
        list,
        lambda X: [Tensor(row) for row in X],
        Tensor,
        Stored,
    ],
)
def test_what_can_be_made_an_array(make: Callable[[Any], Any], expected: SVDResult) -> None:
    assert changed(sparse_pca(make(X), 3, max_fill=0.4), expected) == []
    rows = sparse_pca(make(X.T), 3, max_fill=0.4, sample_axis=0)
    assert changed(rows, expected) == []
    np.testing.assert_array_equal(rows.transform(make(X.T)).T, expected.transform(X))
    if make is not Stored:  # scikit-learn takes it whole
        options: dict[str, Any] = {"n_transforms": 9, "center": "features"}
        model = SparseSVD(3, **options).fit(make(X.T))
        assert changed(model.result_, sparse_svd(X, 3, **options)) == []


def test_masks_in_lists() -> None:
    rows = [np.ma.masked_equal(row, row[3]) for row in X]
    with pytest.raises(SourceError, match="masked value at feature 0, sample 3"):
        sparse_pca(rows, 3)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        ([[1, 2], [3]], "the list cannot be made an array: "),
        ([["1", "2"], ["3", "4"]], "the list holds <U1, not real numbers"),
        ([[1j, 2], [3, 4]], "the list holds complex128, not real numbers"),
        ([[{}, 2], [3, 4]], "the list holds object, not real numbers"),
        ([1, 2], r"the list has shape \(2,\); need two axes"),
        ([], r"the list has shape \(0,\); need two axes"),
        (Tensor(np.ones(3)), r"the Tensor has shape \(3,\); need two axes"),
        (Tensor(None), "the Tensor cannot be made an array"),  # type: ignore[arg-type]
        (Tensor(np.ones((3, 4), "M8[s]")), "the Tensor holds datetime64.*, not real numbers"),
        ({}, "cannot read dict: give a path .* a list of rows, .* pyarrow.Table, .*__array__"),
        (3, "cannot read int: give a path"),
    ],
)
def test_what_cannot(x: Any, words: str) -> None:
    with pytest.raises(SourceError, match=words):
        sparse_pca(x, 1)


# ------------------------------------------------------------------------------------- pyarrow


def tables() -> list[Any]:
    """One in several chunks, and a batch."""
    arrow = pytest.importorskip("pyarrow")
    columns = [arrow.array(column) for column in X]
    batch = arrow.record_batch(columns, names=NAMES)
    parts = [arrow.table([column[:17] for column in columns], NAMES)]
    parts += [arrow.table([column[17:] for column in columns], NAMES)]
    return [arrow.concat_tables(parts), batch]


def test_tables_of_pyarrow(expected: SVDResult) -> None:
    for table in tables():
        made = sparse_pca(table, 3, max_fill=0.4)
        assert changed(made, expected) == []
        assert made.feature_names is not None
        assert made.feature_names.tolist() == NAMES
        across = sparse_pca(table, 3, max_fill=0.4, sample_axis=1)
        assert changed(across, sparse_pca(X, 3, max_fill=0.4, sample_axis=0)) == []
        assert across.sample_names is not None
        assert across.sample_names.tolist() == NAMES
        model = SparseSVD(3, n_transforms=9).fit(table)
        assert changed(model.result_, sparse_svd(X, 3, n_transforms=9)) == []
        assert model.feature_names_in_.tolist() == NAMES


def test_columns_of_pyarrow() -> None:
    """All types of numbers; nulls are missing; others are refused by name."""
    arrow = pytest.importorskip("pyarrow")
    kinds = ["int8", "uint16", "int64", "float32", "float64", "float16", "bool"]
    values = [np.round(row).astype(kind) for row, kind in zip(X, kinds, strict=False)]
    made = sparse_pca(arrow.table([arrow.array(v) for v in values], kinds), 2, max_fill=0.5)
    plain = np.array([v.astype(float) for v in values])
    assert changed(made, sparse_pca(plain, 2, max_fill=0.5)) == []
    mask = np.zeros((len(kinds), SAMPLES), bool)
    mask[[0, 2, 4, 6], [3, 5, 7, 9]] = True
    holes = [arrow.array(v, mask=m) for v, m in zip(values, mask, strict=True)]
    table = arrow.table(holes, kinds)
    with pytest.raises(SourceError, match="NaN at feature 0, sample 3"):
        sparse_pca(table, 2)
    plain[mask] = np.nan
    options: dict[str, Any] = {"max_fill": 0.5, "missing": "mean"}
    assert changed(sparse_pca(table, 2, **options), sparse_pca(plain, 2, **options)) == []
    for name, column in {
        "text": ["a", "b"],
        "time": np.array([1, 2], "M8[s]"),
        "none": [None, None],
        "list": [[1.0], [2.0]],
        "category": arrow.array(["a", "b"]).dictionary_encode(),
    }.items():
        with pytest.raises(SourceError, match=f"column '{name}' of the Table of pyarrow holds"):
            sparse_pca(arrow.table({"one": [1.0, 2.0], name: column}), 1)
