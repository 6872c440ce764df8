"""What a pass has to know of the features of a source beside their values."""

from typing import NamedTuple

import numpy as np

from streamsvd.arrays import Array


class Variables(NamedTuple):
    """Variables that the features of a source are of, each of which is scaled as a whole.

    Attributes
    ----------
    names : tuple of str
        What they are called.
    of : (n,) int array
        Which of them each feature is of.
    """

    names: tuple[str, ...]
    of: Array

    def sums(self, variances: Array) -> Array:
        """Those of the features of each added up."""
        return np.bincount(self.of, weights=variances, minlength=len(self.names))


class Present(NamedTuple):
    """What is there of the features of a source.

    Attributes
    ----------
    share : (n,) array or float
        Of the samples, those that have a value of each feature; the others have its mean.
    places : (n,) array or None
        Which features of the data they are; None for all.
    variables : Variables or None
        Where features are scaled by their variable: with ``normalize="variables"``.
    weights : (n,) float64 array or None
        What the variance of each counts; None where all count the same.
    """

    share: Array | float = 1.0
    places: Array | None = None
    variables: Variables | None = None
    weights: Array | None = None

    def restricted(self, kept: Array) -> "Present":
        """That of some of the features."""
        share, places, variables, weights = self
        return Present(
            share[kept] if isinstance(share, np.ndarray) else share,
            kept if places is None else places[kept],
            None if variables is None else variables._replace(of=variables.of[kept]),
            None if weights is None else weights[kept],
        )


ALL = Present()
"""Every value of every feature."""
