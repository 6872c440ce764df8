"""The problem that a fit solves, once the data are known."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamsvd.sizes import strip_width

MOST_ROTATED = 2000
"""Features among which transforms are made where ``X X^T`` is no matrix in memory."""

MOST_RELAXED = 1000
"""Features up to which the convex relaxation takes seconds."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What a fit is asked for, once the data are known; options left open are resolved.

    Attributes
    ----------
    n_features, n_samples, n_components, n_transforms : int
        `n`, `N`, `p`, `m`.
    dtype : numpy.dtype
        Of the working matrix.
    reduction : {None, "gram", "samples", "factor"}
        Whether the working matrix is `X` or ``X X^T``, and in which form.
    rank : int or None
        Of the factor, where it was asked for.
    algorithm : {"coordinate", "block"}
    selection : str
        What pairs are scored by.
    budget : int or None
        The most nonzeros of all components.
    fill_penalty : float
        `alpha`.
    relaxes : bool
        Whether refinement starts from the convex relaxation too.
    seed : int
        Of random pairs.
    source_chunk : int
        Samples in a chunk of the source: the least that can be read at a time.
    source_itemsize : int
        Bytes of a number of the source.
    source_chunk_bytes : int
        Bytes that a chunk of the source decodes to, where that is more than its samples take.
    n_stored : int or None
        Numbers that are stored of a source that is read sparse.
    decoded : callable, optional
        Bytes that are decoded to read so many samples; by default what they take.
    may_be_factor : bool
        Whether the same can be asked of a factor of ``X X^T``.
    gram_parts : int
        Matrices that make up a sum for the Gram matrix: three where values of batches are missing.
    in_batches : bool
        Whether samples come in batches and are only summed up, not there for another pass.
    """

    n_features: int
    n_samples: int
    n_components: int
    n_transforms: int
    dtype: np.dtype[Any]
    reduction: str | None = None
    rank: int | None = None
    algorithm: str = "coordinate"
    selection: str = "nuclear"
    budget: int | None = None
    fill_penalty: float = 0.0
    relaxes: bool = False
    seed: int = 0
    source_chunk: int = 1
    source_itemsize: int = 8
    source_chunk_bytes: int = 0
    n_stored: int | None = None
    decoded: Callable[[int], int] | None = None
    in_batches: bool = False
    may_be_factor: bool = False
    gram_parts: int = 1

    def strip_width(self, memory_limit: int) -> int:
        """Samples to read at a time."""
        return strip_width(
            self.n_features,
            self.n_samples,
            self.source_chunk,
            memory_limit,
            self.source_chunk_bytes,
        )

    def decoded_bytes(self, n_samples: int) -> int:
        """Bytes that are decoded to read so many samples."""
        if self.decoded is not None:
            return self.decoded(n_samples)
        return self.n_features * n_samples * self.source_itemsize

    @property
    def is_reduced(self) -> bool:
        """Whether the working matrix is ``X X^T``: symmetric, and without a tail."""
        return self.reduction is not None

    @property
    def factor_rank(self) -> int:
        """Rank of the factor."""
        return min(self.asked_rank, self.n_features, self.n_samples)

    @property
    def asked_rank(self) -> int:
        """The same for any sizes; by default one that loses nothing that a search would notice.

        From one pass more: its factor tells of less variance than there is, at this rank of 0.2
        points in 100 less (5 and 15 components of ISOLET, MNIST, USPS and single cells).
        """
        p = self.n_components
        return self.rank or (max(20 * p, 200) if self.in_batches else max(10 * p, 50))

    @property
    def n_rotated(self) -> int:
        """Features among which the transforms of a reduced problem are made."""
        n = self.n_features
        return n if self.reduction == "gram" else min(n, MOST_ROTATED)

    @property
    def is_block(self) -> bool:
        """Whether transforms are block steps."""
        return self.algorithm == "block"

    @property
    def n_columns(self) -> int:
        """Columns of the working matrix."""
        return self.n_features if self.is_reduced else self.n_samples

    @property
    def counts_fill(self) -> bool:
        """Whether supports are kept during the fit."""
        return bool(self.fill_penalty) or self.budget is not None
