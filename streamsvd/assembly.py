"""From a working matrix to the parts of the solver: coordinator and partitions."""

from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from streamsvd import scores
from streamsvd.blocks import UNSCORED, BlockCoordinator
from streamsvd.coordinator import Coordinator
from streamsvd.ingest import Moments, add_up
from streamsvd.kernels import Array
from streamsvd.partition import Partition
from streamsvd.supports import Supports
from streamsvd.working import PagePrefetch, WorkingMatrix

SELECTION_CODES = {
    "nuclear": scores.NUCLEAR,
    "gain": scores.GAIN,
    "kogbetliantz": scores.KOGBETLIANTZ,
    "random": scores.NUCLEAR,
}


class Leading(Protocol):
    """The part of a working matrix that the coordinator holds, wherever the rest is."""

    n_features: int
    n_samples: int
    dtype: np.dtype[Any]

    def rows(self, n_rows: int, stop: int) -> Array:
        """The first rows, columns below `stop`."""

    def columns(self, stop: int) -> Array:
        """The columns below `stop`."""

    def diagonal(self) -> Array:
        """The diagonal."""


def make_coordinator(
    working: Leading,
    n_components: int,
    selection: str,
    supports: Supports | None = None,
    symmetric: bool = False,
) -> Coordinator:
    """The coordinator of a working matrix, with copies of what it holds."""
    n, n_samples, p = working.n_features, working.n_samples, n_components
    shared = min(n, n_samples)
    head = np.zeros((p, n), dtype=working.dtype)
    head[:, :shared] = working.rows(p, shared)
    diag = np.zeros(n, dtype=working.dtype)
    diag[:shared] = working.diagonal()
    left = np.array(working.columns(p).T, order="C")
    code = SELECTION_CODES[selection]
    return Coordinator(left, head, diag, n_samples, code, supports, symmetric)


def make_block_coordinator(
    working: Leading, n_components: int, selection: str, symmetric: bool = False
) -> BlockCoordinator:
    """The coordinator of block steps, with copies of what it holds."""
    diag = np.zeros(working.n_features, dtype=working.dtype)
    held = working.diagonal()
    diag[: len(held)] = held
    left = np.array(working.columns(n_components).T, order="C")
    code = UNSCORED if selection == "random" else SELECTION_CODES[selection]
    return BlockCoordinator(left, diag, working.n_samples, code, symmetric)


def make_partitions(
    working: WorkingMatrix, n_components: int, count: int, first: int = 0
) -> list[Partition]:
    """The blocks of a working matrix in `count` runs, or one for each block if those are fewer.

    The matrix holds the columns `first` and on of all.
    Pages that are not in the cache, since it is too small, are asked for ahead of each move.
    """
    blocks, p = working.blocks, n_components
    count = min(count, len(blocks))
    bounds = np.linspace(0, len(blocks), count + 1).astype(int).tolist()
    partitions = []
    for a, b in pairwise(bounds):
        prefetch = None
        if working.crowds_cache:
            held = p if working.tops else 0
            prefetch = PagePrefetch(
                working.maps[a:b],
                working.width,
                working.n_features,
                held,
                working.dtype.itemsize,
                working.most_mapped,
            )
        start, stop = a * working.width, min(b * working.width, working.n_samples)
        tops = working.tops[a:b] if working.tops else None
        partitions.append(Partition(blocks[a:b], first + start, first + stop, p, tops, prefetch))
    return partitions


def pivot_order(energies: Array, p: int) -> Array:
    """The features with the `p` rows of largest energy exchanged into the first `p` places.

    By decreasing energy, ties to the lowest feature; ``order[r]`` is the feature in place r.
    """
    order = np.arange(len(energies))
    place = np.arange(len(energies))
    for i, feature in enumerate(np.argsort(-energies, kind="stable")[:p]):
        j, other = place[feature], order[i]
        order[i], order[j] = feature, other
        place[feature], place[other] = i, j
    return order


def row_energies(working: WorkingMatrix, p: int) -> Array:
    """Sums of squares of the first `p` rows, (p,)."""
    return add_up(row_moments(working, p, 0, working.n_samples))[1]


def row_moments(working: WorkingMatrix, p: int, first: int, n_samples: int) -> list[Array]:
    """Leaves of the moments of the first `p` rows, of columns that are `first` and on of all."""
    moments = Moments(p, n_samples, np.zeros(p))
    for start, stop, block in working:
        moments.add(first + start, block[:p], stop - start)
    return moments.leaves
