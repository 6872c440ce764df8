"""Samples that come in batches: what they were added up to is all that is left of them."""

from dataclasses import replace
from typing import Any

import numpy as np

from streamsvd.data.missing import Missing
from streamsvd.data.source import Described, Source
from streamsvd.errors import OptionError
from streamsvd.options import Options
from streamsvd.passes.sample_sum import SampleSum
from streamsvd.sizes import PRODUCT_LEAF


class Batches(Source):
    """Samples that are not there again; while nobody knows how many, as many as make one leaf."""

    is_readable = False

    def __init__(self, n_features: int, n_samples: int = PRODUCT_LEAF) -> None:
        shape = (n_samples, n_features)
        super().__init__(Described(np.dtype(np.float64), shape), 0, "the batches", 1)


class SummedSamples(Batches):
    """Samples that are no longer there, but a sum of them.

    `missing` is what was missing of them, once there is a `result`.
    """

    missing: Missing | None = None

    def __init__(self, total: SampleSum) -> None:
        super().__init__(total.n_kept, total.n_samples)
        self.weigh(total.weights)
        self._total = total

    @property
    def weight(self) -> float | None:
        """What the samples weighed."""
        return self._total.weight

    def agreed(self, options: Options) -> Options:
        """The same options, with those of the sum where they are left open; refuses others."""
        were = self._total.options()
        for name, was in were.items():
            asked = getattr(options, name)
            is_open = asked is None and name in ("reduction", "rank")
            if asked != was and not is_open:
                raise OptionError(
                    f"the batches were added with {name}={was!r}, not {asked!r}: add them again"
                )
        return replace(options, **were)

    def result(self) -> Any:
        """That of the sum, which is used up."""
        with self._total as total:
            made = total.result(self.name, self.present)
        self.missing = total.missing
        return made
