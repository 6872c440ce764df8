r"""Entries that are missing: NaN, masked, or equal to a code; an error, or the feature's mean.

With ``missing="mean"`` a missing entry is the mean of its feature over the samples that have a
value there, of the data as they are, before anything is centred or scaled. All else follows as if
the means had been written into the data by hand. With :math:`w_{ij} = 1` where sample j has a
value of feature i and 0 where it is missing, and :math:`n_i = \sum_j w_{ij}`,

.. math::

    m_i = \frac{1}{n_i} \sum_j w_{ij} x_{ij}, \qquad
    \tilde x_{ij} = w_{ij} x_{ij} + (1 - w_{ij}) m_i .

The mean of :math:`\tilde x_i` over all samples is :math:`m_i` again, so with centred features
:math:`y_{ij} = \tilde x_{ij} - m_i = w_{ij} (x_{ij} - m_i)`: a missing entry contributes nothing,
and :math:`\sum_j y_{ij}^2 = \sum_j w_{ij} (x_{ij} - m_i)^2`. Hence the variance over what is
present differs from that of :math:`\tilde x_i` in its divisor alone, :math:`n_i` for N, and so does
the scale of ``normalize="features"``; that is `Source.present`, :math:`n_i / N`. Where samples are
centred first (``center="samples"``), an entry that was missing has become another number in each
sample, as all have, and counts as that one: the scale is that of all N.

Means are not known before all samples are read, so they take a pass of their own, over moments
alone (`streamsvd.passes.missing`). The single pass that the sum over pairs would allow,

.. math::

    \sum_j w_{ij} w_{kj} (z_{ij} - o_i) (z_{kj} - o_k) =
    (Z Z^T)_{ik} - o_i (W Z^T)_{ik} - o_k (Z W^T)_{ik} + o_i o_k (W W^T)_{ik}

for z the shifted values and o their means, multiplies three times as much.

A feature without any value has no mean: it is left out, and the fit has one feature less.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.data.chosen import Chosen, Wrapped, masked
from streamsvd.data.source import Source
from streamsvd.errors import OptionError, SourceError
from streamsvd.kernels.missing import fill_missing
from streamsvd.options.rules import working_dtype


class MissingValues(SourceError):
    """Values are missing, and the means that stand for them are not known yet."""


@dataclass(frozen=True, eq=False)
class Missing:
    """What is missing of the data of a fit, and what stands for it.

    Attributes
    ----------
    mean : (n,) float64 array
        Of each feature, over the samples that have a value; 0 where none has.
    counts : (n,) int64 array
        How many of the samples have none.
    n_samples : int
        `N`.
    share : (n,) float64 array or None
        Of the weight of all samples, that of those that have a value; None where all count once.
    """

    mean: Array
    counts: Array
    n_samples: int
    share: Array | None = None

    @classmethod
    def of(cls, mean: Array, counts: Array, n_samples: int, share: Array | None) -> "Missing":
        """A feature that has values in samples of weight 0 alone has none."""
        if share is not None:
            counts = np.where(share > 0, counts, n_samples)
        return cls(mean, counts, n_samples, share)

    @cached_property
    def kept(self) -> Array:
        """The features that have a value, ascending."""
        return np.flatnonzero(self.counts < self.n_samples)

    @cached_property
    def left_out(self) -> Array:
        """The features without any value, ascending."""
        return np.flatnonzero(self.counts == self.n_samples)

    @property
    def n_filled(self) -> int:
        """Missing entries of the features that have a value."""
        return int(self.counts[self.kept].sum())


class Filled(Wrapped):
    """Another source with what is missing filled in.

    Until `Missing` is known a missing entry is refused: with `asks`, by `MissingValues`, for the
    caller to find the means; else it is NaN, which the pass that reads it names.

    Parameters
    ----------
    source : Source
    missing_value : float, optional
        Counts as missing beside NaN.
    missing : Missing, optional
    asks : bool
    """

    def __init__(
        self,
        source: Source,
        missing_value: float | None,
        missing: Missing | None = None,
        asks: bool = False,
    ) -> None:
        super().__init__(source)
        self.code, self.asks, self.missing = _code(source, missing_value), asks, missing
        self._values = np.full(self.n_features, np.nan)
        if missing is not None:
            self._values, share = missing.mean, missing.share
            if share is None:
                share = 1.0 - missing.counts / missing.n_samples
            self.present = source.present._replace(share=share)

    @property
    def sum_dtype(self) -> np.dtype[Any]:
        """Means of integers are no integers, nor those of single precision single."""
        return working_dtype(self.dtype) if self.missing is None else np.dtype(np.float64)

    def read(self, start: int, stop: int, dtype: np.dtype[Any]) -> Array:
        """Samples ``start..stop-1`` as a new C-contiguous (n, stop - start) array of `dtype`."""
        exact = working_dtype(self.dtype)  # a code is compared before it is rounded
        strip = self.whole.read(start, stop, exact if exact.itemsize > dtype.itemsize else dtype)
        number = strip.dtype.type
        with np.errstate(over="ignore"):  # infinities are found and named by the caller
            found = fill_missing(strip, number(self.code), self._values.astype(number))
            self._refuse(found)
            return strip.astype(dtype, copy=False)

    def read_sparse(self, start: int, stop: int) -> sparse.csr_array:
        """Samples ``start..stop-1`` as the rows of a new (stop - start, n) float64 matrix."""
        samples = self.whole.read_sparse(start, stop)
        lacks = are_missing(samples.data, self.code)
        self._refuse(int(lacks.sum()))
        samples.data[lacks] = self._values[samples.indices[lacks]]
        return samples

    def _refuse(self, found: int) -> None:
        if found and self.asks and self.missing is None:
            raise MissingValues(f'values of {self.name} are missing: pass missing="mean"')

    def lazy(self, start: int, stop: int) -> Any:
        """Samples ``start..stop-1`` as a Dask array, (n, stop - start)."""
        samples = self.whole.lazy(start, stop)
        if samples is None:
            return None
        samples = samples.astype(np.float64)
        return np.where(are_missing(samples, self.code), self._values[:, None], samples)

    def why_missing(self, feature: int, sample: int) -> tuple[str, str] | None:
        """What a NaN that was read stands for, and what helps."""
        remedy = 'fit with missing="mean", or replace or drop such values'
        found = self.whole.read(sample, sample + 1, np.dtype(np.float64))[feature, 0]
        if found == self.code:
            return f"a missing value (missing_value={self.code:g})", remedy
        return self.whole.why_missing(feature, sample)


def are_missing(values: Any, code: float) -> Any:
    """Where numbers, of NumPy or Dask, are NaN or equal to a code."""
    return np.isnan(values) | (values == code)


def _code(source: Source, missing_value: float | None) -> float:
    """`missing_value` as a number of the source, NaN for none; refuses what none could be."""
    if missing_value is None:
        return np.nan
    if source.reads_sparse and missing_value == 0:
        raise OptionError(
            f"missing_value=0 would make all that is not stored of {source.name}, which is sparse, "
            "missing: store missing entries as NaN"
        )
    dtype = source.dtype
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            code = float(np.asarray(missing_value).astype(dtype))
        is_one = np.isfinite(code)
    else:
        code = float(missing_value)
        least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        is_one = missing_value == int(missing_value) and least <= missing_value <= most
    if not is_one:
        raise OptionError(
            f"missing_value={missing_value:g} is no number of {source.name}, which holds {dtype}, "
            "so nothing would be missing: give the code that the data have, or leave it out"
        )
    return code


def filled(source: Source, missing: Missing | None, missing_value: float | None) -> Source:
    """A source filled by the means of `missing`, or with its code refused.

    Features without any value are left out.
    """
    if missing is None and missing_value is None:
        return source
    made = Filled(source, missing_value, missing)
    if missing is None or not len(missing.left_out):
        return made
    return Chosen(made, missing.kept)


def as_fitted(
    source: Source, mask: Array | None, missing: Missing | None, missing_value: float | None
) -> Source:
    """A source as that of a fit was read: the features that took part, `filled`."""
    if isinstance(source, Wrapped):
        return source
    return filled(masked(source, mask), missing, missing_value)
