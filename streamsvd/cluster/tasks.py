"""Passes over the source by tasks of a Dask cluster: the Gram sum, scores, accuracy."""

from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.cluster.submitted import Submitted, key_of
from streamsvd.cluster.waiting import Advance, answer_of, n_threads, watch
from streamsvd.data.missing import Filled, Missing
from streamsvd.data.source import Source, dense
from streamsvd.errors import OptionError
from streamsvd.passes.centring import finish_gram
from streamsvd.passes.gram import GramSum, multiplies_sparse
from streamsvd.passes.ingest import first_sample
from streamsvd.passes.measure import Sums, sum_up, write_scores
from streamsvd.passes.missing import Seen, seen_in
from streamsvd.passes.moments import moment_leaf
from streamsvd.passes.preprocessing import Preprocessing
from streamsvd.passes.strips import StripReader, sum_strips
from streamsvd.passes.sum_tree import SumTree
from streamsvd.passes.weighted import first_weighed, total_weight
from streamsvd.sizes import FAN_IN, leaf_samples


def cluster_scores(
    client: Any,
    components: sparse.csr_array,
    preprocessing: Preprocessing,
    reader: StripReader,
    target: Any,
    advance: Advance,
) -> None:
    """`measure.write_scores` by tasks, each of which writes whole chunks of `target`."""

    def work(part: StripReader) -> tuple[Any, ...]:
        return write_scores, components, preprocessing, part, target

    _by_tasks(client, "scores", reader, advance, work)


def cluster_sums(
    client: Any,
    components: sparse.csr_array,
    preprocessing: Preprocessing,
    reader: StripReader,
    right: sparse.csc_array | None,
    with_gram: bool,
    advance: Advance,
) -> Sums:
    """`measure.sum_up` by tasks; equal to rounding. Memory of a task: two n x n matrices."""

    def work(part: StripReader) -> tuple[Any, ...]:
        columns = None if right is None else right[:, part.start : part.stop]
        return sum_up, components, preprocessing, part, columns, with_gram

    return cast(Sums, _by_tasks(client, "accuracy", reader, advance, work, adds=True))


