"""What an option can be: rules on values, each with the error that it refuses with."""

import math
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from dask.utils import parse_bytes

from streamsvd.errors import OptionError

DTYPES = ("float32", "float64")

MODELS = ("samples", "factor")
"""Reductions for any number of features: forms of ``X X^T`` that are no n x n matrix."""


@dataclass(frozen=True)
class Rule:
    """What an option can be.

    Attributes
    ----------
    check : callable
        Refuses, by the name of the option, a value that it cannot have.
    kind : type
        Of its values.
    values : tuple
        All that it can have, where they are few.
    """

    check: Callable[[str, Any], Any]
    kind: type = object
    values: tuple[Any, ...] = ()


def whole(least: int) -> Rule:
    """An integer of at least `least`."""

    def check(name: str, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise OptionError(f"{name} must be an integer of at least {least}; got {value!r}")

    return Rule(check, int)


def number(least: float, most: float = math.inf) -> Rule:
    """A finite number from `least` to `most`."""

    def check(name: str, value: Any) -> None:
        real = isinstance(value, int | float | np.floating) and not isinstance(value, bool)
        if not real or not least <= value <= most or abs(value) == math.inf:
            limit = (
                f" of at least {least:g}" if most == math.inf else f" from {least:g} to {most:g}"
            )
            limit = ", and finite" if least == -math.inf else limit
            raise OptionError(f"{name} must be a number{limit}; got {value!r}")

    return Rule(check, float)


def check_components(name: str, value: Any) -> None:
    """A number of components, the share of the variance that they explain, or None for all."""
    is_share = isinstance(value, float | np.floating) and 0.0 < value < 1.0
    is_number = isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= 1
    if value is not None and not is_share and not is_number:
        raise OptionError(
            f"{name} must be an integer of at least 1, a share of the variance between 0 and 1, or "
            f"None for as many as there can be; got {value!r}"
        )


def one_of(*values: Any, kind: Any = object) -> Rule:
    """One of some values, of the type `kind`: else True would be 1."""

    def check(name: str, value: Any) -> None:
        is_flag = isinstance(value, bool)
        if not isinstance(value, kind) or (is_flag and kind is not bool) or value not in values:
            names = ", ".join(repr(one) for one in values)
            raise OptionError(f"{name} must be one of {names}; got {value!r}")

    return Rule(check, bool if kind is bool else object, values)


def _check_mapping(name: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise OptionError(f"{name} must be a dict; got {type(value).__name__}")


COMPONENTS = Rule(check_components)
FLAG = one_of(False, True, kind=bool)
AXIS = one_of(0, 1, kind=int | np.integer)
SIDES = one_of(None, "features", "samples")
SCALES = one_of(*SIDES.values, "variables")
CHUNKS = one_of("error", "fill")
MISSING_ENTRIES = one_of("error", "mean")
CODE = number(-math.inf)
EFFORT = one_of("normal", "high")
SIZE = Rule(lambda name, value: parse_size(name, value))
PRECISION = Rule(lambda name, value: working_dtype(np.dtype(float), value), values=DTYPES)
MAPPING = Rule(_check_mapping)
ANYTHING = Rule(lambda name, value: None)
"""Checked where it is used."""
BUDGET = Rule(lambda name, value: None, int)
"""Checked with the number of components."""


def option(rule: Rule, default: Any = MISSING, *, recorded: bool = False) -> Any:
    """A field of `Options`.

    `rule` is not asked of None where that is the default. What is `recorded` determines the result:
    it is kept with it, and a run goes on only with the same.
    """
    return field(default=default, metadata={"rule": rule, "recorded": recorded})


def check_axis(sample_axis: Any) -> None:
    """Check `sample_axis`."""
    AXIS.check("sample_axis", sample_axis)


def check_missing(missing_chunks: Any) -> None:
    """Check `missing_chunks`."""
    CHUNKS.check("missing_chunks", missing_chunks)


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
        return dtype.newbyteorder("=")
    small = source.kind in "biuf" and source.itemsize <= 2
    is_single = source.kind == "f" and source.itemsize == 4
    return np.dtype(np.float32 if small or is_single else np.float64)


def parse_size(name: str, value: Any) -> int:
    """Bytes of a size such as ``2_000_000`` or ``"2GiB"``."""
    size = -1
    has_digits = not isinstance(value, str) or any(c.isdigit() for c in value)
    if has_digits and not isinstance(value, bool):
        with suppress(ValueError, TypeError, AttributeError, OverflowError):
            size = int(value if isinstance(value, np.integer) else parse_bytes(value))
    if size <= 0:
        raise OptionError(f'{name} must be a number of bytes or a size like "2GiB"; got {value!r}')
    return size


def workspace_path(workspace: str | os.PathLike[str]) -> Path:
    """The workspace as an absolute path."""
    return Path(workspace).expanduser().absolute()
