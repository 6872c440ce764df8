"""The one-pass reduction: ``X X^T`` from a single read of the source.

Where n x n numbers fit in memory, Algorithm 1 runs on ``A = X X^T`` instead of `X`: 2x2 blocks are
symmetric positive semidefinite, so ``G = H``, and the trace of the first p diagonal entries is the
explained variance itself.

The sum has one order whatever reads the samples: batches of samples are added up to leaves, and the
leaves in a tree. Sizes of batches and leaves depend on `n` alone, so the bits are the same for any
chunking, any number of threads, and any split of the leaves over workers.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np
from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.data.present import ALL, Present
from streamsvd.data.source import Source
from streamsvd.kernels.sparse import (
    add_sparse_gram,
    add_sparse_moments,
    add_weighted_sparse_moments,
    normalize_sparse,
)
from streamsvd.passes.centring import finish_gram
from streamsvd.passes.ingest import first_sample
from streamsvd.passes.preprocessing import Preprocessing
from streamsvd.passes.sample_sum import SampleSum
from streamsvd.passes.strips import stays_sparse, sum_strips
from streamsvd.passes.summed import SummedSamples
from streamsvd.passes.weighted import rooted, total_weight
from streamsvd.sizes import batch_samples, leaf_samples, row_panels


def panel_rows(n_features: int) -> int:
    """Rows and columns of the Gram matrix that one task computes: some tasks for each thread."""
    return min(512, max(128, -(-n_features // 4)))


def gram_matrix(
    source: Source,
    center: str | None,
    normalize: str | None,
    width: int | None = None,
    n_threads: int = 1,
    on_samples: Callable[[int], None] = lambda n: None,
) -> tuple[Array, Preprocessing]:
    """``X X^T`` of the centred and scaled source, in one pass, and what was learned on the way.

    Accumulated in float64 from data shifted by the first sample, so that a large offset costs no
    digits and a constant feature has a variance of exactly zero. The same bits for any chunking
    and any number of threads.

    Returns
    -------
    gram : (n, n) float64 array
        Symmetric.
    preprocessing : Preprocessing
        With the fitted mean and scale.

    Notes
    -----
    Cost: one read of the source and ``n^2 N`` operations; of a sparse source with less than a fifth
    of its numbers stored, the square of each sample's nonzeros. Memory: ``8 n^2`` bytes twice (once
    more for each level of the tree, see `sizes.gram_sums`), two batches and two strips of samples.
    """
    if isinstance(source, SummedSamples):
        made: tuple[Array, Preprocessing] = source.result()
        return made
    with GramSum(source.n_features, center, normalize, n_threads) as total:
        weights, leaf = source.sample_weights, leaf_samples(source.n_features)
        if weights is not None:
            total.shift = first_sample(source, center, normalize)
        strips = sum_strips(source, multiplies_sparse(source, center), width)
        total.extend(strips, on_samples, weights)
        if weights is not None:
            total.weight = total_weight(source, leaf)
        return total.result(source.name, source.present)


def multiplies_sparse(source: Source, center: str | None) -> bool:
    """Whether the nonzeros of each sample are multiplied with each other, not dense batches.

    Where that is less work: BLAS does about 25 products in the time of one.
    """
    if source.n_stored is None or not stays_sparse(source, center):
        return False
    return (5 * source.n_stored) ** 2 < (source.n_samples * source.n_features) ** 2


class GramSum(SampleSum):
    """``X X^T`` of samples, see `SampleSum`; one batch is multiplied while the next is filled."""

    WHAT = "gram"
    REFUSAL = 'two passes: not with reduction="gram"'

    def __init__(
        self,
        n_features: int,
        center: str | None,
        normalize: str | None,
        n_threads: int = 1,
        shift: Array | None = None,
    ) -> None:
        n, leaf = n_features, leaf_samples(n_features)
        super().__init__(n, center, normalize, n_threads, shift, leaf_size=leaf)
        self._changes_samples = "samples" in (center, normalize)
        # a row of ones: sums come as products; of samples that are weighted, the roots of these
        self._batch = np.ones((n + 1, batch_samples(n)))
        self._is_weighted = False
        self._panels = row_panels(n, panel_rows(n))
        self._pairs = list(panel_pairs(self._panels))

    @classmethod
    def of_node(
        cls,
        node: Array,
        n_samples: int,
        shift: Array,
        center: str | None,
        normalize: str | None,
        n_threads: int = 1,
    ) -> "GramSum":
        """A sum that was made before: a `node` of samples less `shift`, which it takes over."""
        total = cls(node.shape[1], center, normalize, n_threads, shift)
        total._tree.add(node)
        total._is_sparse = len(node) > node.shape[1] + 1
        total.n_samples = n_samples
        return total

    def _start_threads(self) -> None:
        super()._start_threads()
        self._spare: Array | None = None
        self._products: list[Future[None]] = []

    def __getstate__(self) -> dict[str, Any]:
        """What is copied and pickled: not the threads, nor the empty parts of batches."""
        left_out = ("_threads", "_spare", "_products")
        state = {k: v for k, v in vars(self).items() if k not in left_out}
        return state | {"_batch": self._batch[:, : self._filled]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        filled = state.pop("_batch")
        vars(self).update(state)
        self._batch = np.ones((len(filled), batch_samples(len(filled) - 1)))
        self._batch[:, : self._filled] = filled
        self._start_threads()

    def _add(self, samples: Array, weights: Array | None) -> None:
        n, done = len(samples), 0
        if self.shift is None and not (self._changes_samples and self._of_features):
            self.shift = samples[:, 0].astype(np.float64) if self._of_features else np.zeros(n)
        while done < samples.shape[1]:
            count = min(self._batch.shape[1] - self._filled, samples.shape[1] - done)
            batch = self._batch[:n, self._filled : self._filled + count]
            self._fill(samples[:, done : done + count], batch)
            if weights is not None or self._is_weighted:
                self._is_weighted = True
                roots = 1.0 if weights is None else np.sqrt(weights[done : done + count])
                self._batch[n, self._filled : self._filled + count] = roots
            done, self._filled = done + count, self._filled + count
            if self._filled == self._batch.shape[1]:
                self._multiply()

    def _fill(self, samples: Array, batch: Array) -> None:
        """Write samples to a part of the batch, less the shift if nothing is to be done before."""
        shift = self.shift
        if shift is None or self._changes_samples:
            shift = np.zeros(len(samples))

        def fill(panel: slice) -> None:
            np.subtract(samples[panel], shift[panel, np.newaxis], out=batch[panel])

        list(self._threads.map(fill, self._panels))

    def _add_sparse(self, samples: sparse.csr_array, weights: Array | None) -> None:
        """Add samples to the leaf, each thread to some of its rows."""
        n, turns = samples.shape[1], self._n_threads
        if self._of_samples.normalize == "samples":
            normalize_sparse(samples.indptr, samples.data)
        if self.shift is None:
            self.shift = samples[:1].toarray()[0] if self._of_features else np.zeros(n)
        done, data = 0, rooted(samples, weights)
        while done < samples.shape[0]:
            count = min(self._leaf_size - self._leaf_samples, samples.shape[0] - done)
            leaf = self._leaf = np.zeros((n + 3, n)) if self._leaf is None else self._leaf
            part = (samples.indptr[done : done + count + 1], samples.indices)
            add = [
                self._threads.submit(add_sparse_gram, *part, data, leaf, turn, turns)
                for turn in range(turns)
            ]
            if weights is None:
                add_sparse_moments(*part, samples.data, self.shift, leaf[n:])
            else:
                own = weights[done : done + count]
                add_weighted_sparse_moments(*part, samples.data, own, self.shift, leaf[n:])
            for job in add:
                job.result()
            done, self._leaf_samples = done + count, self._leaf_samples + count
            self._wait()  # closes the leaf when it is full

    def node(self) -> Array:
        """The sum so far, (n + 1, n): the lower triangle of ``Y Y^T``, below it the sums of `Y`.

        `Y` are the samples, centred and scaled if samples are, less the shift. Of sparse samples
        (n + 3, n): of `Y` without the shift, and `centring.Sums.moments`.
        """
        node: Array = super().node()
        return node

    def result(self, name: str = "the data", present: Present = ALL) -> tuple[Array, Preprocessing]:
        """``X X^T`` of the centred and scaled samples, and what was learned from them."""
        node, shift = self.node(), self.shift
        assert shift is not None  # noqa: S101  (there is a batch)
        return finish_gram(node, self.preprocessing, shift, self.n_counted, name, present)

    def _prepare(self, samples: Array) -> None:
        """What a batch needs as a whole."""
        self._of_samples.apply(samples)
        if self._of_features:
            if self.shift is None:
                self.shift = samples[:, 0].copy()
            samples -= self.shift[:, None]

    def _weigh(self, batch: Array) -> None:
        """Multiply samples by the roots of their weights, which are below them."""
        batch[:-1] *= batch[-1]

    def _multiply(self) -> None:
        """Begin to add the batch ``B``, as far as it is filled, to the leaf; go on with another."""
        n, batch = len(self._batch) - 1, self._batch
        if self._filled < batch.shape[1]:
            batch = np.ascontiguousarray(batch[:, : self._filled])
        if self._changes_samples:
            self._prepare(batch[:n])
        if self._is_weighted:
            self._weigh(batch)
        self._wait()
        if self._leaf is None:
            self._leaf = np.zeros((n + 1, n))
        leaf = self._leaf

        def multiply(rows: slice, columns: slice) -> None:
            leaf[rows, columns] += batch[rows] @ batch[columns].T

        self._products = [self._threads.submit(multiply, *pair) for pair in self._pairs]
        self._leaf_samples += self._filled
        if batch is self._batch:
            spare = self._spare
            self._spare = batch
            self._batch = np.ones_like(batch) if spare is None else spare
        self._filled = 0

    def _wait(self) -> None:
        """For the products that were begun."""
        for product in self._products:
            product.result()
        self._products = []
        super()._wait()


def panel_pairs(panels: list[slice]) -> Iterator[tuple[slice, slice]]:
    """Rows and columns of the pairs of the lower triangle and of the row below it, largest first.

    A diagonal pair is the product of a matrix with its own transpose, for which BLAS needs half of
    the operations.
    """
    last = panels[-1]
    n = last.stop
    for rows in panels[1:]:
        for columns in panels:
            if columns.start < rows.start:
                yield slice(rows.start, n + 1 if rows == last else rows.stop), columns
    for panel in panels:
        yield panel, panel
    yield slice(n, n + 1), last
