"""The options of a fit, and every rule on a value, in one place."""

import math
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from dask.utils import parse_bytes

from streamsvd.errors import OptionError

SELECTIONS = ("nuclear", "gain", "kogbetliantz", "random")
AXES = (None, "features", "samples")
DTYPES = ("float32", "float64")

Progress = bool | None | Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class Options:
    """What `streamsvd.sparse_svd` takes beside the data; see there. Checked when made."""

    n_components: int
    n_transforms: int | None = None
    selection: str = "nuclear"
    sample_axis: int = 1
    center: str | None = None
    normalize: str | None = None
    dtype: Any = None
    missing_chunks: str = "error"
    workspace: str | os.PathLike[str] | None = None
    resume: bool = False
    overwrite_x: bool = False
    memory_limit: int | str | None = None
    n_threads: int | None = None
    tol: float = 0.0
    random_state: int | None = None

    def __post_init__(self) -> None:
        _integer("n_components", self.n_components, 1)
        if self.n_transforms is not None:
            _integer("n_transforms", self.n_transforms, 0)
        _one_of("selection", self.selection, SELECTIONS)
        _one_of("sample_axis", self.sample_axis, (0, 1))
        _one_of("center", self.center, AXES)
        _one_of("normalize", self.normalize, AXES)
        _one_of("missing_chunks", self.missing_chunks, ("error", "fill"))
        if self.dtype is not None:
            working_dtype(np.dtype(np.float64), self.dtype)
        if self.memory_limit is not None:
            parse_size("memory_limit", self.memory_limit)
        if self.n_threads is not None:
            _integer("n_threads", self.n_threads, 1)
        tol = self.tol
        if isinstance(tol, bool) or not isinstance(tol, int | float) or not 0 <= tol < math.inf:
            raise OptionError(f"tol must be a number of at least 0; got {tol!r}")
        if self.random_state is not None:
            _integer("random_state", self.random_state, 0)
        _one_of("resume", self.resume, (False, True))
        _one_of("overwrite_x", self.overwrite_x, (False, True))
        self._check_together()

    def _check_together(self) -> None:
        """Rules on combinations."""
        if self.resume and self.workspace is None:
            raise OptionError("resume=True needs the workspace= of the run to go on with")
        if self.overwrite_x and self.workspace is not None:
            raise OptionError(
                "overwrite_x=True leaves no source to resume from: do not pass workspace= with it"
            )
        if self.overwrite_x and self.sample_axis == 0:
            raise OptionError("overwrite_x=True needs samples as columns: sample_axis=1")
        if self.selection == "random" and self.workspace is not None and self.random_state is None:
            raise OptionError(
                'selection="random" with a workspace needs a random_state, so that it can go on'
            )

    def seed(self) -> int:
        """`random_state`, drawn when it is not given."""
        return secrets.randbits(32) if self.random_state is None else int(self.random_state)

    @property
    def memory_bytes(self) -> int | None:
        """`memory_limit` in bytes."""
        if self.memory_limit is None:
            return None
        return parse_size("memory_limit", self.memory_limit)

    def check_shape(self, n_features: int, n_samples: int) -> None:
        """Check `n_components` against the data."""
        p, limit = self.n_components, min(n_features, n_samples)
        if p > limit:
            hint = ""
            if n_features > n_samples:
                hint = "; if your samples are rows, pass sample_axis=0"
            raise OptionError(
                f"n_components={p} exceeds min(n_features, n_samples)={limit} of data with "
                f"{n_features} features and {n_samples} samples{hint}"
            )

    def transforms_for(self, n_features: int) -> int:
        """`n_transforms`, by default ``round(10 p log2(n))`` as in the author's script."""
        if self.n_transforms is not None:
            return int(self.n_transforms)
        return round(10 * self.n_components * math.log2(max(n_features, 2)))


def working_dtype(source: np.dtype[Any], asked: Any = None) -> np.dtype[Any]:
    """Precision of the working matrix.

    Float32 and 8- or 16-bit sources stay in float32, everything else becomes float64, unless
    `asked` says otherwise.
    """
    if asked is not None:
        try:
            dtype = np.dtype(asked)
        except TypeError:
            dtype = None
        if dtype is None or dtype.name not in DTYPES:
            raise OptionError(f"dtype must be one of {', '.join(DTYPES)}; got {asked!r}")
        return dtype
    small = source.kind in "biuf" and source.itemsize <= 2
    is_single = source.kind == "f" and source.itemsize == 4
    return np.dtype(np.float32 if small or is_single else np.float64)


def parse_size(name: str, value: int | str) -> int:
    """Bytes of a size such as ``2_000_000`` or ``"2GiB"``."""
    try:
        size = int(parse_bytes(value))
    except (ValueError, TypeError, AttributeError):
        size = -1
    if isinstance(value, bool) or size <= 0:
        raise OptionError(f'{name} must be a number of bytes or a size like "2GiB"; got {value!r}')
    return size


def workspace_path(workspace: str | os.PathLike[str]) -> Path:
    """The workspace as an absolute path."""
    return Path(workspace).expanduser().absolute()


def _integer(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise OptionError(f"{name} must be an integer of at least {least}; got {value!r}")


def _one_of(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if value not in allowed or (isinstance(value, bool) and bool not in map(type, allowed)):
        names = ", ".join(repr(a) for a in allowed)
        raise OptionError(f"{name} must be one of {names}; got {value!r}")
