"""Supports of the columns of U during a fit, as bit sets: what a pair or a step would add."""

import numpy as np

from streamsvd.algorithm.block_log import BlockLog
from streamsvd.algorithm.log import TransformLog
from streamsvd.arrays import Array
from streamsvd.kernels.steps import Fill
from streamsvd.kernels.supports import (
    identity_bits,
    join_supports,
    mix_supports,
    popcount,
)


class Supports:
    """Which features each column of `U` has reached, and what joining two of them would add.

    Parameters
    ----------
    n_components, n_features : int
        `p`, `n`.
    fill_penalty : float
        `alpha`: scores are divided by ``(1 + added)**alpha``.
    max_nonzeros : int
        Of all components; pairs that would pass it are no candidates.
    max_per_component : int, optional
        Of each component; the same.

    Attributes
    ----------
    added : (p, n) int64 array
        Nonzeros that the pair (i, j) would add to the first `p` columns of `U`; ``2 n``, more than
        any adds, where a component would have too many.
    weights : (2 n + 1,) array
        ``(1 + added)**-alpha``.

    Notes
    -----
    Memory: ``n^2 / 8`` bytes for the bit sets and ``16 p n`` for `added` and what columns have in
    common. An update takes `n` operations for each word of 64 bits that changes, at most
    ``n^2 / 32``, and ``n`` more.
    """

    def __init__(
        self,
        n_components: int,
        n_features: int,
        fill_penalty: float,
        max_nonzeros: int,
        max_per_component: int | None = None,
    ) -> None:
        n, p = n_features, n_components
        # word w of column j at [w, j]: what a word shares with all columns is one sweep
        self._bits = np.zeros((-(-n // 64), n), dtype=np.uint64)
        index = np.arange(n)
        self._bits[index // 64, index] = np.uint64(1) << (index % 64).astype(np.uint64)
        self._sizes = np.ones(n, dtype=np.int64)
        self._common = np.eye(p + 1, n, dtype=np.int64)
        self.added = np.zeros((p, n), dtype=np.int64)
        self._work = np.empty((2, len(self._bits)), dtype=np.uint64)
        self.weights = (1.0 + np.arange(2 * n + 1)) ** -fill_penalty
        self.max_nonzeros = max_nonzeros
        self._cap = n if max_per_component is None else max_per_component
        self._count()

    def lift(self) -> None:
        """Limit nothing from here on."""
        p, n = self.added.shape
        self.max_nonzeros, self._cap = p * n, n
        self._count()

    def _count(self) -> None:
        p, n = self.added.shape
        for i in range(p):
            union = self._sizes[i] + self._sizes - self._common[i]
            new = union - self._sizes[i]
            new[:p] += union[:p] - self._sizes[:p]
            new[union > self._cap] = 2 * n
            self.added[i, i + 1 :] = new[i + 1 :]

    @property
    def n_nonzeros(self) -> int:
        """Nonzeros of the first `p` columns now."""
        return int(np.sum(self._sizes[: len(self.added)]))

    @property
    def arrays(self) -> Fill:
        """All of it but `added` and `weights`."""
        return Fill(self._bits, self._sizes, self._common, self._work, self._cap, self.max_nonzeros)

    @property
    def room(self) -> int:
        """Nonzeros that may still be added."""
        return min(self.max_nonzeros - self.n_nonzeros, len(self.weights) - 2)

    def replay(self, log: TransformLog) -> None:
        """Take in the transforms that were made before."""
        self.take_in(log.pairs, log.g)

    def take_in(self, pairs: Array, factors: Array) -> None:
        """Take in transforms; those beyond the rows join nothing."""
        for (i, j), g in zip(pairs.tolist(), factors, strict=True):
            if j < len(self._sizes):
                self.join(i, j, g)

    def join(self, i: int, j: int, g: Array) -> None:
        """Take in a transform with the factor `g` on the columns i and j."""
        arrays = (self._bits, self._sizes, self._common, self._work, self.added)
        join_supports(*arrays, i, j, g, self._cap)


class BlockSupports:
    """Nonzeros of the components during a fit with a budget.

    Parameters
    ----------
    n_components, n_features : int
        `p`, `n`.
    max_nonzeros : int
        The budget.

    Notes
    -----
    Memory: ``n^2 / 8`` bytes.
    """

    def __init__(self, n_components: int, n_features: int, max_nonzeros: int) -> None:
        self.n_components, self.max_nonzeros = n_components, max_nonzeros
        self._bits = identity_bits(n_features, 0, n_features)

    def take_in(self, rows: Array, g: Array) -> bool:
        """Take in a step, unless it would pass the budget; whether it was taken in."""
        mixed = self._bits[rows]
        mix_supports(mixed, np.arange(len(rows)), g)
        if popcount(mixed[: self.n_components].ravel()) > self.max_nonzeros:
            return False
        self._bits[rows] = mixed
        return True

    def replay(self, log: BlockLog) -> None:
        """Take in the steps that were made before."""
        for k in range(len(log)):
            indices, g, _ = log.step(k)
            self.take_in(indices[: len(g)], g)
