"""The factor of ``X X^T``, and what is exact of components, by tasks of a Dask cluster."""

from typing import Any

import numpy as np
from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.cluster.submitted import Submitted
from streamsvd.cluster.tasks import opened, refuse_unreadable, shift_of, sum_leaves
from streamsvd.cluster.waiting import Advance, answer_of
from streamsvd.data.source import Source
from streamsvd.passes.centring import Product, Sums, finish_products
from streamsvd.passes.exact import Exact, Rows
from streamsvd.passes.factor import Factored, draw_test, factor_by
from streamsvd.passes.preprocessing import Preprocessing
from streamsvd.passes.products import ProductSum
from streamsvd.passes.strips import stays_sparse, sum_strips
from streamsvd.passes.weighted import total_weight
from streamsvd.sizes import leaf_samples, product_leaf


def cluster_factor(
    client: Any,
    source: Source,
    center: str | None,
    normalize: str | None,
    rank: int,
    advance: Advance = lambda n: None,
) -> Factored:
    """`passes.factor.factor_of` by tasks and a tree of sums, with the same bits.

    Each pass sends an (n, r) matrix to every worker once. The scheduler keeps it for so long, so
    that it is not lost with a worker. Memory of a task: that matrix, two sums of its size (and one
    for each level of the tree within the task) and a few strips of samples.
    """
    refuse_unreadable(source)

    def multiply(test: Array, shift: Array | None) -> Product:
        return _product(client, source, test, center, normalize, shift, advance)

    return factor_by(multiply, lambda: draw_test(source, center, normalize, rank))


def cluster_exact(
    client: Any,
    source: Source,
    preprocessing: Preprocessing,
    components: sparse.csr_array | None = None,
    features: Array | None = None,
    advance: Advance = lambda n: None,
) -> Exact:
    """`passes.exact.exact_of` by tasks and a tree of sums, with the same bits."""
    rows = Rows(source, preprocessing, components, features)
    with Submitted(client) as submitted:
        asked = submitted.broadcast((preprocessing, components, features))
        work = (_exact_node, asked)
        total = sum_leaves(submitted, "exact", source, leaf_samples(rows.size), work, advance)
        weight = total_weight(source, leaf_samples(rows.size))
        return rows.finish(np.array(answer_of(client, total)), weight)


def _product(
    client: Any,
    source: Source,
    test: Array,
    center: str | None,
    normalize: str | None,
    shift: Array | None,
    advance: Advance,
) -> Product:
    n, asked = source.n_features, (center, normalize)
    ProductSum.check(*asked)
    with Submitted(client) as submitted:
        first: Any = shift
        if shift is None:
            first = shift_of(submitted, source, *asked) if "features" in asked else np.zeros(n)
        work = (_product_node, submitted.broadcast(test), *asked, first)
        total = sum_leaves(submitted, "products", source, product_leaf(n), work, advance)
        sums = answer_of(client, total)
        sums = Sums(np.array(sums.products), np.array(sums.moments))  # that can be written to
        if shift is None:
            shift = answer_of(client, first) if "features" in asked else first
    learned = Preprocessing.unlearned(center, normalize, n)
    is_sparse = stays_sparse(source, center)
    weight = total_weight(source, product_leaf(n))
    read = (shift, weight, is_sparse, source.name, source.present)
    return finish_products(sums, test, learned, *read)


def _product_node(
    part: Any,
    start: int,
    stop: int,
    test: Array,
    center: str | None,
    normalize: str | None,
    shift: Array,
) -> Sums:
    source, start, stop = opened(part, start, stop)
    with ProductSum(test, center, normalize, 1, np.array(shift)) as total:
        strips = sum_strips(source, stays_sparse(source, center), None, start, stop)
        total.extend(strips, weights=source.weights_of_samples(start, stop))
        return total.node()


def _exact_node(part: Any, start: int, stop: int, asked: tuple[Any, ...]) -> Array:
    source, start, stop = opened(part, start, stop)
    rows = Rows(source, *asked)
    with rows.empty_sum() as total:
        strips = rows.of(sum_strips(source, rows.are_sparse, None, start, stop))
        total.extend(strips, weights=source.weights_of_samples(start, stop))
        return total.node()
