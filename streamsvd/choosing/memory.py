"""What a cross-validation will take, before it starts: integer arithmetic."""

from dataclasses import replace

from dask.utils import format_bytes

from streamsvd.errors import ResourceError
from streamsvd.plan import FIXED_BYTES, make_gram_plan, refinement_state
from streamsvd.problem import Problem
from streamsvd.sizes import batch_samples, gram_sums

WHILE_FITTING = 3
"""n x n matrices beside the sums: ``X X^T`` of a fit, the same scaled, and without what is zero."""


def check_memory(problem: Problem, sizes: list[int], held: int, limit: int) -> int:
    """The most memory that will be taken; refuses what does not fit, with the figures.

    Parameters
    ----------
    problem : Problem
        That of the largest fit on all samples, on the Gram matrix.
    sizes : list of int
        Samples of each fold.
    held : int
        Bytes of what is held of each sample.
    limit : int
        Bytes that may be taken.
    """
    n, k = problem.n_features, len(sizes)
    matrix = 8 * n * (n + 3)
    strip = problem.strip_width(limit)
    # two strips and the part of one; a sum for each level of each tree, two batches for each fold
    reading = 16 * n * strip + 3 * problem.decoded_bytes(strip)
    reading += 2 * k * 8 * (n + 1) * batch_samples(n)
    sums = sum(gram_sums(n, max(size, 1)) for size in sizes)
    fitting = (k + WHILE_FITTING) * matrix + refinement_state(problem)
    peak = FIXED_BYTES + held + max(reading + sums * matrix, fitting)
    if peak > limit:
        times = max(sums, k + WHILE_FITTING)
        raise ResourceError(
            f"the {n} x {n} Gram matrix takes {format_bytes(matrix)} and is held {times} times for "
            f"{k} folds, the fits take about {format_bytes(peak)} in all; memory_limit is "
            f"{format_bytes(limit)}; raise it, lower folds, or fit fewer features, "
            "see feature_mask"
        )
    at_the_end = replace(problem, may_be_factor=False)
    make_gram_plan(at_the_end, memory_limit=limit)
    return peak
