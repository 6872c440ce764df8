"""The options of a fit, checked, and what follows from them and the size of the data."""

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from streamsvd.errors import OptionError
from streamsvd.options.combinations import check_together
from streamsvd.options.fields import Fields
from streamsvd.options.rules import MODELS, parse_size

LIMITS = ("max_fill", "max_nonzeros", "max_nonzeros_per_component")
"""Options that limit the nonzeros of components."""

MOST_TRANSFORMS = 1_000_000
"""Where no budget of transforms is given: a run ends long before, or would not end."""

MOST_ON_MODELS = 5_000
"""The same on `MODELS`, where more would take longer than the refinement and explain less."""


@dataclass(frozen=True, kw_only=True)
class Options(Fields):
    """What `streamsvd.sparse_svd` takes beside the data; see there. Checked when made."""

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> "Options":
        """Of the arguments of a call, those that are options."""
        return cls(
            **{one.name: arguments[one.name] for one in fields(cls) if one.name in arguments}
        )

    @classmethod
    def of_pca(cls, arguments: Mapping[str, Any], n_features: int) -> "Options":
        """Of the arguments of `streamsvd.sparse_pca`, with its budget where none is given."""
        added: dict[str, Any] = {"selection": "gain"}
        if all(arguments[name] is None for name in LIMITS):
            added["max_fill"] = max(0.05, min(1.0, 5 / n_features))
        return cls.of({**arguments, **added})

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, np.generic):  # plain numbers can be written as JSON
                value = value.item()
                object.__setattr__(self, one.name, value)
            if value is not None or one.default is not None:
                one.metadata["rule"].check(one.name, value)
        check_together(self)

    @property
    def scales(self) -> str | None:
        """What is scaled: features also where they are by the variance of their variable."""
        return "features" if self.normalize == "variables" else self.normalize

    @property
    def score(self) -> str:
        """`selection`, by default the paper's, or what the reduced objective gains."""
        return self.selection or ("nuclear" if self.reduction is None else "gain")

    def budget(self, n_features: int) -> int | None:
        """The most nonzeros that the components may have, None without a limit."""
        limits = []
        if self.max_nonzeros is not None:
            limits.append(int(self.max_nonzeros))
        if self.max_nonzeros_per_component is not None:
            most = min(self.max_nonzeros_per_component, n_features)
            limits.append(most * self.n_components)
        if self.max_fill is not None:
            # a share such as 0.29 of 100 means 29, whatever its last bit
            limits.append(math.floor(self.max_fill * self.n_components * n_features + 1e-6))
        if not limits:
            return None
        if min(limits) < self.n_components:
            raise OptionError(
                f"max_fill={self.max_fill} allows {min(limits)} nonzeros in {self.n_components} "
                f"components of {n_features} features; each component needs at least one: raise it "
                f"to {math.ceil(1e6 / n_features) / 1e6:g} or more"
            )
        return min(limits)

    def seed(self) -> int:
        """`random_state`, drawn when it is not given."""
        return secrets.randbits(32) if self.random_state is None else int(self.random_state)

    @property
    def memory_bytes(self) -> int | None:
        """`memory_limit` in bytes."""
        if self.memory_limit is None:
            return None
        return parse_size("memory_limit", self.memory_limit)

    def check_shape(
        self, n_features: int, n_samples: int, sample_axis: int, is_masked: bool = False
    ) -> None:
        """Check `n_components` against the data, or those of them that a mask leaves."""
        p, limit = self.n_components, min(n_features, n_samples)
        if p > limit:
            hint = ""
            if is_masked:
                hint = "; these are what feature_mask leaves"
            elif n_features > n_samples and sample_axis == 1 and self.sample_dim is None:
                hint = "; if your samples are rows, pass sample_axis=0"
            raise OptionError(
                f"n_components={p} exceeds min(n_features, n_samples)={limit} of data with "
                f"{n_features} features and {n_samples} samples{hint}"
            )

    def transforms_for(self, n_features: int) -> int:
        """`n_transforms`, by default ``round(10 p log2(n))`` as in the author's script.

        As many columns make ``round(10 log2(n))`` block steps. On ``X X^T`` a budget of nonzeros
        ends a run of pairs, or `MOST_ON_MODELS` of them where that is no matrix.
        """
        if self.n_transforms is not None:
            return int(self.n_transforms)
        if self.algorithm == "block":
            return round(10 * math.log2(max(n_features, 2)))
        if self.ends_with_budget(n_features):
            return MOST_ON_MODELS if self.reduction in MODELS else MOST_TRANSFORMS
        return round(10 * self.n_components * math.log2(max(n_features, 2)))

    def ends_with_budget(self, n_features: int) -> bool:
        """Whether transforms go on until a budget of nonzeros is spent."""
        is_left_open = self.n_transforms is None and self.algorithm != "block"
        return is_left_open and self.reduction is not None and self.budget(n_features) is not None
