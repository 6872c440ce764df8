"""PCA of disjoint groups of features: orthonormal for nothing, with more than one component each.

Where many components share few nonzeros, disjoint supports are too narrow, and supports that meet
anywhere are bound by as many constraints as there are nonzeros.  In between, the components of one
group of features share its support, where PCA makes them orthogonal.

Groups and components are found in turn, as in `disjoint`: with ``Y = A U`` and ``energy_c`` the
variances of the components, a feature r adds ``sum_c Y[r, c]^2 / energy_c`` over the components of
a group to the explained variance, to first order, and costs as many nonzeros.
"""

from typing import NamedTuple

import numpy as np

from streamsvd.arrays import Array
from streamsvd.refinement.covariance import Covariance
from streamsvd.refinement.disjoint import disjoint
from streamsvd.refinement.pattern import Indices, Pattern
from streamsvd.refinement.starts import Basis

PRICES = 40  # of a nonzero, that are tried
STEPS, TOL = 30, 1e-4


class Groups(NamedTuple):
    """Orthonormal components, those of a group on one support."""

    pattern: Pattern
    values: Array
    energies: Array
    """(p,) of the components."""
    group: Indices
    """(p,) of the components."""


def groups(
    cov: Covariance, basis: Basis, n_groups: int, budget: int, cap: int
) -> tuple[Pattern, Array] | None:
    """Components (n, p) on `n_groups` disjoint supports; None where the budget is too small."""
    n, p = cov.n, basis.p
    n_features = min(n, max(n_groups, budget * n_groups // p))
    rotated, stds = basis.first(n_groups).rotated
    pattern, _ = disjoint(cov, rotated, stds, n_features, cap)
    label = np.full(n, -1)
    label[pattern.row] = pattern.col
    best = None
    for _ in range(STEPS):
        found = _components(cov, label, n_groups, p, budget)
        if found is None:
            break
        if best is not None and found.energies.sum() <= best.energies.sum() * (1.0 + TOL):
            break
        best = found
        label = _labels(cov, found, n_groups, budget, cap)
    return None if best is None else (best.pattern, best.values)


def _components(
    cov: Covariance, label: Indices, n_groups: int, p: int, budget: int
) -> Groups | None:
    """PCA of the features of each label, and of all these components the p that pay best."""
    supports = [np.flatnonzero(label == j) for j in range(n_groups)]
    spectra = [cov.restricted(s).leading(min(len(s), p)) for s in supports]
    counts = [len(found) for found, _ in spectra]
    energies = np.concatenate([found for found, _ in spectra])
    costs = np.repeat([len(s) for s in supports], counts)
    group = np.repeat(np.arange(n_groups), counts)
    rank = np.concatenate([np.arange(count) for count in counts])
    chosen = _affordable(energies, costs, p, budget)
    if chosen is None:
        return None
    group, rank = group[chosen], rank[chosen]
    listed = np.concatenate([supports[j] * p + c for c, j in enumerate(group)])
    values = np.concatenate([spectra[j][1][:, k] for j, k in zip(group, rank, strict=True)])
    order = np.argsort(listed, kind="stable")
    return Groups(Pattern((len(label), p), listed[order]), values[order], energies[chosen], group)


def _affordable(energies: Array, costs: Indices, p: int, budget: int) -> Indices | None:
    """The p of largest energy whose costs are within the budget, by a price of the nonzero."""
    best, found = -np.inf, None
    price = energies.max(initial=0.0) / max(1.0, float(costs.min(initial=1)))
    for share in [0.0, *np.geomspace(1e-6, 1.0, PRICES)]:
        chosen = np.argsort(share * price * costs - energies, kind="stable")[:p]
        if len(chosen) == p and costs[chosen].sum() <= budget and energies[chosen].sum() > best:
            best, found = float(energies[chosen].sum()), chosen
    return found


def _labels(cov: Covariance, found: Groups, n_groups: int, budget: int, cap: int) -> Indices:
    """Each feature's group, -1 for none, at the price of a nonzero that meets the budget."""
    product = cov.times(found.pattern, found.values)
    floor = 1e-12 * found.energies.max(initial=0.0) + np.finfo(float).tiny
    weighed = product**2 / np.maximum(found.energies, floor)
    member = np.equal.outer(found.group, np.arange(n_groups)).astype(np.float64)
    adds, counts = weighed @ member, member.sum(axis=0)
    adds[:, counts == 0.0] = 0.0
    low, high = 0.0, float(adds.max(initial=0.0))
    label, cost = _bought(adds, counts, low)
    if cost > budget:
        for _ in range(PRICES):
            price = 0.5 * (low + high)
            if _bought(adds, counts, price)[1] > budget:
                low = price
            else:
                high = price
        label, _ = _bought(adds, counts, high)
    return label


def _bought(adds: Array, counts: Array, price: float) -> tuple[Indices, float]:
    """Each feature's group where it gains most, -1 where nowhere; what that costs."""
    profit = adds - price * counts
    label = np.argmax(profit, axis=1)
    cost = counts[label]
    none = profit[np.arange(len(label)), label] <= 0.0
    label[none] = -1
    return label, float(cost[~none].sum())
