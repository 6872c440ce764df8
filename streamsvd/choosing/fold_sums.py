"""One pass over the samples: a Gram sum for each fold, which add up to that of any folds.

Training sums are sums of the sums of other folds, not the whole less one: nothing cancels. The sums
have the same shift, the first sample, so that they can be added. Each has its own batches, leaves
and tree: its bits depend on the samples of its fold alone, not on how they were read.
"""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.data import Source
from streamsvd.data.present import ALL, Present
from streamsvd.kernels.sparse import normalize_sparse
from streamsvd.passes.centring import finish_gram, gram_about
from streamsvd.passes.gram import GramSum, multiplies_sparse
from streamsvd.passes.preprocessing import Preprocessing
from streamsvd.passes.strips import sum_strips
from streamsvd.passes.summed import SummedSamples
from streamsvd.system import one_blas_thread


@dataclass
class FoldSums:
    """What the samples of each fold add up to.

    Attributes
    ----------
    nodes : list of (n + 1, n) or (n + 3, n) array
        For each fold, see `GramSum.node`.
    counts : list of int
        Samples of each.
    shift : (n,) array
        What was subtracted from all of them.
    center, normalize : {None, "features", "samples"}
    name : str
        Of the data, in errors.
    present : Present
        Of the data, see `Source.present`.
    """

    nodes: list[Array]
    counts: list[int]
    shift: Array
    center: str | None
    normalize: str | None
    name: str
    present: Present = ALL

    def gram(self, folds: Iterable[int]) -> tuple[Array, Preprocessing]:
        """``X X^T`` of the samples of some folds, centred and scaled by what they tell themselves.

        Memory: a new n x n matrix.
        """
        first, *others = sorted(folds)
        node, count = self.nodes[first].copy(), self.counts[first]
        for fold in others:
            node += self.nodes[fold]
            count += self.counts[fold]
        learned = Preprocessing.unlearned(self.center, self.normalize, len(self.shift))
        listed = ", ".join(str(fold) for fold in (first, *others))
        name = f"{self.name} (folds {listed})"
        with one_blas_thread:
            return finish_gram(node, learned, self.shift, count, name, self.present)

    def without(self, fold: int) -> tuple[Array, Preprocessing]:
        """The same of all folds but one: what is fitted to."""
        return self.gram(set(range(len(self.nodes))) - {fold})

    def held_out(self, fold: int, learned: Preprocessing) -> Array:
        """``X X^T`` of one fold, centred and scaled by what was learned from others.

        Memory: a new n x n matrix.
        """
        with one_blas_thread:
            return gram_about(self.nodes[fold].copy(), self.shift, self.counts[fold], learned)

    def total(self) -> GramSum:
        """The sum of all, into which the nodes are added up: the last call to make."""
        node, count = self.nodes.pop(0), sum(self.counts)
        while self.nodes:
            node += self.nodes.pop(0)
        return GramSum.of_node(node, count, self.shift, self.center, self.normalize)


class FoldedSamples(SummedSamples):
    """The samples of a source that was read, of which a sum is left; called what they were."""

    is_readable = True  # again, by whoever asks for more

    def __init__(self, source: Source, total: GramSum) -> None:
        super().__init__(total)
        self.name, self.sample_axis = source.name, source.sample_axis
        self.features, self.samples = source.features, source.samples
        self.packing, self.bytes_read = source.packing, source.bytes_read
        self.mask, self.present, self.whole = source.mask, source.present, source

    @property
    def n_all(self) -> int:
        """Features of the data, also those that are left out."""
        return self.whole.n_all

    def latitudes(self) -> Array | None:
        """Of all features of the data."""
        return self.whole.latitudes()


def sum_folds(
    source: Source,
    labels: Array,
    center: str | None,
    normalize: str | None,
    width: int | None = None,
    n_threads: int = 1,
    on_samples: Callable[[int], None] = lambda n: None,
) -> FoldSums:
    """Sum up each fold of the samples in one pass; `labels` (N,) are their folds.

    Notes
    -----
    Cost: one read of the source and ``n^2 N`` operations, as without folds; of a sparse source with
    less than a fifth of its numbers stored, the square of each sample's nonzeros. Memory: for each
    fold what a Gram sum takes (see `sizes.gram_sums`) and two batches; a copy of a strip.
    """
    n, folds = source.n_features, int(labels.max()) + 1
    shift: Array | None = None
    sums: list[GramSum] = []
    start = 0
    with ExitStack() as stack:
        for strip in sum_strips(source, multiplies_sparse(source, center), width):
            if shift is None:
                shift = _first_sample(strip, center, normalize)
                for _ in range(folds):
                    made = GramSum(n, center, normalize, n_threads, shift)
                    sums.append(stack.enter_context(made))
            count = strip.shape[0 if sparse.issparse(strip) else 1]
            here = labels[start : start + count]
            for fold, total in enumerate(sums):
                taken = np.flatnonzero(here == fold)
                if len(taken):
                    total.extend([_of_samples(strip, taken)])
            start += count
            on_samples(count)
        assert shift is not None  # noqa: S101  (there is a sample)
        nodes = [total.node() for total in sums]
    counts = [total.n_samples for total in sums]
    return FoldSums(nodes, counts, shift, center, normalize, source.name, source.present)


def _first_sample(strip: Any, center: str | None, normalize: str | None) -> Array:
    """The shift of all sums: centred and scaled if samples are; zero where no feature is."""
    n = strip.shape[1 if sparse.issparse(strip) else 0]
    if "features" not in (center, normalize):
        return np.zeros(n)
    if isinstance(strip, sparse.csr_array):
        row = strip[[0]]
        if normalize == "samples":
            normalize_sparse(row.indptr, row.data)
        return np.asarray(row.toarray()[0])
    first = np.ascontiguousarray(strip[:, :1], dtype=np.float64)
    Preprocessing.unlearned(center, normalize, n).before().apply(first)
    return first[:, 0].copy()


def _of_samples(strip: Any, taken: Array) -> Any:
    """These samples of a strip, as a new one."""
    is_csr = sparse.issparse(strip)
    if len(taken) == strip.shape[0 if is_csr else 1]:
        return strip
    return strip[taken] if is_csr else np.take(strip, taken, axis=1)
