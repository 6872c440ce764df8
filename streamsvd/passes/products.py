"""``A @ T`` for ``A = X X^T`` and an n x r matrix `T`, and the diagonal of `A`, in one pass.

`A` is never formed: a batch of samples ``Z`` adds ``Z (Z^T T)``. As in the Gram sum, batches are
added up to leaves and the leaves in a tree, and their sizes depend on `n` alone: the bits are the
same for any chunking, any number of threads, and any split of the leaves over workers.

Dense samples are shifted by the first one, so that a large offset costs no digits. Sparse samples
stay sparse: what centring takes away is of rank one and follows at the end; their moments alone are
of shifted numbers, so that a constant feature has a variance of exactly zero.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.data.present import ALL, Present
from streamsvd.data.source import Source
from streamsvd.kernels.moments import add_row_moments, add_weighted_moments
from streamsvd.kernels.sparse import (
    add_sparse_moments,
    add_sparse_products,
    add_weighted_sparse_moments,
    normalize_sparse,
)
from streamsvd.passes.centring import Product, Sums, finish_products
from streamsvd.passes.ingest import first_sample
from streamsvd.passes.sample_sum import SampleSum
from streamsvd.passes.strips import stays_sparse, sum_strips
from streamsvd.passes.weighted import rooted, total_weight
from streamsvd.sizes import product_batch, product_leaf, product_rows, row_panels


def product_of(
    source: Source,
    test: Array,
    center: str | None,
    normalize: str | None,
    shift: Array | None = None,
    *,
    width: int | None = None,
    n_threads: int = 1,
    on_samples: Callable[[int], None] = lambda n: None,
) -> Product:
    """``A @ test`` in one pass over a source; arguments as in `ProductSum`.

    Notes
    -----
    Cost: one read of the source and ``4 n N r`` operations (n N the nonzeros, where the source is
    sparse and samples are not centred). Memory: `test` and the sum, ``8 n r`` bytes each (one sum
    more for each level of the tree, see `sizes.product_sums`), a batch and two strips of samples.
    """
    with ProductSum(test, center, normalize, n_threads, shift) as total:
        weights, leaf = source.sample_weights, product_leaf(source.n_features)
        if weights is not None and shift is None:
            total.shift = first_sample(source, center, normalize)
        strips = sum_strips(source, stays_sparse(source, center), width)
        total.extend(strips, on_samples, weights)
        if weights is not None:
            total.weight = total_weight(source, leaf)
        return total.result(source.name, source.present)


class ProductSum(SampleSum):
    """``X X^T T`` of samples, see `SampleSum`.

    Parameters
    ----------
    test : (n, r) float64 array, C-contiguous
        `T`. Where features are scaled or weighted, by `D^-1`, the product is that with ``D T``: the
        scale is known at the end only, and `result` then multiplies `test` itself.
    center, normalize, n_threads, shift
        As of `SampleSum`.
    """

    WHAT = "products"
    REFUSAL = "one pass more: center samples, or leave one of both out"

    def __init__(
        self,
        test: Array,
        center: str | None,
        normalize: str | None,
        n_threads: int = 1,
        shift: Array | None = None,
    ) -> None:
        leaf = product_leaf(len(test))
        super().__init__(len(test), center, normalize, n_threads, shift, leaf_size=leaf)
        self.test = test
        if not self._of_features:
            self.shift = np.zeros(len(test))
        self._batch = np.empty((len(test), 0))
        self._weights: Array | None = None  # of the samples of a batch, if these have any

    def __getstate__(self) -> dict[str, Any]:
        """What is copied and pickled: not the threads, nor the empty part of the batch."""
        state = {k: v for k, v in vars(self).items() if k != "_threads"}
        return state | {"_batch": self._batch[:, : self._filled]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        filled = state.pop("_batch")
        vars(self).update(state)
        self._batch = np.empty((len(filled), 0))
        if self._filled:
            self._batch = np.empty((len(filled), product_batch(len(filled))))
            self._batch[:, : self._filled] = filled
        self._start_threads()

    def _panels(self) -> list[slice]:
        n = len(self.test)
        return row_panels(n, product_rows(n))

    # ------------------------------------------------------------------------------- dense samples

    def _add(self, samples: Array, weights: Array | None) -> None:
        done, most = 0, product_batch(len(samples))
        if not self._batch.size:
            self._batch = np.empty((len(samples), most))
        while done < samples.shape[1]:
            count = min(most - self._filled, samples.shape[1] - done)
            self._fill(samples[:, done : done + count])
            if weights is not None and self._weights is None:
                self._weights = np.ones(most)
            if self._weights is not None:
                own = 1.0 if weights is None else weights[done : done + count]
                self._weights[self._filled : self._filled + count] = own
            done, self._filled = done + count, self._filled + count
            if self._filled == most:
                self._multiply()

    def _fill(self, samples: Array) -> None:
        part = slice(self._filled, self._filled + samples.shape[1])

        def fill(panel: slice) -> None:
            self._batch[panel, part] = samples[panel]

        list(self._threads.map(fill, self._panels()))

    def _multiply(self) -> None:
        """Add the batch ``Z``, as far as it is filled, to the leaf."""
        batch, test, leaf = self._batch, self.test, self._open_leaf()
        if self._filled < batch.shape[1]:
            batch = np.ascontiguousarray(batch[:, : self._filled])
        self._of_samples.apply(batch)
        if self.shift is None:
            self.shift = batch[:, 0].copy()
        shift, weights = self.shift, self._weights

        def project(panel: slice) -> Array:
            z, moments = batch[panel], leaf.moments[:, panel]
            if self._of_features:
                z -= shift[panel, None]
            if weights is None:
                add_row_moments(z, moments)
            else:
                add_weighted_moments(z, 0, z.shape[1], weights, np.zeros(len(z)), moments)
            return z.T @ test[panel]

        def expand(panel: slice) -> None:
            leaf.products[panel] += batch[panel] @ scores

        scores = add_in_order(self._threads.map(project, self._panels()))
        if weights is not None:
            scores *= weights[: len(scores), None]
        list(self._threads.map(expand, self._panels()))
        self._leaf_samples, self._filled = self._leaf_samples + self._filled, 0
        self._wait()

    # ------------------------------------------------------------------------------ sparse samples

    def _add_sparse(self, strip: sparse.csr_array, weights: Array | None) -> None:
        if self._of_samples.normalize == "samples":
            normalize_sparse(strip.indptr, strip.data)
        if self.shift is None:
            self.shift = strip[:1].toarray()[0]
        done, data = 0, rooted(strip, weights)
        while done < strip.shape[0]:
            count = min(self._leaf_size - self._leaf_samples, strip.shape[0] - done)
            own = None if weights is None else weights[done : done + count]
            self._multiply_sparse(strip.indptr[done : done + count + 1], strip, data, own)
            done, self._leaf_samples = done + count, self._leaf_samples + count
            self._wait()

    def _multiply_sparse(
        self, indptr: Array, strip: sparse.csr_array, data: Array, weights: Array | None
    ) -> None:
        """Add samples to the leaf, each thread in some of its columns; `data` are weighted."""
        samples, leaf, rank = (indptr, strip.indices, data), self._open_leaf(), self.rank
        columns = 8 * -(-rank // (8 * self._n_threads))

        def multiply(first: int) -> None:
            stop = min(first + columns, rank)
            add_sparse_products(*samples, self.test, leaf.products, first, stop)

        list(self._threads.map(multiply, range(0, rank, columns)))
        stored = (indptr, strip.indices, strip.data)
        if weights is None:
            add_sparse_moments(*stored, self.shift, leaf.moments)
        else:
            add_weighted_sparse_moments(*stored, weights, self.shift, leaf.moments)

    # -------------------------------------------------------------------------------- leaves, tree

    @property
    def rank(self) -> int:
        """`r`."""
        return int(self.test.shape[1])

    def _open_leaf(self) -> Sums:
        if self._leaf is None:
            n = len(self.test)
            self._leaf = Sums(np.zeros((n, self.rank)), np.zeros((3, n)))
        leaf: Sums = self._leaf
        return leaf

    def node(self) -> Sums:
        """The sums of what was added; the last call but for `result`."""
        sums: Sums = super().node()
        return sums

    def result(self, name: str = "the data", present: Present = ALL) -> Product:
        """``A @ T`` of the centred and scaled samples, and what was learned from them."""
        sums, shift = self.node(), self.shift
        assert shift is not None  # noqa: S101  (there are samples)
        asked = (self.test, self.preprocessing, shift, self.n_counted)
        return finish_products(sums, *asked, bool(self._is_sparse), name, present)


def add_in_order(parts: Iterable[Array]) -> Array:
    """The sum of arrays, the first of which it uses up."""
    parts = iter(parts)
    total = next(parts)
    for part in parts:
        total += part
    return total
