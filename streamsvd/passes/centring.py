"""Centring and scaling at the end: what they take from sums over samples is of rank one or two.

Samples are ``x = t + z``, and what was summed up are products of the `z`: of dense samples `t` is
the shift, the first sample, so that a large offset costs no digits; of sparse ones it is zero. With
`o` the mean of the `z`, the sum of ``(x - mean) (x - mean)'`` is that of ``z z'`` less ``N o o'``,
and the sum of ``x x'`` is that of ``z z'`` plus ``N (t o' + (o + t) t')``.
"""

from dataclasses import dataclass, replace

import numpy as np

from streamsvd.arrays import Array
from streamsvd.data.present import ALL, Present
from streamsvd.passes.preprocessing import Preprocessing, refuse_constant, variance_present
from streamsvd.system import one_blas_thread


@dataclass
class Sums:
    """What samples add up to.

    Attributes
    ----------
    products : (n, r) array
        ``Z Z^T T``; `Z` are dense samples less the shift, sparse ones as they are.
    moments : (3, n) array
        Of what is stored of each feature: the sum of ``x - shift`` and of its square, and how many.
    """

    products: Array
    moments: Array

    def __iadd__(self, other: "Sums") -> "Sums":
        self.products += other.products
        self.moments += other.moments
        return self

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(self.products + other.products, self.moments + other.moments)


@dataclass(frozen=True)
class Product:
    """``A @ T`` of all samples, centred and scaled, and what was learned on the way.

    Attributes
    ----------
    values : (n, r) float64 array
        ``A @ test``.
    test : (n, r) float64 array
        `T`.
    diagonal : (n,) array
        Of `A`: the sum of squares of each feature, exact to rounding.
    preprocessing : Preprocessing
        With the fitted mean and scale.
    shift : (n,) array
        A good shift for the next pass: the means, where they are subtracted in the end.
    """

    values: Array
    test: Array
    diagonal: Array
    preprocessing: Preprocessing
    shift: Array


def mean_and_variance(moments: Array, shift: Array, n_samples: float) -> tuple[Array, Array]:
    """Of each feature, from the `Sums.moments` of what is stored; the rest are zeros.

    The variance of a constant feature is exactly zero, as the shift is one of its values.
    """
    sums, squares, stored = moments
    missing = n_samples - stored
    offset = (sums - missing * shift) / n_samples
    variance = (squares + missing * shift**2) / n_samples - offset**2
    return shift + offset, np.maximum(variance, 0.0)


@one_blas_thread
def finish_products(
    sums: Sums,
    test: Array,
    preprocessing: Preprocessing,
    shift: Array,
    n_samples: float,
    is_sparse: bool,
    name: str,
    present: Present = ALL,
) -> Product:
    """From `Sums` over all samples, which are used up, to what was asked for.

    `present` is the `Source.present` of the samples; these count `n_samples`, if they are weighted
    as often as they weigh.

    Refuses to scale features that are constant.
    """
    values = sums.products
    preprocessing = replace(preprocessing, weights=present.weights)
    is_centred = preprocessing.center == "features"
    is_scaled = preprocessing.normalize == "features"
    if not preprocessing.of_features:
        _divide_rows(values, test, preprocessing.divisor)
        return Product(values, test, weighted(sums.moments[1], present), preprocessing, shift)
    if not is_sparse:
        sums.moments[2] = n_samples  # all is stored; weights add up to it but for rounding
    mean, variance = mean_and_variance(sums.moments, shift, n_samples)
    diagonal = n_samples * (variance if is_centred else variance + mean**2)
    offset = mean if is_sparse else sums.moments[0] / n_samples
    corrections: list[tuple[Array, Array]] = []
    if is_centred:
        preprocessing.mean[:] = mean
        corrections = [(offset, -n_samples * (offset @ test))]
    elif not is_sparse:
        corrections = [(shift, n_samples * (offset @ test)), (mean, n_samples * (shift @ test))]
    if is_scaled:
        refuse_constant(name, variance, present)
        spread = variance_present(variance, preprocessing.center, present)
        preprocessing.scale[:] = np.sqrt(spread)
        diagonal = diagonal / spread
    for first in range(0, len(values), 1024):  # temporaries of n x r would double the memory
        part = slice(first, first + 1024)
        for column, row in corrections:
            values[part] += np.outer(column[part], row)
    _divide_rows(values, test, preprocessing.divisor)
    if is_centred:
        values[variance == 0.0] = 0.0
    return Product(values, test, weighted(diagonal, present), preprocessing, mean)


