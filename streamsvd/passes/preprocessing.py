"""How samples are centred and scaled, and what has to be learned from the data for it."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from streamsvd.arrays import Array
from streamsvd.data.present import ALL, Present
from streamsvd.errors import SourceError
from streamsvd.kernels.moments import center_samples, normalize_samples


@dataclass(frozen=True)
class Preprocessing:
    """How samples are centred, scaled and weighted, in this order, with what was learned.

    Attributes
    ----------
    center, normalize : {None, "features", "samples"}
        ``"features"``: by the fitted `mean` and `scale`; ``"samples"``: each sample by its own
        mean over the features and its own Euclidean norm, as in the paper.
    mean, scale : (n,) float64 arrays
        Zeros and ones where they are not used. With the option ``normalize="variables"``, which is
        ``"features"`` here, the scale is one number for all features of a variable.
    weights : (n,) float64 array or None
        What the variance of each feature counts, above 0: values are multiplied by the roots, after
        all else. None where all count the same.
    """

    center: str | None
    normalize: str | None
    mean: Array
    scale: Array
    weights: Array | None = None

    @classmethod
    def unlearned(cls, center: str | None, normalize: str | None, n: int) -> "Preprocessing":
        """Of `n` features of which nothing is known yet."""
        return cls(center, normalize, np.zeros(n), np.ones(n))

    @property
    def of_features(self) -> bool:
        """Whether statistics of the features are needed."""
        return "features" in (self.center, self.normalize)

    @cached_property
    def divisor(self) -> Array | None:
        """(n,) what values are divided by once they are centred; None where that is nothing.

        Where samples are scaled, the weights alone follow.
        """
        if self.weights is not None:
            return self.scale / np.sqrt(self.weights)
        return self.scale if self.normalize == "features" else None

    def before(self) -> "Preprocessing":
        """What can be done to samples before statistics of the features are known."""
        of_samples = self.normalize == "samples" and self.center != "features"
        return replace(
            self,
            center="samples" if self.center == "samples" else None,
            normalize="samples" if of_samples else None,
            weights=None if self.of_features else self.weights,
        )

    def after(self) -> "Preprocessing":
        """What `before` leaves to do."""
        before = self.before()
        return replace(
            self,
            center=None if before.center else self.center,
            normalize=None if before.normalize else self.normalize,
            weights=self.weights if self.of_features else None,
        )

    def apply(self, strip: Array) -> None:
        """Centre, scale and weigh the samples of `strip` (n, c), C-contiguous, in place."""
        if self.center == "features":
            strip -= self.mean[:, None]
        elif self.center == "samples":
            center_samples(strip)
        if self.normalize == "features":
            strip /= self.scale[:, None]
        elif self.normalize == "samples":
            normalize_samples(strip)
        if self.weights is not None:
            strip *= np.sqrt(self.weights)[:, None]


def learn(
    name: str,
    center: str | None,
    normalize: str | None,
    moments: Array,
    shift: Array,
    n_samples: float,
    present: Present = ALL,
) -> Preprocessing:
    """Mean and scale of the features from their moments, where they are asked for.

    `present` is the `Source.present` of the samples.
    """
    mean, scale = np.zeros(len(shift)), np.ones(len(shift))
    sums, squares = moments
    mean_shift = sums / n_samples
    if center == "features":
        mean += shift + mean_shift
    if normalize == "features":
        variance = squares / n_samples - mean_shift**2
        refuse_constant(name, variance, present)
        scale *= np.sqrt(variance_present(variance, center, present))
    return Preprocessing(center, normalize, mean, scale, present.weights)


def variance_present(variance: Array, center: str | None, present: Present) -> Array:
    """Variances over what is present, from those over all samples, missing entries being the mean.

    They add nothing to a sum of squares about the mean, so only the divisor changes. Where samples
    are centred first they are no longer the mean, and count as what they have become. Where
    variables are scaled as a whole: for each feature the total of its variable.
    """
    found = variance if center == "samples" else variance / present.share
    variables = present.variables
    return found if variables is None else variables.sums(found)[variables.of]


def refuse_constant(name: str, variance: Array, present: Present = ALL) -> None:
    """Refuse to divide by the standard deviation of features, or of variables, that have none."""
    if present.variables is not None:
        still = np.flatnonzero(present.variables.sums(variance) <= 0)
        if len(still):
            which = ", ".join(repr(present.variables.names[k]) for k in still)
            raise SourceError(
                f"variable(s) {which} are constant and cannot be scaled to unit variance: drop "
                'them, or do not pass normalize="variables"'
            )
        return
    constant = np.flatnonzero(variance <= 0)
    if len(constant):
        constant = constant if present.places is None else present.places[constant]
        which = ", ".join(str(i) for i in constant[:5]) + (", ..." if len(constant) > 5 else "")
        raise SourceError(
            f"{len(constant)} feature(s) of {name} are constant and cannot be scaled to "
            f'unit variance: {which}; drop them, or do not pass normalize="features"'
        )
