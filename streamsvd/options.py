"""The options of a fit, and every rule on a value, in one place."""

import math
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np
from dask.utils import parse_bytes

from streamsvd.errors import OptionError

DTYPES = ("float32", "float64")

MODELS = ("samples", "factor")
"""Reductions for any number of features: forms of ``X X^T`` that are no n x n matrix."""

MOST_TRANSFORMS = 1_000_000
"""Where no budget of transforms is given: a run ends long before, or would not end."""

MOST_ON_MODELS = 5_000
"""The same on `MODELS`, where more would take longer than the refinement and explain less."""

# -------------------------------------------------------------------------------------- rules


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


FLAG = one_of(False, True, kind=bool)
AXIS = one_of(0, 1, kind=int | np.integer)
SIDES = one_of(None, "features", "samples")
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


@dataclass(frozen=True, kw_only=True)
class Options:
    """What `streamsvd.sparse_svd` takes beside the data; see there. Checked when made."""

    n_components: int = option(whole(1), recorded=True)
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
    center: str | None = option(SIDES, None, recorded=True)
    normalize: str | None = option(SIDES, None, recorded=True)
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

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> "Options":
        """Of the arguments of a call, those that are options."""
        return cls(
            **{one.name: arguments[one.name] for one in fields(cls) if one.name in arguments}
        )

    @classmethod
    def of_pca(cls, arguments: Mapping[str, Any], n_features: int) -> "Options":
        """Of the arguments of `streamsvd.sparse_pca`, with its budget where none is given."""
        limits = ("max_fill", "max_nonzeros", "max_nonzeros_per_component")
        added: dict[str, Any] = {"selection": "gain"}
        if all(arguments[name] is None for name in limits):
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
        self._check_together()

    def recorded(self) -> dict[str, Any]:
        """The options that determine the result, by name."""
        return {
            one.name: getattr(self, one.name) for one in fields(self) if one.metadata["recorded"]
        }

    def _check_together(self) -> None:
        """Rules on combinations."""
        if self.max_nonzeros is not None:
            whole(self.n_components).check("max_nonzeros", self.max_nonzeros)
        if self.resume and self.workspace is None:
            raise OptionError("resume=True needs the workspace= of the run to go on with")
        if self.overwrite_x and self.workspace is not None:
            raise OptionError(
                "overwrite_x=True leaves no source to resume from: do not pass workspace= with it"
            )
        if self.overwrite_x and self.refine:
            raise OptionError(
                "refine=True reads the data once more, which overwrite_x=True destroys: leave one "
                "out"
            )
        if self.overwrite_x and self.missing == "mean":
            raise OptionError(
                'missing="mean" reads data twice, and overwrite_x=True destroys them: leave one out'
            )
        if self.overwrite_x and self.sample_axis == 0:
            raise OptionError("overwrite_x=True needs samples as columns: sample_axis=1")
        if self.batch_size > 1:
            self._check_batches()
        if self.algorithm == "block" and self.max_nonzeros_per_component is not None:
            raise OptionError(
                f"max_nonzeros_per_component={self.max_nonzeros_per_component} chooses among "
                'pairs, and a block step fills all components: not with algorithm="block"; use '
                "max_nonzeros or max_fill"
            )
        if self.algorithm == "block" and self.fill_penalty:
            raise OptionError(
                f"fill_penalty={self.fill_penalty:g} weighs pairs, and a block step fills many at "
                'once: leave it out, or pass algorithm="coordinate"'
            )
        if self.reduction is not None:
            self._check_reduced()
        if self.rank is not None and self.reduction != "factor":
            raise OptionError(f'rank={self.rank} is that of a factor: pass reduction="factor" too')
        two_passes = self.center == "features" and self.normalize == "samples"
        if two_passes and (self.reduction is not None or self.refine):
            raise OptionError(
                'center="features" with normalize="samples" needs the means before the norms, two '
                'passes: not with reduction="gram" or another, nor with refine=True'
            )
        limits_fill = (
            self.fill_penalty
            or self.max_fill
            or self.max_nonzeros
            or self.max_nonzeros_per_component
        )
        if self.selection == "random" and limits_fill:
            raise OptionError(
                'selection="random" does not look at the fill: do not pass fill_penalty, max_fill '
                "or max_nonzeros with it"
            )
        if self.selection == "random" and self.workspace is not None and self.random_state is None:
            raise OptionError(
                'selection="random" with a workspace needs a random_state, so that it can go on'
            )

    def _check_batches(self) -> None:
        if self.batch_size > self.n_components:
            raise OptionError(
                f"batch_size={self.batch_size} exceeds n_components={self.n_components}: a batch "
                "has one pair for each component at most"
            )
        if self.algorithm == "block":
            raise OptionError(
                f"batch_size={self.batch_size} is for pairs, and a block step takes all components "
                'at once: not with algorithm="block"'
            )
        if self.selection == "random":
            raise OptionError(
                f"batch_size={self.batch_size} takes the best pairs together, and random ones come "
                'one by one: not with selection="random"'
            )

    def _check_reduced(self) -> None:
        if self.selection not in (None, "gain", "kogbetliantz", "random"):
            raise OptionError(
                f"selection={self.selection!r} scores zero everywhere on X X^T: with "
                f'reduction="{self.reduction}" use "gain"'
            )
        if self.workspace is not None or self.overwrite_x:
            raise OptionError(
                f'reduction="{self.reduction}" reads the source and keeps nothing on disk: do not '
                "pass workspace= or overwrite_x=True with it"
            )
        if self.reduction in MODELS and self.algorithm == "block":
            raise OptionError(
                f'reduction="{self.reduction}" rotates pairs, not blocks: leave algorithm="block" '
                'out, or pass reduction="gram"'
            )

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
        """`n_transforms`, by default ``round(10 p log2(n))`` as in the author's script.

        As many columns make ``round(10 log2(n))`` block steps. On ``X X^T`` a budget of nonzeros
        ends a run of pairs, or `MOST_ON_MODELS` of them where that is no matrix.
        """
        if self.n_transforms is not None:
            return int(self.n_transforms)
        if self.algorithm == "block":
            return round(10 * math.log2(max(n_features, 2)))
        if self.reduction is not None and self.budget(n_features) is not None:
            return MOST_ON_MODELS if self.reduction in MODELS else MOST_TRANSFORMS
        return round(10 * self.n_components * math.log2(max(n_features, 2)))


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


