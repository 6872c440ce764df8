"""How far components may be from the best: what they explain beside what nothing can."""

from typing import NamedTuple

from streamsvd.result.percent import percent


class Certificate(NamedTuple):
    """A bound that holds for all components of the same number and nonzeros.

    Attributes
    ----------
    explained_variance_ratio : float
        What the components explain of the total variance.
    bound : float
        What no `n_components` orthonormal components with at most `max_nonzeros` nonzeros in all
        explain more than. A bound in floating point too: rounding errors are added. 1 says
        nothing, see `SVDResult.certificate`.
    n_components, max_nonzeros : int
        For which it holds.
    """

    explained_variance_ratio: float
    bound: float
    n_components: int
    max_nonzeros: int

    @property
    def gap(self) -> float:
        """`bound` less what is explained: at most so much of the total variance is missed."""
        return self.bound - self.explained_variance_ratio

    def __str__(self) -> str:
        return (
            f"{percent(self.explained_variance_ratio)} of the variance explained; no "
            f"{self.n_components} orthonormal components with {self.max_nonzeros} nonzeros explain "
            f"more than {percent(self.bound)}"
        )
