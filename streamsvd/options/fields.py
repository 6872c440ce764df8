"""What can be asked of a fit: each option with its rule and its default."""

import os
from dataclasses import dataclass, fields
from typing import Any

from streamsvd.options.rules import (
    ANYTHING,
    AXIS,
    BUDGET,
    CHUNKS,
    CODE,
    COMPONENTS,
    EFFORT,
    FLAG,
    MAPPING,
    MISSING_ENTRIES,
    MODELS,
    PRECISION,
    SCALES,
    SIDES,
    SIZE,
    number,
    one_of,
    option,
    whole,
)


@dataclass(frozen=True, kw_only=True)
class Fields:
    """What `streamsvd.sparse_svd` takes beside the data; see there."""

    n_components: int = option(COMPONENTS, recorded=True)
    n_transforms: int | None = option(whole(0), None)
    algorithm: str = option(one_of("coordinate", "block"), "coordinate", recorded=True)
    batch_size: int = option(whole(1), 1, recorded=True)
    selection: str | None = option(
        one_of("nuclear", "gain", "kogbetliantz", "random"), None, recorded=True
    )
    reduction: str | None = option(one_of(None, "gram", *MODELS), None, recorded=True)
    rank: int | None = option(whole(1), None, recorded=True)
    fill_penalty: float = option(number(0.0), 0.0, recorded=True)
    max_fill: float | None = option(number(0.0, 1.0), None, recorded=True)
    max_nonzeros: int | None = option(BUDGET, None, recorded=True)
    max_nonzeros_per_component: int | None = option(whole(1), None, recorded=True)
    pivot: bool = option(FLAG, False, recorded=True)
    refine: bool = option(FLAG, False)
    effort: str = option(EFFORT, "normal")
    sample_axis: int | None = option(AXIS, None, recorded=True)
    sample_dim: Any = option(ANYTHING, None, recorded=True)
    layer: str | None = option(ANYTHING, None, recorded=True)
    feature_mask: Any = option(ANYTHING, None, recorded=True)
    center: str | None = option(SIDES, None, recorded=True)
    normalize: str | None = option(SCALES, None, recorded=True)
    feature_weights: Any = option(ANYTHING, None, recorded=True)
    sample_weights: Any = option(ANYTHING, None, recorded=True)
    dtype: Any = option(PRECISION, None, recorded=True)
    missing: str = option(MISSING_ENTRIES, "error", recorded=True)
    missing_value: float | None = option(CODE, None, recorded=True)
    missing_chunks: str = option(CHUNKS, "error", recorded=True)
    decode: bool = option(FLAG, True, recorded=True)
    storage_options: dict[str, Any] | None = option(MAPPING, None)
    workspace: str | os.PathLike[str] | None = option(ANYTHING, None)
    resume: bool = option(FLAG, False)
    overwrite_x: bool = option(FLAG, False)
    memory_limit: int | str | None = option(SIZE, None)
    n_threads: int | None = option(whole(1), None)
    tol: float = option(number(0.0), 0.0, recorded=True)
    random_state: int | None = option(whole(0), None, recorded=True)

    @property
    def share(self) -> float | None:
        """What `n_components` is where it is a share of the variance, and no number yet."""
        return self.n_components if isinstance(self.n_components, float) else None

    @property
    def is_counted(self) -> bool:
        """Whether `n_components` is a number, which the data need not tell."""
        return isinstance(self.n_components, int)

    @property
    def takes_all(self) -> bool:
        """Whether `n_components` is None, for as many as there can be."""
        return not self.is_counted and self.share is None

    def recorded(self) -> dict[str, Any]:
        """The options that determine the result, by name."""
        return {
            one.name: getattr(self, one.name) for one in fields(self) if one.metadata["recorded"]
        }
