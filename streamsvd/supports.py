"""Supports of the columns of U during a fit, as bit sets: what a pair would add to the fill."""

from typing import Any

import numpy as np

from streamsvd.jit import jit
from streamsvd.kernels import Array
from streamsvd.sweeps import bits_set
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
        self._common = np.eye(p, n, dtype=np.int64)
        self.added = np.zeros((p, n), dtype=np.int64)
        self.weights = (1.0 + np.arange(2 * n + 1)) ** -fill_penalty
        self.max_nonzeros = max_nonzeros
        self.n_nonzeros = p
        self._cap = n if max_per_component is None else max_per_component
        for i in range(p):
            count_added(self._sizes, self._common, self.added, i, i + 1, n, self._cap)

    @property
    def room(self) -> int:
        """Nonzeros that may still be added."""
        return min(self.max_nonzeros - self.n_nonzeros, len(self.weights) - 2)

    def replay(self, log: TransformLog) -> None:
        """Take in the transforms that were made before."""
        for (i, j), g in zip(log.pairs.tolist(), log.left, strict=False):
            if j < len(self._sizes):
                self.join(i, j, g)

    def join(self, i: int, j: int, g: Array) -> None:
        """Take in a transform with the factor `g` on the columns i and j."""
        p = len(self.added)
        before = self._sizes[i] + (self._sizes[j] if j < p else 0)
        join_supports(self._bits, self._sizes, self._common, self.added, i, j, g, self._cap)
        self.n_nonzeros += int(self._sizes[i] + (self._sizes[j] if j < p else 0) - before)


@jit
def join_supports(
    bits: Array,
    sizes: Array,
    common: Array,
    added: Array,
    i: int,
    j: int,
    g: Array,
    cap: int,
) -> None:
    """Mix the columns i < p and j by `g`, whose exact zeros join nothing, and bring all up to date.

    `bits` (words, n) are the supports of the columns of `U`, `sizes` (n,) their sizes, `common`
    (p, n) the sizes of their intersections.
    """
    p, n = added.shape
    zero = np.uint64(0)
    ii, ij, ji, jj = g[0, 0] != 0.0, g[0, 1] != 0.0, g[1, 0] != 0.0, g[1, 1] != 0.0
    u, v = bits[:, i].copy(), bits[:, j].copy()
    for w in range(bits.shape[0]):
        x = (u[w] if ii else zero) | (v[w] if ji else zero)
        y = (u[w] if ij else zero) | (v[w] if jj else zero)
        u[w], v[w] = x, y
    change_support(bits, sizes, common, i, u)
    change_support(bits, sizes, common, j, v)
    for k in range(p):
        if k in (i, j):
            count_added(sizes, common, added, k, k + 1, n, cap)
        else:
            for col in (i, j):
                if col > k:
                    count_added(sizes, common, added, k, col, col + 1, cap)


@jit
def change_support(bits: Array, sizes: Array, common: Array, c: int, new: Array) -> None:
    """Make `new` (words,) the support of column `c`; word by word, those that change."""
    p = common.shape[0]
    for w in range(bits.shape[0]):
        old = bits[w, c]
        gained, lost = new[w] & ~old, old & ~new[w]
        if gained | lost:
            bits[w, c] = new[w]
            sizes[c] += bits_set(gained) - bits_set(lost)
            if c < p:
                add_common(gained, lost, bits[w], common[c])
            else:
                for k in range(p):
                    common[k, c] += bits_set(gained & bits[w, k]) - bits_set(lost & bits[w, k])
    if c < p:
        common[c, c] = sizes[c]
        for k in range(p):
            common[k, c] = common[c, k]


@jit
def add_common(gained: Any, lost: Any, words: Array, common: Array) -> None:
    """Add to `common` (n,) the bits of `gained` that each of `words` has, less those of `lost`."""
    if gained:
        for k in range(words.shape[0]):
            common[k] += bits_set(gained & words[k])
    if lost:
        for k in range(words.shape[0]):
            common[k] -= bits_set(lost & words[k])


@jit
def count_added(
    sizes: Array, common: Array, added: Array, i: int, first: int, stop: int, cap: int
) -> None:
    """``added[i, first:stop]`` anew: what joining these columns adds to the first `p`."""
    p, n = added.shape
    for j in range(first, stop):
        union = sizes[i] + sizes[j] - common[i, j]
        new = union - sizes[i] + (union - sizes[j] if j < p else 0)
        added[i, j] = new if union <= cap else 2 * n
