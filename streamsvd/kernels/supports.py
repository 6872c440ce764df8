"""Kernels of supports as bit sets: what transforms join, what a pair would add, how many."""

from typing import Any

import numpy as np

from streamsvd.arrays import Array
from streamsvd.kernels.jit import inner, jit, jit_that_allocates


def identity_bits(size: int, first: int, last: int) -> Array:
    """Columns first..last-1 of the identity, as bit sets: (size, words) uint64."""
    bits = np.zeros((size, -(-(last - first) // 64)), dtype=np.uint64)
    local = np.arange(last - first)
    bits[first + local, local // 64] = np.uint64(1) << (local % 64).astype(np.uint64)
    return bits


@jit
def support_back(panel: Array, rows: Array, factors: Array) -> None:
    """The pattern of `multiply_back`: `panel` holds bits (uint64 words).

    Exact zeros of the factors join nothing.
    """
    for m in range(rows.shape[0] - 1, -1, -1):
        a, b = rows[m, 0], rows[m, 1]
        f = factors[m]
        aa, ab, ba, bb = f[0, 0] != 0.0, f[0, 1] != 0.0, f[1, 0] != 0.0, f[1, 1] != 0.0
        for k in range(panel.shape[1]):
            u, v = panel[a, k], panel[b, k]
            panel[a, k] = (u if aa else np.uint64(0)) | (v if ab else np.uint64(0))
            panel[b, k] = (u if ba else np.uint64(0)) | (v if bb else np.uint64(0))


@inner
def bits_set(word: Any) -> int:
    """Number of set bits of a uint64."""
    x = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    low = np.uint64(0x3333333333333333)
    x = (x & low) + ((x >> np.uint64(2)) & low)
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return int((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@jit
def popcount(words: Array) -> int:
    """Number of set bits of uint64 `words`."""
    total = 0
    for word in words:
        total += bits_set(word)
    return total


@jit
def count_supports(
    support: Array, rows: Array, factors: Array, n_components: int, counts: Array
) -> None:
    """Add to ``counts[k]`` the set bits of the first `p` rows of `support` after transform k.

    Row r of `support` (uint64 words) holds the nonzeros of column r of a factor, which the
    transforms mix: ``U <- U F``.
    """
    total = 0
    for r in range(n_components):
        total += popcount(support[r])
    for m in range(rows.shape[0]):
        a, b = rows[m, 0], rows[m, 1]
        f = factors[m]
        aa, ab, ba, bb = f[0, 0] != 0.0, f[0, 1] != 0.0, f[1, 0] != 0.0, f[1, 1] != 0.0
        total -= popcount(support[a]) + (popcount(support[b]) if b < n_components else 0)
        for k in range(support.shape[1]):
            u, v = support[a, k], support[b, k]
            support[a, k] = (u if aa else np.uint64(0)) | (v if ba else np.uint64(0))
            support[b, k] = (u if ab else np.uint64(0)) | (v if bb else np.uint64(0))
        total += popcount(support[a]) + (popcount(support[b]) if b < n_components else 0)
        counts[m] += total


@jit
def join_supports(
    bits: Array,
    sizes: Array,
    common: Array,
    work: Array,
    added: Array,
    i: int,
    j: int,
    g: Array,
    cap: int,
) -> None:
    """Mix the columns i < p and j by `g`, whose exact zeros join nothing, and bring all up to date.

    `bits` (words, n) are the supports of the columns of `U`, `sizes` (n,) their sizes, `common`
    (p, n) the sizes of their intersections; `work` (2, words) is work space.
    """
    p, n = added.shape
    zero = np.uint64(0)
    ii, ij, ji, jj = g[0, 0] != 0.0, g[0, 1] != 0.0, g[1, 0] != 0.0, g[1, 1] != 0.0
    for w in range(bits.shape[0]):
        u, v = bits[w, i], bits[w, j]
        work[0, w] = (u if ii else zero) | (v if ji else zero)
        work[1, w] = (u if ij else zero) | (v if jj else zero)
    change_support(bits, sizes, common, i, work[0])
    change_support(bits, sizes, common, j, work[1])
    for k in range(p):
        if k == i or k == j:
            count_added(sizes, common, added, k, k + 1, n, cap)
        else:
            for side in range(2):
                col = j if side else i
                if col > k:
                    count_added(sizes, common, added, k, col, col + 1, cap)


@inner
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


@inner
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


@jit_that_allocates
def mix_supports(support: Array, rows: Array, factor: Array) -> None:
    """Give ``rows[b]`` of `support` the union of the ``rows[a]`` for which ``factor[a, b] != 0``.

    `support` (any, words) are bit sets, uint64.
    """
    before = support[rows]
    for b in range(rows.shape[0]):
        row = support[rows[b]]
        row[:] = 0
        for a in range(rows.shape[0]):
            if factor[a, b] != 0.0:
                for w in range(row.shape[0]):
                    row[w] |= before[a, w]
