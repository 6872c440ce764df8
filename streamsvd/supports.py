"""Supports of the columns of U during a fit, as bit sets: what a pair would add to the fill."""

import numpy as np

from streamsvd.jit import jit
from streamsvd.kernels import Array
from streamsvd.sweeps import bits_set, popcount
from streamsvd.transforms import TransformLog


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
    n_nonzeros : int
        Nonzeros of the first `p` columns now.

    Notes
    -----
    Memory: ``n^2 / 8`` bytes for the bit sets and ``8 p n`` for `added`. An update takes
    ``n^2 / 64`` word operations.
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
        self._bits = np.zeros((n, -(-n // 64)), dtype=np.uint64)
        index = np.arange(n)
        self._bits[index, index // 64] = np.uint64(1) << (index % 64).astype(np.uint64)
        self._sizes = np.ones(n, dtype=np.int64)
        self.added = np.zeros((p, n), dtype=np.int64)
        self.weights = (1.0 + np.arange(2 * n + 1)) ** -fill_penalty
        self.max_nonzeros = max_nonzeros
        self.n_nonzeros = p
        self._cap = n if max_per_component is None else max_per_component
        for i in range(p):
            count_added(self._bits, self._sizes, self.added, i, self._cap)

    @property
    def room(self) -> int:
        """Nonzeros that may still be added."""
        return min(self.max_nonzeros - self.n_nonzeros, len(self.weights) - 2)

    def replay(self, log: TransformLog) -> None:
        """Take in the transforms that were made before."""
        for (i, j), g in zip(log.pairs.tolist(), log.left, strict=False):
            if j < len(self._bits):
                self.join(i, j, g)

    def join(self, i: int, j: int, g: Array) -> None:
        """Take in a transform with the factor `g` on the columns i and j."""
        p = len(self.added)
        before = self._sizes[i] + (self._sizes[j] if j < p else 0)
        join_supports(self._bits, self._sizes, self.added, i, j, g, self._cap)
        self.n_nonzeros += int(self._sizes[i] + (self._sizes[j] if j < p else 0) - before)


@jit
def _union_size(x: Array, y: Array) -> int:
    total = 0
    for w in range(x.shape[0]):
        total += bits_set(x[w] | y[w])
    return total


@jit
def _pair_added(bits: Array, sizes: Array, p: int, i: int, j: int, cap: int) -> int:
    """What joining the columns i < p and j adds to the first p columns, see `Supports.added`."""
    union = _union_size(bits[i], bits[j])
    if union > cap:
        return 2 * bits.shape[0]
    if j < p:
        return 2 * union - sizes[i] - sizes[j]
    return union - sizes[i]


@jit
def count_added(bits: Array, sizes: Array, added: Array, i: int, cap: int) -> None:
    """Row `i` of `added` (p, n) anew."""
    p, n = added.shape
    for j in range(i + 1, n):
        added[i, j] = _pair_added(bits, sizes, p, i, j, cap)


@jit
def join_supports(
    bits: Array, sizes: Array, added: Array, i: int, j: int, g: Array, cap: int
) -> None:
    """Mix the columns i and j by `g`, whose exact zeros join nothing, and bring `added` up to date.

    `bits` (n, words) are the supports of the columns of `U`, `sizes` (n,) their sizes.
    """
    p, n = added.shape
    zero = np.uint64(0)
    ii, ij, ji, jj = g[0, 0] != 0.0, g[0, 1] != 0.0, g[1, 0] != 0.0, g[1, 1] != 0.0
    for w in range(bits.shape[1]):
        u, v = bits[i, w], bits[j, w]
        bits[i, w] = (u if ii else zero) | (v if ji else zero)
        bits[j, w] = (u if ij else zero) | (v if jj else zero)
    for k in (i, j):
        sizes[k] = popcount(bits[k])
    count_added(bits, sizes, added, i, cap)
    if j < p:
        count_added(bits, sizes, added, j, cap)
    for k in range(p):
        for col in (i, j):
            if k < col < n:
                added[k, col] = _pair_added(bits, sizes, p, k, col, cap)
