"""Which fold each sample is in: at random, blocked in time, or by groups."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamsvd.arrays import Array
from streamsvd.errors import OptionError
from streamsvd.options.rules import one_of, whole

SPLITS = ("random", "blocked")


@dataclass(frozen=True, kw_only=True)
class Folding:
    """How samples are cut into folds; see `streamsvd.sparse_pca_cv`. Checked when made.

    Attributes
    ----------
    folds : int
        `k`.
    split : {"random", "blocked"}
    groups : (N,) array or None
        Labels; samples of one group are in one fold.
    half_samples : int
        Fits on half of the folds.
    random_state : int
        Seed.
    """

    folds: int = 5
    split: str = "random"
    groups: Any = None
    half_samples: int = 0
    random_state: int = 0

    def __post_init__(self) -> None:
        whole(2).check("folds", self.folds)
        one_of(*SPLITS, kind=str).check("split", self.split)
        whole(0).check("half_samples", self.half_samples)
        whole(0).check("random_state", self.random_state)
        if self.groups is not None and self.split != "random":
            raise OptionError(
                f"split={self.split!r} cuts by the order of the samples and groups= by their "
                "labels: leave one out"
            )
        if self.half_samples and self.folds < 4:
            raise OptionError(
                f"half_samples={self.half_samples} needs folds of which halves differ: pass "
                f"folds=4 or more, not {self.folds}"
            )
        if self.half_samples > self.n_halves:
            raise OptionError(
                f"half_samples={self.half_samples} exceeds the {self.n_halves} halves of "
                f"{self.folds} folds; ask for fewer, or raise folds"
            )

    @property
    def n_halves(self) -> int:
        """Sets of half of the folds, of one fold less where these are odd."""
        return math.comb(self.folds, self.folds // 2)

    def labels(self, n_samples: int) -> Array:
        """The fold of each sample, (N,) small integers; every fold has samples.

        A function of the number of samples, or the groups, and the seed: not of how data are read.
        """
        if self.folds > n_samples:
            raise OptionError(
                f"folds={self.folds} exceeds the {n_samples} samples; a fold needs at least one"
            )
        if self.groups is not None:
            return self._by_groups(n_samples)
        dtype = np.min_scalar_type(self.folds - 1)
        # in order and of equal sizes, but for one sample
        sizes = np.diff(np.arange(self.folds + 1) * n_samples // self.folds)
        labels = np.repeat(np.arange(self.folds, dtype=dtype), sizes)
        if self.split == "random":
            np.random.default_rng(self.random_state).shuffle(labels)
        return labels

    def _by_groups(self, n_samples: int) -> Array:
        """Whole groups, the largest first, each to the fold with the fewest samples so far."""
        groups = np.asarray(self.groups)
        if groups.shape != (n_samples,):
            raise OptionError(
                f"groups have shape {groups.shape}; need a label for each of {n_samples} samples"
            )
        names, group_of, sizes = np.unique(groups, return_inverse=True, return_counts=True)
        if len(names) < self.folds:
            raise OptionError(
                f"folds={self.folds} exceeds the {len(names)} groups; lower folds, or make more "
                "groups"
            )
        filled = np.zeros(self.folds, dtype=np.int64)
        fold_of = np.empty(len(names), dtype=np.min_scalar_type(self.folds - 1))
        for group in np.argsort(-sizes, kind="stable"):
            fold = fold_of[group] = np.argmin(filled)
            filled[fold] += sizes[group]
        return fold_of[group_of]

    def halves(self) -> Iterator[tuple[int, ...]]:
        """`half_samples` different halves of the folds, in pairs that share none.

        Complementary pairs, as Shah and Samworth (2013) advise; of an odd number of folds each pair
        leaves one out.
        """
        random, size = np.random.default_rng([self.random_state, 1]), self.folds // 2
        seen = set[tuple[int, ...]]()
        while len(seen) < self.half_samples:
            order = random.permutation(self.folds).tolist()
            for half in (tuple(sorted(order[:size])), tuple(sorted(order[size : 2 * size]))):
                if half not in seen and len(seen) < self.half_samples:
                    seen.add(half)
                    yield half