def weighted(squares: Array, present: Present) -> Array:
    """Sums of squares of the features, weighted where they have weights."""
    return squares if present.weights is None else squares * present.weights


def _divide_rows(values: Array, test: Array, divisor: Array | None) -> None:
    """Divide the rows of a product, and multiply those of `test`, in place."""
    if divisor is None:
        return
    for first in range(0, len(values), 1024):
        part = slice(first, first + 1024)
        values[part] /= divisor[part, None]
        test[part] *= divisor[part, None]


def finish_gram(
    node: Array,
    preprocessing: Preprocessing,
    shift: Array,
    n_samples: float,
    name: str,
    present: Present = ALL,
) -> tuple[Array, Preprocessing]:
    """From the sum over all samples (see `GramSum.node`), which is used up, to what was asked for.

    `present` is the `Source.present` of the samples; these count `n_samples`, if they are weighted
    as often as they weigh.

    Refuses to scale features that are constant.
    """
    n = node.shape[1]
    gram = node[:n]
    is_sparse = len(node) > n + 1
    preprocessing = replace(preprocessing, weights=present.weights)
    is_centred = preprocessing.center == "features"
    is_scaled = preprocessing.normalize == "features"
    _mirror(gram)
    if not preprocessing.of_features:
        _divide(gram, preprocessing.divisor)
        return gram, preprocessing
    if is_sparse:
        mean, variance = mean_and_variance(node[n:], shift, n_samples)
        offset, shift = mean, np.zeros(n)
    else:
        offset = node[n] / n_samples
        mean, variance = shift + offset, np.diag(gram) / n_samples - offset**2
    if is_centred:
        preprocessing.mean[:] = mean
    if is_scaled:
        refuse_constant(name, variance, present)
        spread = variance_present(variance, preprocessing.center, present)
        preprocessing.scale[:] = np.sqrt(spread)
    for first in range(0, n, 64):  # temporaries of n x n would double the memory
        part = slice(first, first + 64)
        if is_centred:
            gram[part] -= n_samples * np.outer(offset[part], offset)
        elif not is_sparse:
            mixed = np.outer(shift[part], offset) + np.outer(offset[part], shift)
            gram[part] += n_samples * (mixed + np.outer(shift[part], shift))
    _divide(gram, preprocessing.divisor)
    if is_centred and is_sparse:
        constant = variance == 0.0
        gram[constant], gram[:, constant] = 0.0, 0.0
    return gram, preprocessing


def gram_about(node: Array, shift: Array, n_samples: float, learned: Preprocessing) -> Array:
    """The same of samples that others have centred and scaled: by a mean that is not theirs.

    With `c` that mean, zero without centring, and ``o = c - t``, the sum of ``(x - c) (x - c)'`` is
    that of ``z z'`` less ``s o' + o s'`` plus ``m o o'``, where the `z` of the m samples add up to
    `s`. `node` is used up.
    """
    n = node.shape[1]
    gram = node[:n]
    is_sparse = len(node) > n + 1
    _mirror(gram)
    sums, offset = node[n].copy(), learned.mean - shift  # zeros where nothing is subtracted
    if is_sparse:
        sums += node[n + 2] * shift
        offset = learned.mean.copy()
    for first in range(0, n, 64):  # temporaries of n x n would double the memory
        part = slice(first, first + 64)
        gram[part] -= np.outer(sums[part], offset) + np.outer(offset[part], sums)
        gram[part] += n_samples * np.outer(offset[part], offset)
    _divide(gram, learned.divisor)
    if is_sparse and learned.center == "features":
        # where all are the first sample's, in these and in those that were learned from
        squares = node[n + 1] + (n_samples - node[n + 2]) * shift**2
        constant = (squares == 0.0) & (learned.mean == shift)
        gram[constant], gram[:, constant] = 0.0, 0.0
    return gram


def _divide(gram: Array, divisor: Array | None) -> None:
    """Divide rows and columns, in place."""
    if divisor is None:
        return
    for first in range(0, len(gram), 64):  # temporaries of n x n would double the memory
        part = slice(first, first + 64)
        gram[part] /= np.outer(divisor[part], divisor)


def _mirror(gram: Array) -> None:
    """Make a lower triangle symmetric, in place."""
    n = len(gram)
    for first in range(0, n, 64):
        part = slice(first, first + 64)
        gram[:first, part] = gram[part, :first].T
        gram[part, part] = np.tril(gram[part, part]) + np.tril(gram[part, part], -1).T
