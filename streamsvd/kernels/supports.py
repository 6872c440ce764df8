"""Kernels of supports as bit sets: what transforms join, what a pair would add, how many."""

from typing import Any

import numpy as np
from numba import types
from numba.extending import lower_builtin, type_callable

from streamsvd.arrays import Array
from streamsvd.kernels.jit import jit, jit_that_allocates


def identity_bits(size: int, first: int, last: int) -> Array:
    """Columns first..last-1 of the identity, as bit sets: (size, words) uint64."""
    bits = np.zeros((size, -(-(last - first) // 64)), dtype=np.uint64)
    local = np.arange(last - first)
    bits[first + local, local // 64] = np.uint64(1) << (local % 64).astype(np.uint64)
    return bits


def bits_set(word: Any) -> int:
    """Number of set bits of a uint64."""
    return int(word).bit_count()


@type_callable(bits_set)
def _type_bits_set(context: Any) -> Any:
    return lambda word: types.int64


@lower_builtin(bits_set, types.uint64)
def _lower_bits_set(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """One instruction."""
    return builder.ctpop(args[0])


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
    (p + 1, n) the sizes of their intersections; its last row and `work` (2, words) are work space.
    """
    p, n = added.shape
    for w in range(bits.shape[0]):
        work[0, w], work[1, w] = bits[w, i], bits[w, j]
    for side in range(work.shape[0]):  # a literal 2 would be compiled as two loops
        c = j if side else i
        with_i, with_j = g[0, side] != 0.0, g[1, side] != 0.0
        # what column c shares with the others, those beyond the first p with these alone
        line, stop = common[c if c < p else p], n if c < p else p
        if c >= p:
            for k in range(p):
                line[k] = common[k, c]
        for w in range(bits.shape[0]):  # word by word, those that change
            old, new = bits[w, c], np.uint64(0)
            if with_i:
                new |= work[0, w]
            if with_j:
                new |= work[1, w]
            if new != old:
                gained, lost, words = new & ~old, old & ~new, bits[w]
                bits[w, c] = new
                sizes[c] += bits_set(gained) - bits_set(lost)
                for k in range(stop):
                    line[k] += bits_set(gained & words[k]) - bits_set(lost & words[k])
        if c < p:
            line[c] = sizes[c]
        for k in range(p):
            common[k, c] = line[k]
    for side in range(work.shape[0]):
        c = j if side else i
        for k in range(c + 1 if c < p else p):
            first, stop = (c, c + 1) if k < c else (c + 1, n)
            for m in range(first, stop):
                union = sizes[k] + sizes[m] - common[k, m]
                new = union - sizes[k] + (union - sizes[m] if m < p else 0)
                added[k, m] = new if union <= cap else 2 * n


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
