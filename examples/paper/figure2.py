"""Figure 2 of the paper: 25-NN accuracy on the projections, against transforms and fill; times."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import elastic_net
import inverse_power
import numpy as np
import rivals
from datasets import Labels, Matrix
from figure1 import PATHS
from sklearn.neighbors import KNeighborsClassifier
from sparse_jl import sparse_jl
from threadpoolctl import threadpool_limits

from streamsvd import SVDResult, sparse_pca, sparse_svd

N_NEIGHBORS = 25
LINES = ["proposed", "gain", "gram", "gram, fill penalty"]
"""Those of `figure1.PATHS` that are drawn."""
SPARSE = 0.01
"""The fill below which the paper claims accuracies near the best."""


@dataclass(frozen=True)
class Task:
    """A data set, how many components, and how many samples to train and test with."""

    data: str
    n_components: int
    n_train: int
    n_test: int


TASKS = {
    "mnist": Task("mnist", 100, 50000, 10000),
    "usps": Task("usps", 40, 7291, 2007),
    "digits": Task("digits", 10, 1300, 497),
}
"""The paper's two, and a small one that comes with scikit-learn."""


@dataclass(frozen=True)
class Effort:
    """How much of Figure 2 is run for a data set.

    Parameters
    ----------
    splits : int
        Random splits that are averaged.
    slow_splits : int
        How many of them are run for `sparse_pca` and the elastic net.
    transforms : tuple of int
        Points of the lines.
    fills : tuple of float
        For the two sparse PCAs of others.
    refined_fills : tuple of float
        For `sparse_pca`.
    max_iter : int
        Iterations of the elastic net.
    max_test : int, optional
        Classify only so many of the test samples.
    """

    splits: int
    slow_splits: int
    transforms: tuple[int, ...]
    fills: tuple[float, ...]
    refined_fills: tuple[float, ...]
    max_iter: int
    max_test: int | None = None


@dataclass(frozen=True)
class KnnRow:
    """One method on one split; shares, not percent."""

    data: str
    split: int
    method: str
    transforms: int | None
    target_fill: float | None
    """What the method was asked for, where it can be asked."""
    fill: float
    accuracy: float
    seconds: float
    """Of CPU, from the array in memory to the components; NaN where it was not timed."""


@dataclass(frozen=True)
class Split:
    """One random split of a data set; samples are columns."""

    task: Task
    number: int
    x_train: Matrix
    x_test: Matrix
    y_train: Labels
    y_test: Labels

    @classmethod
    def draw(cls, task: Task, number: int, x: Matrix, y: Labels, max_test: int | None) -> "Split":
        """Split `number`, the same whenever it is drawn."""
        order = np.random.default_rng(number).permutation(x.shape[1])
        train = np.sort(order[: task.n_train])
        test = order[task.n_train : task.n_train + min(task.n_test, max_test or task.n_test)]
        x_train = np.ascontiguousarray(x[:, train])
        return cls(task, number, x_train, x[:, test], y[train], y[test])

    def row(
        self,
        method: str,
        components: Any,
        seconds: float,
        *,
        transforms: int | None = None,
        target_fill: float | None = None,
    ) -> KnnRow:
        """Classify with components (p, n), sparse or dense."""
        values = components.data if hasattr(components, "indptr") else components
        size = components.shape[0] * components.shape[1]
        return KnnRow(
            data=self.task.data,
            split=self.number,
            method=method,
            transforms=transforms,
            target_fill=target_fill,
            fill=float(np.count_nonzero(values)) / size,
            accuracy=self._accuracy(components),
            seconds=seconds,
        )

    def _accuracy(self, components: Any) -> float:
        train, test = (
            np.ascontiguousarray((components @ x).T, dtype=np.float32)
            for x in (self.x_train, self.x_test)
        )
        model = KNeighborsClassifier(N_NEIGHBORS, algorithm="brute").fit(train, self.y_train)
        return float(model.score(test, self.y_test))


def timed(function: Callable[..., Any], *args: Any, **options: Any) -> tuple[Any, float]:
    """What it returns, and its seconds of CPU on one thread, which other work does not add to."""
    with threadpool_limits(1):
        start = time.process_time()
        made = function(*args, **options)
        return made, time.process_time() - start


def figure_2(split: Split, effort: Effort) -> Iterator[KnnRow]:
    """All methods on one split."""
    gram, gram_seconds = timed(lambda: split.x_train @ split.x_train.T)
    yield from others(split, effort, gram, gram_seconds)
    for method in LINES:
        yield from line(split, effort, method)
    if split.number < effort.slow_splits:
        yield from refined(split, effort)


def line(split: Split, effort: Effort, method: str) -> Iterator[KnnRow]:
    """The points of one path, and the last of at most 1 % fill.

    On the first split, each point is also run on its own, for its time.
    """

    def run(k: int) -> tuple[SVDResult, float]:
        options = {"n_transforms": k, "n_threads": 1, "progress": False} | PATHS[method]
        return timed(sparse_svd, split.x_train, split.task.n_components, **options)

    *earlier, last = effort.transforms
    path, last_seconds = run(last)
    is_timed = split.number == 0
    seconds = {k: run(k)[1] for k in earlier if is_timed} | {last: last_seconds}
    for k in effort.transforms:
        point = path.at(min(k, path.n_transforms))
        yield split.row(method, point.components, seconds.get(k, np.nan), transforms=k)
    sparse = path.at(fill=max(SPARSE, 1 / path.n_features)).components
    yield split.row(method, sparse, np.nan, target_fill=SPARSE)


def refined(split: Split, effort: Effort) -> Iterator[KnnRow]:
    """`sparse_pca`, one run for each fill; not centred, like all methods here."""
    for fill in effort.refined_fills:
        result, seconds = timed(
            sparse_pca,
            split.x_train,
            split.task.n_components,
            max_fill=fill,
            center=None,
            n_threads=1,
            progress=False,
        )
        yield split.row("sparse_pca", result.components, seconds, target_fill=fill)


def others(split: Split, effort: Effort, gram: Matrix, gram_seconds: float) -> Iterator[KnnRow]:
    """Full PCA, sparse JL and the two sparse PCAs of others, all from the Gram matrix."""
    n, p = len(gram), split.task.n_components
    components, seconds = timed(rivals.leading_eigenvectors, gram, p)
    yield split.row("full PCA", components.T, gram_seconds + seconds)
    random = np.random.default_rng(split.number)
    components, seconds = timed(sparse_jl, n, p, 10, random)
    yield split.row("sparse JL, s = 10", components.T, seconds)
    for fill in effort.fills:
        counts = [max(1, int(fill * n))] * p
        components, seconds = timed(inverse_power.sparse_components, gram, counts)
        yield split.row("Hein and Buehler", components.T, gram_seconds + seconds, target_fill=fill)
        if split.number < effort.slow_splits:
            components, seconds = timed(
                elastic_net.sparse_components, gram, counts, max_iter=effort.max_iter
            )
            yield split.row("Zou et al.", components.T, gram_seconds + seconds, target_fill=fill)
