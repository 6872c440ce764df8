"""What a fit will take, before it starts: integer arithmetic."""

from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dask.utils import format_bytes

from streamsvd.errors import ResourceError
from streamsvd.problem import MOST_RELAXED, MOST_ROTATED, Problem
from streamsvd.sizes import (
    ENTRY_BYTES,
    MIB,
    PAGE,
    SEARCH_THREADS,
    TILE_WIDTH,
    batch_samples,
    block_width,
    chunk_width,
    gram_sums,
    product_batch,
    product_rows,
    product_sums,
    search_threads,
    sparse_width,
)

FIXED_BYTES = 160 * MIB
"""What compiling the kernels and the libraries take; `tests/test_memory.py` holds it."""


HELD_OF = 32
"""One column in so many is held, if there is memory: most of those that transforms combine."""

HELD_BYTES = 32
"""Beside its numbers, of a column that is held."""


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
    held_columns : int
        Columns of each chunk that are held in memory (of a working matrix on disk).
    form : str or None
        Of ``X X^T``, where no transforms are made: the samples, or a factor.
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
    held_columns: int = 0
    form: str | None = None

    def describe(self) -> str:
        """One line for people."""
        if self.form is not None:
            return (
                f"X X^T as {self.form}, read {self.strip_samples} samples at a time; peak memory "
                f"{format_bytes(self.peak_memory)} of {format_bytes(self.memory_limit)}"
            )
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
            f"first rows {'held in memory' if self.in_memory or self.hold_rows else 'on disk'}"
            f"{f', {self.held_columns} columns of each chunk held' if self.held_columns else ''}; "
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
    n, n_total, p = problem.n_features, problem.n_samples, problem.n_components
    itemsize, is_block = problem.dtype.itemsize, problem.is_block
    column, strip = n * itemsize, problem.strip_width(memory_limit)
    state, strips, result = parts = _parts(problem, strip)
    base = parts.peak
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
            + _remedy(problem, memory_limit, base, in_memory)
        )
    width = n_total if in_memory else width or chunk_width(n, n_total, itemsize)
    n_chunks = -(-n_total // width)
    held_columns = 0
    if place in ("either", "disk") and not in_memory and not is_block:
        held_bytes = n_chunks * (column + HELD_BYTES)
        # half of what is left: in a container the pages that moves touch have to be somewhere too
        held_columns = min(-(-width // HELD_OF), (memory_limit - peak) // 2 // held_bytes)
        peak += held_columns * held_bytes
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
        held_columns=held_columns,
    )


FEWER = "fit fewer features, see feature_mask"


class Parts(NamedTuple):
    """Memory of a fit that rewrites `X`, in bytes, beside `FIXED_BYTES` and the working matrix."""

    state: int
    """Scores, the log, supports."""
    strips: int
    """Of the source, while it is read."""
    result: int
    """What is made at the end."""

    @property
    def peak(self) -> int:
        """With `FIXED_BYTES`; strips are gone when the result is made."""
        return FIXED_BYTES + self.state + max(self.strips, self.result)


def _parts(problem: Problem, strip: int) -> Parts:
    """Read so many samples at a time."""
    n, n_total = problem.n_features, problem.n_samples
    p, m = problem.n_components, problem.n_transforms
    itemsize, is_block = problem.dtype.itemsize, problem.is_block
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
    # one strip is written and one cast and worked on while the next is read and decoded
    cast = itemsize if itemsize > problem.source_itemsize else 0
    strips = n * strip * (2 * itemsize + cast) + 3 * problem.decoded_bytes(strip)
    strips += 16 * n * min(256, n_total // 64 + 1)  # leaves of moments
    return Parts(state, strips, result)


def _remedy(problem: Problem, memory_limit: int, base: int, in_memory: bool) -> str:
    """What makes a fit possible that takes `base` bytes, or one more with its data in memory.

    Of what does so alone that which there is too much of; where nothing does, all that helps.
    """
    if in_memory and base <= memory_limit:
        return "write the data to a Zarr store and fit that"

    def peak(**changes: Any) -> int:
        changed = replace(problem, **changes)
        return _parts(changed, changed.strip_width(memory_limit)).peak

    least = {
        "n_transforms": peak(n_transforms=0),
        "n_components": peak(n_components=1),
        "": peak(source_chunk=1, source_chunk_bytes=0, decoded=None),
    }
    ways = [name for name in sorted(least, key=least.__getitem__) if least[name] < base]
    alone = [name for name in ways if least[name] <= memory_limit][:1]
    words = {"n_components": "lower n_components", "": "store the source in narrower chunks"}
    if alone == ["n_transforms"]:
        makes = range(problem.n_transforms)
        most = bisect_right(makes, memory_limit, key=lambda m: peak(n_transforms=m)) - 1
        words["n_transforms"] = f"make fewer transforms, n_transforms={most} at most"
    else:
        words["n_transforms"] = "lower n_transforms"
    return " and ".join(words[name] for name in alone or ways) or FEWER


def block_state(n: int, n_total: int, p: int, m: int, itemsize: int) -> int:
    """Memory of a run of `m` block steps beside the working matrix.

    The log, and a copy of it on its way to the disk; the columns of a step, as read, joined,
    rotated and rounded; two tiles of its rows; scores of all columns, and what ranks them; the SVD.
    """
    w = block_width(p, n, n_total)
    log, panels, tiles = 2 * m * 2 * 8 * w * w, 6 * 8 * n * w, 2 * w * TILE_WIDTH * itemsize
    return log + panels + tiles + 40 * n_total + 10 * 8 * w * w + 300 * n


def make_gram_plan(problem: Problem, *, memory_limit: int) -> Plan:
    """Plan a fit of ``X X^T``, or refuse it with the figures; arguments as in `make_plan`."""
    n, n_samples, p = problem.n_features, problem.n_samples, problem.n_components
    n_block_steps = problem.n_transforms if problem.is_reduced and problem.is_block else 0
    matrix = 8 * n * (n + 1)
    strip = problem.strip_width(memory_limit)
    # two strips, two batches, the sums
    strips = n * strip * 8 + 3 * problem.decoded_bytes(strip)
    strips += (1 + problem.gram_parts) * 8 * n * batch_samples(n)
    sums = gram_sums(n, n_samples) * problem.gram_parts
    reading = strips + sums * matrix
    rotating = matrix + rotation_state(problem, n, 0) + relaxation_state(problem)
    kept = sums * matrix if problem.in_batches else 0  # to which more batches may be added
    if n_block_steps:
        rotating += block_state(n, n, p, n_block_steps, 8)
    peak = FIXED_BYTES + kept + max(reading, rotating)
    if peak > memory_limit:
        times = max(sums, 2) + kept // matrix
        raise ResourceError(
            f"the {n} x {n} Gram matrix takes {format_bytes(matrix)} and is held {times} times, "
            f"the fit takes about {format_bytes(peak)} in all; memory_limit is "
            f"{format_bytes(memory_limit)}; raise it, or {_instead(problem, memory_limit)}"
        )
    return Plan(memory_limit, True, n, 1, strip, False, peak, 0, 0, 0, 0, n_block_steps > 0)


def make_samples_plan(problem: Problem, *, memory_limit: int) -> Plan:
    """Plan a fit of few samples, held in memory, or refuse it with the figures."""
    n, n_samples = problem.n_features, problem.n_samples
    matrix, strip = 8 * n * n_samples, problem.strip_width(memory_limit)
    # two strips, one that is written, leaves of moments and their lanes
    reading = 16 * n * strip + 3 * problem.decoded_bytes(strip)
    reading += 16 * n * (min(256, n_samples // 64 + 1) + 12)
    # the data once more, without the features that do not vary
    rotating = rotation_state(problem, min(n, MOST_ROTATED), n_samples)
    searching = max(rotating, matrix + refinement_state(problem))
    peak = FIXED_BYTES + matrix + max(reading, searching)
    if peak > memory_limit:
        raise ResourceError(
            f"the {n} x {n_samples} data take {format_bytes(matrix)}, the fit takes about "
            f"{format_bytes(peak)} in all; memory_limit is {format_bytes(memory_limit)}; raise it, "
            f"or {_instead(problem, memory_limit)}"
        )
    form = "the samples themselves, in one pass"
    return Plan(memory_limit, True, n_samples, 1, strip, False, peak, 0, 0, 0, 0, form=form)


def make_factor_plan(problem: Problem, *, memory_limit: int, n_threads: int = 1) -> Plan:
    """Plan two passes to a factor of ``X X^T``, or one, or refuse it with the figures.

    `n_threads` multiply; other arguments as in `make_plan`.
    """
    n, n_samples, r = problem.n_features, problem.n_samples, problem.factor_rank
    matrix, sums = 8 * n * r, product_sums(n, n_samples)
    # the test matrix and the sums; moments, statistics and their temporaries
    held = matrix * (1 + sums)
    kept = held if problem.in_batches else 0  # to which more batches may be added
    state = held + 14 * 8 * n
    strip, reading = _product_reading(problem, memory_limit)
    reading += n_threads * 8 * product_rows(n) * r
    # panels and triangles of the basis; the factor, once more without what does not vary
    panel = max(2048, 2 * r)
    basis = 8 * r * r * (2 * -(-n // panel) + 6) + 4 * n_threads * 8 * panel * r
    rotating = rotation_state(problem, min(n, MOST_ROTATED), r)
    searching = max(rotating, matrix + refinement_state(problem))
    peak = FIXED_BYTES + kept + max(state + max(reading, basis), matrix + searching)
    if peak > memory_limit:
        times = (held + kept) // matrix
        raise ResourceError(
            f"a factor of rank {r} takes {format_bytes(matrix)} and is held {times} times, the "
            f"fit takes about {format_bytes(peak)} in all; memory_limit is "
            f"{format_bytes(memory_limit)}; raise it, or {_instead(problem, memory_limit)}"
        )
    form = f"a factor of rank {r}, in {'one pass' if problem.in_batches else 'three passes'}"
    return Plan(memory_limit, True, r, 1, strip, False, peak, 0, 0, 0, 0, form=form)


def _instead(problem: Problem, memory_limit: int) -> str:
    """What can be fitted in place of ``X X^T`` in a form that does not fit."""
    p, r = problem.n_components, problem.factor_rank
    if problem.reduction == "factor":
        factor, words = replace(problem, rank=p), "lower rank"
        is_other = r > p
    else:
        factor, words = replace(problem, reduction="factor"), 'pass reduction="factor"'
        is_other = problem.may_be_factor
    if is_other:
        with suppress(ResourceError):
            make_factor_plan(factor, memory_limit=memory_limit)
            return words
    return FEWER


def _product_reading(problem: Problem, memory_limit: int) -> tuple[int, int]:
    """Samples that are read at a time on the way to a product, and the bytes that this takes."""
    n, n_samples, r = problem.n_features, problem.n_samples, problem.factor_rank
    if problem.n_stored is None:
        strip, batch = problem.strip_width(memory_limit), min(product_batch(n), n_samples)
        reading = 8 * n * strip + 3 * problem.decoded_bytes(strip)
        # a batch, a copy of one that is not full; scores of each panel
        return strip, reading + 16 * n * batch + 8 * batch * r * -(-n // product_rows(n))
    strip = sparse_width(n_samples, problem.n_stored)
    entries = strip * -(-problem.n_stored // n_samples) + strip
    # one strip that is worked on, one that is read and copied
    reading = 4 * ENTRY_BYTES * entries
    if problem.source_chunk > 1:
        reading += 3 * problem.source_itemsize * problem.source_chunk
    return strip, reading


def rotation_state(problem: Problem, m: int, width: int) -> int:
    """Memory of transforms among `m` features: the matrix that is rotated, supports and scores.

    With the components that they make; and `width` columns from which the matrix is made.
    """
    n, p = problem.n_features, problem.n_components
    return 8 * m * (m + width) + m * m // 8 + 8 * p * m * 7 + 300 * n


def refinement_state(problem: Problem) -> int:
    """Memory of a search beside its covariance: a smaller factor, and dense (n, p) arrays."""
    n, p = problem.n_features, problem.n_components
    dense = 8 * n * p * (8 + 10 * search_threads(n, p, SEARCH_THREADS))
    return dense + relaxation_state(problem)


def relaxation_state(problem: Problem) -> int:
    """Memory of the convex relaxation: ten matrices of the features that it looks at."""
    return 80 * min(problem.n_features, MOST_RELAXED) ** 2 if problem.relaxes else 0


PLANS = {"gram": make_gram_plan, "samples": make_samples_plan, "factor": make_factor_plan}

QUICK = 2 * 10**12
"""Operations that are not saved at the price of exactness: half a minute of two processors."""

INSTANT = 2 * 10**10
"""Operations that are not saved at the price of the greedy path, which the Gram matrix has."""


def choose_reduction(
    problem: Problem, memory_limit: int, *, exact: bool = False
) -> tuple[str, str]:
    """The form of ``X X^T`` to work on, and why: exact where that is quick, a factor elsewhere.

    A function of the sizes and the memory alone. `exact`: whatever time it takes, where it fits.
    """
    n, n_samples, p = problem.n_features, problem.n_samples, problem.n_components
    work = {
        "gram": n * n * n_samples + 6 * n**3,
        "samples": n * n_samples * (min(n, n_samples) + 40 * p),
    }
    fits = []
    for form, plan in PLANS.items():
        with suppress(ResourceError):
            plan(problem, memory_limit=memory_limit)
            fits.append(form)
    forms = [form for form in fits if form in work]
    if len(forms) == 2:
        is_better = work["gram"] <= max(INSTANT, 4 * work["samples"])
        forms = ["gram" if is_better else "samples"]
    whole = f"X X^T of {n} features takes {format_bytes(8 * n * n)}"
    if forms and (exact or work[forms[0]] <= QUICK or "factor" not in fits):
        about = whole if forms == ["gram"] else f"{n_samples} samples are few"
        return forms[0], f"{about}: exact"
    return "factor", f"{whole}: a factor of rank {problem.factor_rank} instead"


MOST_SUMMED = 5000
"""Features up to which batches are summed up to the Gram matrix where that fits."""


def choose_sum(problem: Problem, memory_limit: int) -> tuple[str, str]:
    """The form of ``X X^T`` that batches are summed up to, and why.

    As `choose_reduction`, without the number of samples, which nobody knows yet; the samples
    themselves are no choice.
    """
    n = problem.n_features
    whole = f"X X^T of {n} features takes {format_bytes(8 * n * n)}"
    if n <= MOST_SUMMED:
        with suppress(ResourceError):
            make_gram_plan(problem, memory_limit=memory_limit)
            return "gram", f"{whole}: exact"
    return "factor", f"{whole}: a factor of rank {problem.factor_rank} from one pass instead"
