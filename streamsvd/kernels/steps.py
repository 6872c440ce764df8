"""Algorithm 1 as one kernel, for a working matrix that is all in this process.

The kernels of `rotations`, `scores` and `supports` in the order of `algorithm.algorithm_1`, with
nothing in between. Chunks come by their addresses: a kernel that took a list of arrays would be
compiled again for each number of them, or convert the list at each call.
"""

import ctypes
from typing import Any, NamedTuple

import numpy as np
from numba import carray, types
from numba.extending import lower_builtin, type_callable
from numba.np.arrayobj import populate_array

from streamsvd.arrays import Array
from streamsvd.kernels.jit import jit, part
from streamsvd.kernels.rotations import (
    look_up,
    pair_factors,
    rotate,
    rotate_column,
    rotate_lead,
    rotate_rows,
    symmetric_factors,
    update_tail,
)
from streamsvd.kernels.scores import best_pairs, update_scores
from streamsvd.kernels.supports import join_supports


class Blocks(NamedTuple):
    """The columns, all of them, in chunks of one width."""

    tops: Array
    """(chunks,) int64, the address of the first `p` rows of each chunk."""
    chunks: Array
    """(chunks,) int64, the address of each chunk."""
    firsts: Array
    """(chunks,) where the tail begins in each."""
    stops: Array
    """(chunks,) where padding begins in each."""
    width: int
    peaks: Array
    """(p, spans) the peaks of all chunks, one after the other."""
    tail_value: Array
    """(1, p) the largest tail entry of each row."""
    tail_where: Array
    """(1, p) its column, -1 when there is no tail."""
    before: Array
    """(p,) of the type of the data, work space."""
    before_bits: Array
    """The same memory as integers."""
    stale: Array
    """(p,) work space."""


class Index(NamedTuple):
    """What pairs are picked from; see `algorithm.coordinator` and `scores.update_scores`."""

    lead: Array
    head: Array
    diag: Array
    scores: Array
    head_best: Array
    work: Array
    where: Array
    added: Array
    weights: Array


class Fill(NamedTuple):
    """Supports, empty where fill does not count; see `supports.join_supports`."""

    bits: Array
    sizes: Array
    common: Array
    work: Array
    cap: int
    max_nonzeros: int


@jit
def make_transforms(
    blocks: Blocks,
    index: Index,
    fill: Fill,
    selection: int,
    n_samples: int,
    symmetric: bool,
    threshold: float,
    batch: int,
    pairs: Array,
    tails: Array,
    g: Array,
    h: Array,
    values: Array,
) -> int:
    """Make transforms in batches of `batch` until `pairs` (k, 2) has no room for another.

    Returns how many there are; none when no score is above `threshold`. They are written to
    `pairs`, `tails` (k,), `g`, `h` (k, 2, 2) and `values` (k, 2); see `algorithm.log.Moves`.
    """
    lead, head, diag, scores, head_best, work, where, added, weights = index
    p, n = head.shape
    done = 0
    while done + batch <= pairs.shape[0]:
        stop = done + batch
        room = room_left(fill, p, weights)
        found = best_pairs(
            selection,
            diag,
            scores,
            head_best,
            blocks.tail_value,
            blocks.tail_where,
            added,
            room,
            threshold,
            work,
            where,
            pairs[done:stop],
            tails[done:stop],
        )
        if not found:
            break
        stop = done + found
        picked, before = pairs[done:stop], tails[done:stop]
        left, right = g[done:stop], h[done:stop]
        if symmetric:
            symmetric_factors(head, lead, diag, picked, left, right)
        else:
            pair_factors(head, lead, diag, picked, before, n_samples, left, right)
        for k in range(done, stop):
            i, j = pairs[k, 0], pairs[k, 1]
            move(blocks, lead, head, diag, n_samples, i, j, g[k], h[k])
            if len(added) and j < n:
                join_supports(
                    fill.bits, fill.sizes, fill.common, fill.work, added, i, j, g[k], fill.cap
                )
        update_scores(
            selection,
            head,
            lead,
            diag,
            scores,
            head_best,
            picked,
            added,
            weights,
            room_left(fill, p, weights),
            values[done:stop],
        )
        done = stop
    return done


