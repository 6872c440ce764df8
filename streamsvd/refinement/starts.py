"""Where refinement starts: rotated eigenvectors, shrunk, and components of disjoint supports."""

from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh, svd

from streamsvd.arrays import Array
from streamsvd.problem import MOST_RELAXED
from streamsvd.refinement.covariance import Covariance
from streamsvd.refinement.moves import Goal, Point, enter, shrink
from streamsvd.refinement.pattern import Pattern
from streamsvd.refinement.relaxation import AfterStep, Posed, relax, unwatched

ROWS = 50_000  # that determine a rotation
STEPS = 30  # of the relaxation


def varimax(vectors: Array, max_iter: int = 100, tol: float = 1e-6) -> Array:
    """The rotation (p, p) of `vectors` (n, p) that makes their entries most uneven.

    H. F. Kaiser, "The varimax criterion for analytic rotation in factor analysis", Psychometrika
    23, 1958.  Cost: ``2 n p^2`` for each iteration.
    """
    n, p = vectors.shape
    if n > ROWS:  # the longest rows decide
        lengths = np.einsum("rc,rc->r", vectors, vectors)
        vectors = vectors[np.sort(np.argpartition(-lengths, ROWS)[:ROWS])]
    rotation = np.eye(p)
    reached = 0.0
    for _ in range(max_iter):
        loadings = vectors @ rotation
        squares = loadings * loadings
        target = loadings * (squares - np.mean(squares, axis=0))
        left, sizes, right = svd(vectors.T @ target)
        rotation = left @ right
        if sizes.sum() <= reached * (1.0 + tol):
            break
        reached = sizes.sum()
    return rotation


class Rotated(NamedTuple):
    """Rotated eigenvectors."""

    vectors: Array
    """(n, p) orthonormal."""
    stds: Array
    """(p,) standard deviations of their scores."""


class Basis:
    """The leading eigenvectors, and the rotations of them that starts are made of.

    Any rotation explains as much.  Varimax of the vectors, and of the loadings (vectors times
    standard deviations): the better start is now this, now that.

    Parameters
    ----------
    energies : (p,) array
        Eigenvalues, descending.
    vectors : (n, p) array
        Eigenvectors.
    diagonal : (n,) array
        Of the covariance.
    """

    def __init__(self, energies: Array, vectors: Array, diagonal: Array) -> None:
        self.energies, self.vectors, self.diagonal = energies, vectors, diagonal
        self.p = len(energies)

    @classmethod
    def of(cls, cov: Covariance, p: int) -> "Basis":
        """The p leading ones."""
        energies, vectors = cov.leading(p)
        return cls(np.maximum(energies, 0.0), vectors, cov.diagonal())

    def first(self, p: int) -> "Basis":
        """The first p of them."""
        return Basis(self.energies[:p], self.vectors[:, :p], self.diagonal)

    @cached_property
    def rotated(self) -> Rotated:
        """By varimax of the vectors."""
        return self._turned(varimax(self.vectors))

    @cached_property
    def rotated_loadings(self) -> Rotated:
        """By varimax of the loadings."""
        return self._turned(varimax(self.vectors * np.sqrt(self.energies)))

    def _turned(self, turn: Array) -> Rotated:
        return Rotated(self.vectors @ turn, np.sqrt(self.energies @ turn**2))


def relaxed_basis(
    cov: Covariance, basis: Basis, budget: int, after_step: AfterStep = unwatched
) -> tuple[Basis, float | None]:
    """The leading eigenvectors of the relaxation, as a basis, and the bound where there is one.

    Of very many features, of the relaxation among those that `basis` explains most; no bound then.
    """
    n, p = basis.vectors.shape
    explained = basis.vectors**2 @ basis.energies
    few = np.sort(np.argsort(-explained, kind="stable")[:MOST_RELAXED])
    matrix = cov.restricted(few).dense() if len(few) < n else cov.dense()
    found = relax(Posed(matrix, p, budget), STEPS, after_step)
    bound = found.bound.energy if len(few) == n else None
    if found.vectors is None:
        return basis, bound
    energies, turn = eigh(found.vectors.T @ matrix @ found.vectors)
    vectors = np.zeros((n, p))
    vectors[few] = found.vectors @ turn[:, ::-1]
    relaxed = Basis(np.maximum(energies[::-1], 0.0), vectors, basis.diagonal)
    return relaxed, bound


def cut(goal: Goal, rotated: Array, budgets: float) -> Point | None:
    """The rotated eigenvectors (n, p), cut at once to some `budgets`, and shrunk from there."""
    n, p = rotated.shape
    size = rotated.ravel() ** 2
    tops = np.argmax(np.abs(rotated), axis=0) * p + np.arange(p)
    size[tops] = np.inf
    count = min(max(p, int(budgets * goal.budget)), n * p)
    while True:
        listed = np.sort(np.argpartition(-size, count - 1)[:count])
        listed = listed[size[listed] > 0.0]
        point = enter(goal.cov, Pattern((n, p), listed), rotated.ravel()[listed])
        if point is not None:
            return shrink(goal, point)
        if count == n * p:
            return None
        count = min(2 * count, n * p)
