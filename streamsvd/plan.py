"""The problem that a fit solves, and what it will take, before it starts: integer arithmetic."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from dask.utils import format_bytes

from streamsvd.errors import ResourceError
from streamsvd.sizes import (
    ENTRY_BYTES,
    MIB,
    PAGE,
    TILE_WIDTH,
    batch_samples,
    chunk_width,
    gram_sums,
    product_batch,
    product_rows,
    product_sums,
    sparse_width,
    strip_width,
)

FIXED_BYTES = 160 * MIB
"""What compiling the kernels and the libraries take; `tests/test_memory.py` holds it."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What a fit is asked for, once the data are known; options left open are resolved.

    Attributes
    ----------
    n_features, n_samples, n_components, n_transforms : int
        `n`, `N`, `p`, `m`.
    dtype : numpy.dtype
        Of the working matrix.
    reduction : {None, "gram"}
        Whether the working matrix is `X` or ``X X^T``.
    algorithm : {"coordinate", "block"}
    selection : str
        What pairs are scored by.
    budget : int or None
        The most nonzeros of all components.
    fill_penalty : float
        `alpha`.
    seed : int
        Of random pairs.
    source_chunk : int
        Samples in a chunk of the source: the least that can be read at a time.
    source_itemsize : int
        Bytes of a number of the source.
    """

    n_features: int
    n_samples: int
    n_components: int
    n_transforms: int
    dtype: np.dtype[Any]
    reduction: str | None = None
    algorithm: str = "coordinate"
    selection: str = "nuclear"
    budget: int | None = None
    fill_penalty: float = 0.0
    seed: int = 0
    source_chunk: int = 1
    source_itemsize: int = 8

    @property
    def is_reduced(self) -> bool:
        """Whether the working matrix is ``X X^T``: symmetric, and without a tail."""
        return self.reduction == "gram"

    @property
    def is_block(self) -> bool:
        """Whether transforms are block steps."""
        return self.algorithm == "block"

    @property
    def n_columns(self) -> int:
        """Columns of the working matrix."""
        return self.n_features if self.is_reduced else self.n_samples

    @property
    def counts_fill(self) -> bool:
        """Whether supports are kept during the fit."""
        return bool(self.fill_penalty) or self.budget is not None


@dataclass(frozen=True)
class Plan:
    """Sizes of a fit, in bytes unless said otherwise.

    Attributes
    ----------
    memory_limit : int
        What the fit may take.
    in_memory : bool
        Whether the working matrix is held in memory, else it is on disk.
    chunk_width : int
        Samples in a chunk of the working matrix.
    n_chunks : int
        Chunks of the working matrix.
    strip_samples : int
        Samples read from the source at a time.
    hold_rows : bool
        Whether the first p rows, which every move touches, are held in memory (of a working matrix
        on disk).
    peak_memory : int
        The most memory taken at any time beyond what the process has when it starts; mapped pages
        of the working store, which the system takes back as it likes, are not counted.
    disk : int
        The working store; 0 in memory.
    panel : int
        The most that the columns in play may take while a log is replayed.
    row_move, column_move : int
        Read and written again by a transform that rotates rows (``j < n``), and by one that only
        rotates columns, beside what is in memory. Of block steps: both together, and 0.
    is_block : bool
        Whether transforms are block steps.
    """

    memory_limit: int
    in_memory: bool
    chunk_width: int
    n_chunks: int
    strip_samples: int
    hold_rows: bool
    peak_memory: int
    disk: int
    panel: int
    row_move: int
    column_move: int
    is_block: bool = False

    def describe(self) -> str:
        """One line for people."""
        moves = (
            f"{format_bytes(self.row_move)} a block step"
            if self.is_block
            else f"{format_bytes(self.row_move)} a row move, {format_bytes(self.column_move)} a "
            "column move"
        )
        where = "in memory" if self.in_memory else f"on disk ({format_bytes(self.disk)})"
        return (
            f"working matrix {where} in {self.n_chunks} chunk(s) of {self.chunk_width} samples; "
            f"peak memory {format_bytes(self.peak_memory)} of {format_bytes(self.memory_limit)}; "
            f"first rows {'held in memory' if self.in_memory or self.hold_rows else 'on disk'}; "
            f"{moves}"
        )


def make_plan(problem: Problem, *, memory_limit: int, place: str, width: int | None = None) -> Plan:
    """Plan a fit that rewrites `X`, or refuse it with the figures.

    Parameters
    ----------
    problem : Problem
    memory_limit : int
        Bytes.
    place : {"either", "memory", "disk", "given"}
        Where the working matrix may be: in memory when it fits, else on disk; in memory; on disk;
        in memory or a store that is there already.
    width : int, optional
        Chunk width of a working store that is given.
    """
    n, n_total = problem.n_features, problem.n_samples
    p, m = problem.n_components, problem.n_transforms
    itemsize, source_itemsize = problem.dtype.itemsize, problem.source_itemsize
    is_block = problem.is_block
    column = n * itemsize
    if is_block:
        state = block_state(n, n_total, p, m, itemsize)
        reach = p + p * m
    else:
        state = p * n * (2 * itemsize + 8) + p * (n_total // 1024 + 1) * 8 + 400 * m + 300 * n
        reach = p + m
    if problem.counts_fill:
        state += n * n // 4 + 32 * p * n
    # components and right vectors, built at the end: dense, pattern and sparse
    result = (8 if is_block else 4) * 8 * p * (min(n, reach) + min(n_total, reach))
    strip = strip_width(n, n_total, problem.source_chunk, memory_limit)
    # one strip is written and one cast and worked on while the next is read and decoded
    cast = itemsize if itemsize > source_itemsize else 0
    strips = n * strip * (2 * itemsize + cast + 3 * source_itemsize)
    strips += 16 * n * min(256, n_total // 64 + 1)  # leaves of moments
    base = FIXED_BYTES + state + max(result, strips)
    matrix, rows = column * n_total, p * n_total * itemsize
    in_memory = place == "memory" or (place == "either" and base + matrix <= memory_limit)
    hold_rows = place in ("either", "disk") and not in_memory and base + rows <= memory_limit
    peak = base + (matrix if in_memory else rows if hold_rows else 0)
    if peak > memory_limit:
        raise ResourceError(
            f"the fit needs about {format_bytes(peak)} of memory ({format_bytes(FIXED_BYTES)} in "
            f"any case, {format_bytes(state)} for scores, {format_bytes(strips)} to read {strip} "
            f"samples at a time, {format_bytes(result)} for the result"
            + (f", {format_bytes(matrix)} for the data" if in_memory else "")
            + f"); memory_limit is {format_bytes(memory_limit)}; raise it, or "
            + _remedy(in_memory, strips > result)
        )
    width = n_total if in_memory else width or chunk_width(n, n_total, itemsize)
    n_chunks = -(-n_total // width)
    row_move = 0 if in_memory else (1 if hold_rows else 2) * n_total * itemsize
    column_move = 0 if in_memory else (n - p if hold_rows else n) * PAGE
    if is_block:  # 2p rows; a page for each entry of p columns, or all there are
        rows_moved = (1 if hold_rows else 2) * p * n_total * itemsize
        row_move = 0 if in_memory else rows_moved + min(p * column_move, matrix)
        column_move = 0
    return Plan(
        memory_limit=memory_limit,
        in_memory=in_memory,
        chunk_width=width,
        n_chunks=n_chunks,
        strip_samples=strip,
        hold_rows=hold_rows,
        peak_memory=peak,
        disk=0 if in_memory or place == "given" else column * width * n_chunks,
        panel=max(result, strips) + (rows if hold_rows else 0),
        row_move=row_move,
        column_move=column_move,
        is_block=is_block,
    )


def block_state(n: int, n_total: int, p: int, m: int, itemsize: int) -> int:
    """Memory of a run of `m` block steps beside the working matrix.

    The log, and a copy of it on its way to the disk; the columns of a step, as read, joined,
    rotated and rounded; two tiles of its rows; scores of all columns, and what ranks them; the SVD.
    """
    w = min(2 * p, max(n, n_total))
    log, panels, tiles = 2 * m * 2 * 8 * w * w, 6 * 8 * n * w, 2 * w * TILE_WIDTH * itemsize
    return log + panels + tiles + 40 * n_total + 10 * 8 * w * w + 300 * n


def make_gram_plan(problem: Problem, *, memory_limit: int) -> Plan:
    """Plan a fit of ``X X^T``, or refuse it with the figures; arguments as in `make_plan`."""
    n, n_samples, p = problem.n_features, problem.n_samples, problem.n_components
    n_block_steps = problem.n_transforms if problem.is_reduced and problem.is_block else 0
    matrix = 8 * n * (n + 1)
    strip = strip_width(n, n_samples, problem.source_chunk, memory_limit)
    # two strips, two batches, the sums
    strips = n * strip * (8 + 3 * problem.source_itemsize) + 2 * 8 * n * batch_samples(n)
    sums = gram_sums(n, n_samples)
    reading = strips + sums * matrix
    # the matrix, and the copy that the transforms rotate; supports and scores; the components
    rotating = 2 * matrix + n * n // 8 + 8 * p * n * 7 + 300 * n
    if n_block_steps:
        rotating += block_state(n, n, p, n_block_steps, 8)
    peak = FIXED_BYTES + max(reading, rotating)
    if peak > memory_limit:
        raise ResourceError(
            f"the {n} x {n} Gram matrix takes {format_bytes(matrix)} and is held {max(sums, 2)} "
            f"times, the fit takes about {format_bytes(peak)} in all; memory_limit is "
            f"{format_bytes(memory_limit)}; raise it, or leave reduction out to rewrite X in place"
        )
    return Plan(memory_limit, True, n, 1, strip, False, peak, 0, 0, 0, 0, n_block_steps > 0)


def make_factor_plan(
    problem: Problem,
    rank: int,
    *,
    memory_limit: int,
    n_threads: int = 1,
    n_stored: int | None = None,
) -> Plan:
    """Plan two passes to a factor of ``X X^T``, or refuse it with the figures.

    Parameters
    ----------
    problem : Problem
    rank : int
        `r`, of the factor.
    memory_limit : int
        Bytes.
    n_threads : int
        That multiply.
    n_stored : int, optional
        Numbers that are stored of a source that is read sparse.
    """
    n, n_samples = problem.n_features, problem.n_samples
    r, p = min(rank, n, n_samples), problem.n_components
    matrix = 8 * n * r
    # the test matrix and the sums; moments, statistics and their temporaries
    state = matrix * (1 + product_sums(n, n_samples)) + 14 * 8 * n
    if n_stored is None:
        strip = strip_width(n, n_samples, problem.source_chunk, memory_limit)
        batch = min(product_batch(n), n_samples)
        reading = n * strip * (8 + 3 * problem.source_itemsize) + 8 * n * batch
        # a batch that is not full is copied; scores of each panel; products of one for each thread
        panels = -(-n // product_rows(n))
        reading += 8 * n * batch + 8 * batch * r * panels
    else:
        strip = sparse_width(n, n_samples, n_stored)
        entries = strip * -(-n_stored // n_samples) + strip
        # one strip that is worked on, one that is read and copied
        reading = 4 * ENTRY_BYTES * entries
        if problem.source_chunk > 1:
            reading += 3 * problem.source_itemsize * problem.source_chunk
    reading += n_threads * 8 * product_rows(n) * r
    # panels and triangles of the basis; the components in the end
    panel = max(2048, 2 * r)
    basis = 8 * r * r * (2 * -(-n // panel) + 6) + 4 * n_threads * 8 * panel * r
    finding = 2 * matrix + 8 * p * n * 7
    peak = FIXED_BYTES + max(state + max(reading, basis), finding)
    if peak > memory_limit:
        raise ResourceError(
            f"a factor of rank {r} takes {format_bytes(matrix)} and is held "
            f"{1 + product_sums(n, n_samples)} times, the fit takes about {format_bytes(peak)} in "
            f"all; memory_limit is {format_bytes(memory_limit)}; raise it, or lower rank"
        )
    return Plan(memory_limit, True, r, 1, strip, False, peak, 0, 0, 0, 0, False)


def make_samples_plan(problem: Problem, *, memory_limit: int) -> Plan:
    """Plan a fit of few samples, held in memory, or refuse it; arguments as in `make_plan`."""
    n, n_samples, p = problem.n_features, problem.n_samples, problem.n_components
    matrix = 8 * n * n_samples
    strip = strip_width(n, n_samples, problem.source_chunk, memory_limit)
    # two strips, one that is written, leaves of moments and their lanes
    reading = n * strip * (16 + 3 * problem.source_itemsize)
    reading += 16 * n * (min(256, n_samples // 64 + 1) + 12)
    peak = FIXED_BYTES + matrix + max(reading, 8 * p * n * 7)
    if peak > memory_limit:
        raise ResourceError(
            f"the {n} x {n_samples} data take {format_bytes(matrix)}, the fit takes about "
            f"{format_bytes(peak)} in all; memory_limit is {format_bytes(memory_limit)}; raise it"
        )
    return Plan(memory_limit, True, n_samples, 1, strip, False, peak, 0, 0, 0, 0, False)


def _remedy(in_memory: bool, reads_wide: bool) -> str:
    if in_memory:
        return "write the data to a Zarr store and fit that"
    if reads_wide:
        return "store the source in narrower chunks"
    return "lower n_components or n_transforms"