@part
def move(
    blocks: Blocks,
    lead: Array,
    head: Array,
    diag: Array,
    n_samples: int,
    i: int,
    j: int,
    g: Array,
    h: Array,
) -> None:
    """Rows i, j of ``X`` by `g`, columns i, j by `h`, wherever they are; the head as they become.

    What `head` and `diag` share with `lead` is left to `update_scores`.
    """
    p, n = head.shape
    width, peaks, before, stale = blocks.width, blocks.peaks, blocks.before, blocks.stale
    value, where = blocks.tail_value[0], blocks.tail_where[0]
    spans = peaks.shape[1] // len(blocks.chunks)
    if j < n:
        rotate_lead(lead, i, j, g)
        for b in range(len(blocks.chunks)):
            top = block_at(blocks.tops[b], p, width, lead)
            bits = block_at(blocks.tops[b], p, width, peaks)
            chunk = block_at(blocks.chunks[b], n, width, lead)
            first, stop = blocks.firsts[b], blocks.stops[b]
            rotate_rows(top, bits, chunk, i, j, g, first, stop, peaks, b * spans)
            for side in range(2):
                row = j if side else i
                if row < p:
                    copy_head(top, row, first, head, b * width)
        look_up_all(blocks, i, lead)
        if j < p:
            look_up_all(blocks, j, lead)
    if j < p:
        rotate(lead, i, lead, j, np.int64(0), n, h)
    elif j < n_samples:
        b = j // width
        top = block_at(blocks.tops[b], p, width, lead)
        chunk = block_at(blocks.chunks[b], n, width, lead)
        start, first, stop = b * width, blocks.firsts[b], blocks.stops[b]
        rotate_column(top, chunk, j - start, lead[i], h, before)
        if j - start >= first:
            n_stale = update_tail(
                top,
                block_at(blocks.tops[b], p, width, peaks),
                j - start,
                start,
                blocks.before_bits,
                first,
                stop,
                peaks,
                b * spans,
                value,
                where,
                stale,
            )
            for k in range(n_stale):
                look_up_all(blocks, stale[k], lead)
        if j < n:
            for k in range(p):
                head[k, j] = top[k, j - start]
            diag[j] = chunk[j, j - start]


@part
def copy_head(top: Array, row: int, count: int, head: Array, start: int) -> None:
    """``head[row, start:]`` from the chunk that begins there, `count` numbers."""
    offset = np.uint64(start)
    for k in range(np.uint64(count)):
        head[row, offset + k] = top[row, k]


@jit
def look_up_all(blocks: Blocks, i: int, like: Array) -> None:
    """Where the largest tail entry of row `i` is, whichever chunk it is in; see `look_up`."""
    width, peaks = blocks.width, blocks.peaks
    spans = peaks.shape[1] // len(blocks.chunks)
    b = 0
    for _ in range(2):  # the first tells where to look
        best = look_up(
            block_at(blocks.tops[b], peaks.shape[0], width, like),
            block_at(blocks.tops[b], peaks.shape[0], width, peaks),
            i,
            b * width,
            blocks.firsts[b],
            blocks.stops[b],
            peaks,
            b * spans,
            blocks.tail_value[0],
            blocks.tail_where[0],
        )
        if best < spans:
            break
        b = best // spans


@part
def room_left(fill: Fill, n_components: int, weights: Array) -> int:
    """Nonzeros that may still be added to the first `p` columns of `U`; 0 where none count."""
    room = 0
    if len(weights):
        room = fill.max_nonzeros
        for i in range(n_components):
            room -= fill.sizes[i]
        room = min(room, len(weights) - 2)
    return room


# ------------------------------------------------------------------------- arrays by address


def block_at(address: int, n_rows: int, width: int, like: Array) -> Array:
    """The C-contiguous (n_rows, width) array at `address`, of numbers as in `like`."""
    return carray(ctypes.c_void_p(int(address)), (n_rows, width), like.dtype)


@type_callable(block_at)
def _type_block_at(context: Any) -> Any:
    return lambda address, n_rows, width, like: types.Array(like.dtype, 2, "C")


@lower_builtin(block_at, types.int64, types.int64, types.int64, types.Array)
def _lower_block_at(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """`carray` does this too, but makes arrays that are counted; see `jit`."""
    address, n_rows, width, _ = args
    kind = signature.return_type
    array = context.make_array(kind)(context, builder)
    size = context.get_constant(types.intp, kind.dtype.bitwidth // 8)
    populate_array(
        array,
        data=builder.inttoptr(address, array.data.type),
        shape=[n_rows, width],
        strides=[builder.mul(width, size), size],
        itemsize=size,
        meminfo=None,
    )
    return array._getvalue()
