"""``A = X X^T`` for any number of features: a factor from two passes, or the data themselves.

`A` is symmetric positive semidefinite, so its action on a few directions that span its range tells
what it is (Nystroem; Halko, Martinsson, Tropp 2011, section 5.4): with an orthonormal basis `Q` of
the sketch ``A Omega``, ``A ~ (A Q) (Q^T A Q)^-1 (A Q)^T = B B^T``, never more than `A` in any
direction. What it leaves of each feature's variance, ``diag(A) - diag(B B^T) >= 0``, is kept beside
it, so the diagonal is exact.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg, sparse

from streamsvd.arrays import Array
from streamsvd.data.source import Source
from streamsvd.kernels.moments import add_row_moments
from streamsvd.matrix.working import WorkingMatrix
from streamsvd.passes.centring import Product, Sums
from streamsvd.passes.ingest import ingest
from streamsvd.passes.preprocessing import Preprocessing
from streamsvd.passes.products import ProductSum, add_in_order, product_of
from streamsvd.passes.strips import stays_sparse
from streamsvd.passes.summed import SummedSamples
from streamsvd.sizes import product_batch, row_panels
from streamsvd.system import one_blas_thread

SEED = 0
"""Of the test matrix: the factor of the same data is the same."""


LEAST_SPREAD = 1e-4
"""Of a feature in the first samples, as a part of the median of all."""


@dataclass(frozen=True)
class Factored:
    """``A = X X^T`` as ``B B^T + diag(d)``, and what was learned of the data.

    Attributes
    ----------
    factor : (n, k) float64 array
        `B`, k at most the rank asked for; columns by decreasing norm, nearly.
    rest : (n,) array
        `d`, not negative.
    diagonal : (n,) array
        Of `A`: the sum of squares of each feature, centred and scaled; exact to rounding.
    preprocessing : Preprocessing
        With the fitted mean and scale.
    """

    factor: Array
    rest: Array
    diagonal: Array
    preprocessing: Preprocessing


def factor_of(
    source: Source,
    center: str | None,
    normalize: str | None,
    rank: int,
    *,
    width: int | None = None,
    n_threads: int = 1,
    on_samples: Callable[[int], None] = lambda n: None,
) -> Factored:
    """A factor of ``X X^T`` of the centred and scaled source, in two passes.

    Exact, to rounding, where the rank is at least that of the data; else for the leading
    eigenvalues nearly so, as one power iteration is within. Of batches that were summed up: from
    that one pass, see `FactorSum`. The same bits for any chunking and any number of threads.
    `on_samples` is told of each sample twice.

    Notes
    -----
    Cost: two reads of the source, ``8 n N r`` operations (n N the nonzeros, where the source is
    sparse), and ``6 n r^2``. Memory: ``16 n r`` bytes (and more for many samples, see
    `sizes.product_sums`), a batch and two strips of samples.
    """
    if isinstance(source, SummedSamples):
        return nystroem(source.result())

    def multiply(test: Array, shift: Array | None) -> Product:
        asked = (center, normalize, shift)
        reading = {"width": width, "n_threads": n_threads}
        return product_of(source, test, *asked, on_samples=on_samples, **reading)  # type: ignore[arg-type]

    def draw() -> Array:
        return draw_test(source, center, normalize, rank)

    return factor_by(multiply, draw, n_threads)


def factor_by(
    multiply: Callable[[Array, Array | None], Product],
    draw: Callable[[], Array],
    n_threads: int = 1,
) -> Factored:
    """A factor by two products with ``A``; `multiply` makes one, given `T` and a shift.

    At most two (n, r) arrays are alive at a time, unless `multiply` has more.
    """
    first = multiply(draw(), None)
    basis, shift, preprocessing = first.values, first.shift, first.preprocessing
    del first  # with its test matrix
    orthonormalize(basis, n_threads)
    if preprocessing.divisor is not None:
        basis /= preprocessing.divisor[:, None]
    return nystroem(multiply(basis, shift))


def draw_test(source: Source, center: str | None, normalize: str | None, rank: int) -> Array:
    """A random (n, r) matrix, r at most n and N; the same for the same sizes.

    Where features will be scaled, its rows are divided by their spread in the first samples:
    otherwise those with large values would drown the others (see `ProductSum`). Where they are
    weighted, by one over the roots of the weights.
    """
    test = _normal(source.n_features, min(rank, source.n_samples), source.present.weights)
    if normalize == "features":
        stop = min(source.n_samples, product_batch(source.n_features))
        if source.reads_sparse:
            first = source.read_sparse(0, stop).toarray().T
        else:
            first = source.read(0, stop, np.dtype(np.float64))
        spread, variables = _spread(first), source.present.variables
        if variables is not None:
            spread = np.sqrt(variables.sums(spread**2))[variables.of]
        test /= spread[:, None]
    return test


def _normal(n: int, rank: int, weights: Array | None = None) -> Array:
    test = np.random.default_rng(SEED).standard_normal((n, min(rank, n)))
    if weights is not None:
        test *= np.sqrt(weights)[:, None]
    return test


def _spread(first: Array) -> Array:
    """Standard deviations in the first samples (n, c); the median where there is none, or 1.

    Not below a small part of the median: what is nearly constant in these samples may not stay so,
    and would drown the others.
    """
    with np.errstate(all="ignore"):  # values that are not finite are named by the pass
        parts = row_panels(len(first), 2048)
        spread = np.concatenate([np.std(first[part], axis=1) for part in parts])
    varies = np.isfinite(spread) & (spread > 0)
    typical = float(np.quantile(spread[varies], 0.5, method="lower")) if varies.any() else 1.0
    return np.where(varies, np.maximum(spread, LEAST_SPREAD * typical), typical)


@one_blas_thread
def orthonormalize(columns: Array, n_threads: int = 1) -> None:
    """Replace (n, r) columns, n >= r, by an orthonormal basis of a space that has them all.

    By QR of panels of rows, and of their triangles: stable, in place, on threads.
    """
    n, r = columns.shape
    panels = row_panels(n, max(2048, 2 * r))

    def reduce(panel: slice) -> Array:
        q, triangle = np.linalg.qr(columns[panel])
        columns[panel, : q.shape[1]] = q
        return triangle

    with ThreadPoolExecutor(n_threads, thread_name_prefix="streamsvd-factor") as threads:
        triangles = list(threads.map(reduce, panels))
        q, _ = np.linalg.qr(np.concatenate(triangles))
        ends = np.cumsum([len(triangle) for triangle in triangles])
        parts = np.split(q, ends[:-1])

        def expand(panel: slice, part: Array) -> None:
            columns[panel] = columns[panel, : len(part)] @ part

        list(threads.map(expand, panels, parts))


@one_blas_thread
def nystroem(product: Product) -> Factored:
    """The factor that ``A T`` and `T` determine; the values of the product are used up.

    With `T` orthonormal and near the leading eigenvectors, as in `factor_of`, this is the factor of
    two passes; with a random `T` it is that of one. Components found on that explain as much, but
    it tells of 0.5 to 2.5 points less of 100 at the same rank: see `Problem.asked_rank`.
    Directions whose energy is within the rounding of the largest are left out.
    """
    values, test, diagonal = product.values, product.test, product.diagonal
    n, r = values.shape
    panels = row_panels(n, 2048)
    core = add_in_order(test[panel].T @ values[panel] for panel in panels)
    core = (core + core.T) / 2
    sizes, vectors = linalg.eigh(core)
    kept = sizes > 10 * max(r, 10) * np.finfo(float).eps * max(sizes[-1], 0.0)
    kept[-1] = True  # of data that are all zero, one column of zeros
    roots = np.sqrt(np.where(sizes > 0, sizes, 1.0))
    turn = (vectors / roots)[:, kept][:, ::-1]
    k = turn.shape[1]
    moments, numbers = np.zeros((3, n)), values.reshape(-1)
    for panel in panels:
        part = values[panel] @ turn
        numbers[panel.start * k : panel.stop * k] = part.reshape(-1)  # never beyond what was read
        add_row_moments(part, moments[:, panel])
    return Factored(
        numbers[: n * k].reshape(n, k),
        np.maximum(diagonal - moments[1], 0.0),
        diagonal,
        product.preprocessing,
    )


class FactorSum(ProductSum):
    """The product of samples that come in batches with a random matrix: a factor from one pass.

    `nystroem` of its `result`. The matrix is that of `draw_test`, but for the samples that it may
    have fewer columns for: how many will come is not known.

    Parameters
    ----------
    n_features, rank : int
    center, normalize, n_threads
        As of `SampleSum`.
    weights : (n,) array, optional
        That the features will have in the `result`.
    """

    WHAT = "factor"

    def __init__(
        self,
        n_features: int,
        rank: int,
        center: str | None,
        normalize: str | None,
        n_threads: int,
        weights: Array | None = None,
    ) -> None:
        super().__init__(_normal(n_features, rank, weights), center, normalize, n_threads)
        self._asked_rank = rank
        self._awaits_spread = normalize == "features"
        # samples and their weights, until their spread is known
        self._held: list[tuple[sparse.csr_array, Array | None]] = []

    def options(self) -> dict[str, Any]:
        """The options that samples were added with, by name."""
        return super().options() | {"rank": self._asked_rank}

    def takes_sparse(self, source: Source) -> bool:
        """As the first batch was, and where they can be."""
        return self._is_sparse is not False and stays_sparse(source, self.preprocessing.center)

    def _divide_test(self, first: Array) -> None:
        """By the spread of the first samples: always as many, however batches are cut."""
        self.test /= _spread(first)[:, None]
        self._awaits_spread = False

    def _multiply(self) -> None:
        if self._awaits_spread:
            self._divide_test(self._batch[:, : self._filled])
        super()._multiply()

    def _add_sparse(self, strip: sparse.csr_array, weights: Array | None) -> None:
        if not self._awaits_spread:
            super()._add_sparse(strip, weights)
            return
        self._held.append((strip, weights))
        if sum(part.shape[0] for part, _ in self._held) >= product_batch(strip.shape[1]):
            self._add_held()

    def _add_held(self) -> None:
        held, self._held = self._held, []
        strips = [strip for strip, _ in held]
        first = sparse.vstack(strips, format="csr")[: product_batch(len(self.test))]
        self._divide_test(first.toarray().T)
        for strip, weights in held:
            super()._add_sparse(strip, weights)

    def node(self) -> Sums:
        """The sums of what was added; the last call but for `result`."""
        if self._held:
            self._add_held()
        return super().node()


@dataclass(frozen=True)
class Sampled:
    """The data themselves, centred and scaled: ``A = X X^T`` exactly.

    Attributes
    ----------
    data : (n, N) float64 array
        `X`.
    diagonal : (n,) array
        Of `A`: the sum of squares of each feature.
    preprocessing : Preprocessing
        With the fitted mean and scale.
    """

    data: Array
    diagonal: Array
    preprocessing: Preprocessing


def data_of(
    source: Source,
    center: str | None,
    normalize: str | None,
    *,
    width: int | None = None,
    on_samples: Callable[[int], None] = lambda n: None,
) -> Sampled:
    """The centred and scaled source in memory, for few samples; it is read once.

    `on_samples` is told of each sample as often as `n_passes` says. Memory: ``8 n N`` bytes and two
    strips of samples.
    """
    working = WorkingMatrix.in_memory(source.n_features, source.n_samples, np.dtype(np.float64))
    preprocessing, diagonal = ingest(source, working, center, normalize, width, on_samples)
    return Sampled(working.chunks[0], diagonal, preprocessing)