def _by_tasks(
    client: Any,
    name: str,
    reader: StripReader,
    advance: Advance,
    work: Callable[[StripReader], tuple[Any, ...]],
    adds: bool = False,
) -> Any:
    """Call a function for runs of strips; the sum of the answers, if they are added up."""
    source, width = reader.source, reader.width
    refuse_unreadable(source)
    if source.computed_by_workers:
        raise OptionError(
            f"{source.name} is computed by the client: leave client out, or write it to a Zarr "
            "store"
        )
    n_strips = -(-source.n_samples // width)
    run = width * max(1, n_strips // (16 * max(n_threads(client), 1)))
    key = key_of(name)
    tasks: list[tuple[Any, int]] = []
    futures = []
    with Submitted(client) as submitted:
        tree = _tree(submitted)
        for start in range(0, source.n_samples, run):
            stop = min(start + run, source.n_samples)
            part = StripReader(source, reader.dtype, width, start=start, stop=stop)
            future = submitted.submit(*work(part), key=f"{key}-{start}")
            tasks.append((future, stop - start))
            if adds:
                tree.add(future)
            else:
                futures.append(future)
        if adds:
            futures.append(tree.total())
        del future  # `watch` releases the last one too
        watch(client, tasks, advance)
        return [answer_of(client, future) for future in futures][-1]


def cluster_gram(
    client: Any, source: Source, center: str | None, normalize: str | None, advance: Advance
) -> tuple[Array, Preprocessing]:
    """`passes.gram.gram_matrix` by tasks and a tree of sums, with the same bits.

    A task reads whole leaves of samples, and with them at most one chunk of the source that another
    reads too; of a Dask array one leaf, which the cluster computes. Tasks are retried by Dask when
    a worker is lost. Memory of a task: three n x n matrices and a few strips of samples.
    """
    n, asked = source.n_features, (center, normalize)
    with Submitted(client) as submitted:
        shift = shift_of(submitted, source, *asked) if "features" in asked else None
        work = (_node, *asked, shift)
        total = sum_leaves(submitted, "gram", source, leaf_samples(n), work, advance)
        node = np.array(answer_of(client, total))
        shift = np.zeros(n) if shift is None else answer_of(client, shift)
    learned = Preprocessing.unlearned(center, normalize, n)
    weight = total_weight(source, leaf_samples(n))
    read = (shift, weight, source.name, source.present)
    return finish_gram(node, learned, *read)


def cluster_missing(client: Any, source: Filled, advance: Advance) -> Missing:
    """`passes.missing.find_missing` by tasks and a tree of sums, with the same bits."""
    whole, n_samples = source.whole, source.n_samples
    leaf = moment_leaf(n_samples)
    with Submitted(client) as submitted:
        work = (_seen, source.code, leaf)
        total = sum_leaves(submitted, "means", whole, leaf, work, advance)
        seen: Seen = answer_of(client, total)
    return seen.missing(n_samples, total_weight(whole, leaf))


def shift_of(
    submitted: Submitted, source: Source, center: str | None, normalize: str | None
) -> Any:
    """A future of the first sample, centred and scaled if samples are: the shift of all sums."""
    refuse_unreadable(source)
    k = first_weighed(source)
    first = _part(submitted, source, k, k + 1)
    return submitted.submit(_first_sample, first, center, normalize, key=key_of("shift"))


def sum_leaves(
    submitted: Submitted,
    name: str,
    source: Source,
    leaf: int,
    work: tuple[Any, ...],
    advance: Advance,
) -> Any:
    """A future of the sum over all samples, by tasks that each sum up whole leaves of them.

    `work` is what a task calls, and what with after ``(part, start, stop)``: where to read from,
    see `opened`, and which samples. Returns when all but the last sums are there.
    """
    refuse_unreadable(source)
    client = submitted.client
    n_leaves = -(-source.n_samples // leaf)
    threads = n_leaves if source.computed_by_workers else n_threads(client)
    tasks: list[tuple[Any, int]] = []
    tree, key = _tree(submitted), key_of(name)
    function, *args = work
    # pickled once, not for each task: it may hold where each of its samples begins
    whole = None
    if not source.computed_by_workers:
        whole = submitted.broadcast(source)
    for k, (level, lo, hi) in enumerate(_tasks(n_leaves, threads)):
        start, stop = lo * leaf, min(hi * leaf, source.n_samples)
        part = _part(submitted, source, start, stop) if whole is None else whole
        node = submitted.submit(function, part, start, stop, *args, key=f"{key}-{k}")
        tasks.append((node, stop - start))
        tree.add(node, level)
    total = tree.total()
    del node, part  # `watch` releases them
    watch(client, tasks, advance)
    return total


def _tree(submitted: Submitted) -> SumTree:
    """Sums on the workers."""
    return SumTree(lambda total, node: submitted.submit(_sum, total, node))


def _sum(total: Any, node: Any) -> Any:
    return total + node


def refuse_unreadable(source: Source) -> None:
    """Refuse data that are in this process alone."""
    if not (source.readable_by_workers or source.computed_by_workers):
        raise OptionError(
            f"{source.name} cannot be read by the workers; write it to a Zarr store that they see, "
            "or leave client out"
        )


def _tasks(n_leaves: int, threads: int) -> Iterator[tuple[int, int, int]]:
    """Level and leaves of each task: whole nodes of the tree, several tasks for each thread."""
    level = 0
    while n_leaves // FAN_IN ** (level + 1) >= 4 * threads:
        level += 1
    start = 0
    while start < n_leaves:
        while start + FAN_IN**level > n_leaves:
            level -= 1
        yield level, start, start + FAN_IN**level
        start += FAN_IN**level


def _part(submitted: Submitted, source: Source, start: int, stop: int) -> Any:
    """What a task reads from: the source, or of a Dask array the samples, computed before it.

    And what these weigh.
    """
    if source.computed_by_workers:
        samples = submitted.compute(source.lazy(start, stop))
        return samples, source.weights_of_samples(start, stop)
    return source


def opened(part: Any, start: int, stop: int) -> tuple[Source, int, int]:
    """The source of a task, and which of its samples are the task's."""
    if isinstance(part, Source):
        return part, start, stop
    samples, weights = dense(part[0]), part[1]
    source = Source(samples, 1, "the Dask array", samples.shape[1])
    source.sample_weights = weights
    return source, 0, stop - start


def _first_sample(part: Any, center: str | None, normalize: str | None) -> Array:
    source, _, _ = opened(part, 0, 1)
    return first_sample(source, center, normalize)


def _seen(part: Any, start: int, stop: int, code: float, leaf: int) -> Seen:
    source, start, stop = opened(part, start, stop)
    return seen_in(source, code, leaf, start, stop)


def _node(
    part: Any,
    start: int,
    stop: int,
    center: str | None,
    normalize: str | None,
    shift: Array | None,
) -> Array:
    source, start, stop = opened(part, start, stop)
    shift = None if shift is None else np.array(shift)
    with GramSum(source.n_features, center, normalize, 1, shift) as total:
        as_sparse = multiplies_sparse(source, center)
        strips = sum_strips(source, as_sparse, None, start, stop)
        total.extend(strips, weights=source.weights_of_samples(start, stop))
        return total.node()