class Reading(TypedDict, total=False):
    """The options of how data are read, by name: see `Ask`."""

    sample_axis: int | None
    sample_dim: str | Sequence[str] | None
    layer: str | None
    missing_chunks: str
    storage_options: dict[str, Any] | None
    decode: bool


class Ask(NamedTuple):
    """How a user wants data to be read.

    Attributes
    ----------
    sample_axis : {0, 1} or None
        Axis of the samples.
    sample_dim : str, sequence of str, or None
        Dimension of the samples, where dimensions have names; several in xarray.
    layer : str or None
        Of an AnnData; None for `X`.
    missing_chunks : {"error", "fill"}
        Whether chunks that are not in a store read as its fill value.
    storage_options : dict or None
        For the file system of a URL.
    decode : bool or None
        Whether packed numbers are decoded.
    """

    sample_axis: int | None = None
    sample_dim: Any = None
    layer: str | None = None
    missing_chunks: str = "error"
    storage_options: Any = None
    decode: bool | None = None

    @classmethod
    def among(cls, arguments: Mapping[str, Any]) -> "Ask":
        """Of the arguments of a call."""
        return cls(*(arguments[name] for name in cls._fields))

    @classmethod
    def of(cls, options: Options) -> "Ask":
        """What the options of a fit say."""
        return cls(*(getattr(options, name) for name in cls._fields))

    @classmethod
    def as_recorded(cls, settings: Mapping[str, Any]) -> "Ask":
        """How the data of a fit were read, by its settings.

        Before there was `decode`, stored numbers were taken as they are.
        """
        dim, layer = settings.get("sample_dim"), settings.get("layer")
        return cls(settings["sample_axis"], dim, layer, decode=settings.get("decode", False))

    def decodes(self, fitted: "Ask") -> bool:
        """`decode`, checked: if it is left out that of `fitted`, else True."""
        said = (one for one in (self.decode, fitted.decode) if one is not None)
        decode = next(said, True)
        FLAG.check("decode", decode)
        return decode
