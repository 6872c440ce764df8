"""The options of the commands: types, choices and defaults are those of `streamsvd.options`."""

from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

import click
import numpy as np

from streamsvd.choosing.folds import SPLITS
from streamsvd.options import Options

F = TypeVar("F", bound=Callable[..., Any])

SOURCE_IS = """\b
SOURCE is one of:
  x.zarr                  a Zarr array, also in a group, a .zip or at a URL
  cells.h5ad, cells.zarr  an AnnData
  weather.nc/t2m          a dataset in an HDF5 or NetCDF 4 file
  x.npy                   an array of NumPy
Samples are columns, or rows of an AnnData, unless --sample-axis says else.
Other files (.csv, .tsv, .txt, .npz, .mat): `streamsvd convert` them first.
`streamsvd info SOURCE` says what is in it."""
"""The end of the help of commands that read data."""

COMPLETION = """\b
Commands, options and files are completed by the shell after
  eval "$(_STREAMSVD_COMPLETE=bash_source streamsvd)"     in ~/.bashrc
  eval "$(_STREAMSVD_COMPLETE=zsh_source streamsvd)"      in ~/.zshrc
  _STREAMSVD_COMPLETE=fish_source streamsvd | source      in config.fish"""
"""The end of the help of `streamsvd` itself."""

DEFINED = {one.name: one for one in fields(Options)}


def option(
    flags: str, text: str, metavar: str | None = None, values: Any = None, **more: Any
) -> Callable[[F], F]:
    """An option; `flags` may end in the name that it has in Python."""
    if values is not None:
        more["type"] = click.Choice(values)
    return click.option(*flags.split(), help=text, metavar=metavar, **more)


def argument(name: str, metavar: str | None = None) -> Callable[[F], F]:
    """A path, or a URL; shells complete it as a file."""
    return click.argument(name, metavar=metavar, type=click.Path())


def of_fit(
    name: str, text: str, metavar: str | None = None, flag: str | None = None, **more: Any
) -> Callable[[F], F]:
    """An option of `Options` by its name there, as it is defined there unless `more` says else."""
    one = DEFINED[name]
    rule, found = one.metadata["rule"], dict[str, Any]()
    values = [value for value in rule.values if value is not None]
    if one.default is MISSING:
        found["required"] = True
    elif one.default is not None:
        found["default"] = one.default
    if rule.kind is bool:
        found["is_flag"] = True
    elif values:
        found["values"] = values
    elif rule.kind in (int, float):
        found["type"] = rule.kind
    flags = f"{flag or '--' + name.replace('_', '-')} {name}"
    return option(flags, text, metavar, **(found | more))


def sample_axis_option(text: str, default: str | None = None) -> Callable[[F], F]:
    """``--sample-axis``, which gives an integer or None."""

    def number(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
        return None if value is None else int(value)

    return option("--sample-axis", text, values=["0", "1"], default=default, callback=number)


def content_of(what: str, *endings: str) -> Callable[..., Any]:
    """Gives the content of a file with one of some endings, and any other value as it is.

    A .npy file holds an array of `what`, a .txt file names, one a line; a value that is no such
    path is for the function to judge.
    """

    def content(_: click.Context, __: click.Parameter, value: str | None) -> Any:
        path = None if value is None else Path(value).expanduser()
        if path is None or path.suffix not in endings:
            return value
        try:
            if path.suffix == ".npy":
                return np.load(path, allow_pickle=False)
            return path.read_text().rstrip().splitlines()
        except OSError as error:
            raise click.BadParameter(f"cannot read {path}: {error}") from error
        except ValueError as error:
            raise click.BadParameter(
                f"cannot read {path}, which is no array of {what}: {error}"
            ) from error

    return content


def several(kind: type) -> dict[str, Any]:
    """Of an option that gives a list of numbers, with commas between them."""

    def numbers(_: click.Context, __: click.Parameter, value: str) -> list[Any]:
        try:
            return [kind(part) for part in value.split(",")]
        except ValueError:
            raise click.BadParameter(f"{value!r} is not a list of numbers such as 2,3,5") from None

    return {"type": str, "callback": numbers}


def _count_or_share(value: str) -> int | float:
    return float(value) if "." in value else int(value)


COMPONENTS = of_fit(
    "n_components",
    "How many, at most the shorter side; or a share of the variance, such as 0.9: as few as PCA "
    "needs to explain it.",
    "P",
    "--components",
    type=_count_or_share,
)
MAX_FILL = of_fit("max_fill", "Most nonzeros, as a share of all. [default: no limit]", "X")
MAX_NONZEROS = of_fit("max_nonzeros", "Most nonzeros, as a count. [default: no limit]", "K")
MAX_PER_COMPONENT = of_fit(
    "max_nonzeros_per_component", "Most nonzeros of each component. [default: no limit]", "K"
)
ROWS_OR_COLUMNS = sample_axis_option(
    "Axis of the samples: 0 for rows, 1 for columns. [default: 1; 0 for AnnData]"
)
OF_THE_FIT = sample_axis_option("Axis of the samples: 0 for rows. [default: that of the fit]")
SAMPLE_DIM = of_fit(
    "sample_dim", "Dimension of the samples, in arrays that xarray wrote. [default: none]", "NAME"
)
LAYER = of_fit("layer", "Layer of an AnnData. [default: X]", "NAME")


FEATURE_MASK = of_fit(
    "feature_mask",
    "Features that take part: a column of booleans in the var of an AnnData, a .npy file of "
    "booleans, or a .txt file of names, one a line. [default: all]",
    "COLUMN or FILE",
    callback=content_of("booleans", ".npy", ".txt"),
)
FEATURE_WEIGHTS = of_fit(
    "feature_weights",
    "coslat, or a .npy file: what the variance of each feature counts. [default: 1]",
    "FILE.npy",
    callback=content_of("numbers", ".npy"),
)
SAMPLE_WEIGHTS = of_fit(
    "sample_weights",
    "A .npy file: how many times each sample counts. [default: once]",
    "FILE.npy",
    callback=content_of("numbers", ".npy"),
)
MISSING_ENTRIES = of_fit(
    "missing", "Whether missing entries are an error, or the mean of their feature."
)
MISSING_VALUE = of_fit("missing_value", "Counts as missing beside NaN. [default: none]", "X")
MISSING_CHUNKS = of_fit(
    "missing_chunks",
    "Whether chunks that are not in the store are an error, or read as its fill value.",
)
DECODE = of_fit(
    "decode",
    "Whether packed numbers are decoded as the attributes of SOURCE say, or taken as stored.",
    flag="--decode/--no-decode",
)
DECODE_AS_FITTED = of_fit(
    "decode",
    "Whether packed numbers are decoded, or taken as stored. [default: as in the fit]",
    flag="--decode/--no-decode",
    default=None,
)
AS_FITTED = [OF_THE_FIT, MISSING_CHUNKS, DECODE_AS_FITTED]
"""How samples are read by what a fit has made."""

OF_DATA = [ROWS_OR_COLUMNS, SAMPLE_DIM, LAYER, MISSING_CHUNKS, DECODE]
"""How data are read."""

THREADS = of_fit("n_threads", "Threads. [default: all processors]", "K", "--threads")
SCHEDULER = option(
    "--scheduler",
    "Run on the Dask cluster of this scheduler, whose workers see SOURCE. [default: here]",
    "ADDRESS",
)
QUIET = option(
    "--quiet progress",
    "No progress bar.",
    is_flag=True,
    callback=lambda _, __, value: False if value else None,
)

FIT = [
    COMPONENTS,
    of_fit(
        "n_transforms",
        "Transforms to make. More fit better and leave fewer zeros. [default: 10 P log2(features); "
        "with --reduction gram and a budget of nonzeros, until that is spent; 10 log2(features) "
        "with --algorithm block]",
        "M",
        "--transforms",
    ),
    of_fit(
        "algorithm",
        "A pair of rows and columns a transform, or a block of 2 P: fewer steps, fewer zeros.",
    ),
    of_fit(
        "batch_size",
        "Transforms to pick at a time, up to P: hides the latency of a cluster or a disk.",
        "K",
    ),
    of_fit(
        "selection",
        "What the next transform is chosen by. [default: nuclear; with --reduction gram: gain]",
    ),
    of_fit(
        "reduction",
        "Read SOURCE once and work on its features x features Gram matrix, in memory; or, with "
        "--refine and a budget, on the samples in memory or a factor. [default: none]",
    ),
    of_fit("rank", "Of the factor, with --reduction factor. [default: 10 P]", "R"),
    of_fit("fill_penalty", "Divide scores by (1 + nonzeros added)^A.", "A"),
    MAX_FILL,
    MAX_NONZEROS,
    MAX_PER_COMPONENT,
    of_fit("pivot", "Start from the features of largest energy, not the first."),
    of_fit("refine", "Refine the components at the end, with no more nonzeros."),
    of_fit("effort", "Of the refinement; high: start from a convex relaxation too."),
    ROWS_OR_COLUMNS,
    SAMPLE_DIM,
    LAYER,
    FEATURE_MASK,
    of_fit("center", "Subtract the mean of each feature, or of each sample. [default: neither]"),
    of_fit(
        "normalize",
        "Scale each feature to variance 1, or each sample to norm 1. [default: neither]",
        values=["features", "samples"],
    ),
    FEATURE_WEIGHTS,
    SAMPLE_WEIGHTS,
    of_fit("dtype", "Precision of the work. [default: by that of SOURCE]"),
    MISSING_ENTRIES,
    MISSING_VALUE,
    MISSING_CHUNKS,
    DECODE,
    of_fit(
        "workspace",
        "New or empty folder for a working store as large as the data, and for what is needed to "
        "go on with a run that was stopped. [default: a temporary one if memory does not suffice]",
        "DIR",
    ),
    of_fit("resume", "Go on with the run in --workspace, if there is one."),
    of_fit(
        "overwrite_x",
        "Work in SOURCE itself, which DESTROYS it. It must be an uncompressed local array.",
    ),
    of_fit(
        "memory_limit",
        'Memory that the fit may take, such as "2GiB". [default: half of what is free]',
        "SIZE",
    ),
    of_fit(
        "n_threads",
        "Threads; the result does not depend on it. [default: 1]",
        "K",
        "--threads",
    ),
    of_fit("tol", "Stop when no score is above X times the norm of SOURCE.", "X"),
    of_fit("random_state", "Seed of --selection random. [default: drawn, and recorded]", "SEED"),
]

PCA = [
    COMPONENTS,
    of_fit("max_fill", "Most nonzeros, as a share of all. [default: 0.05]", "X"),
    MAX_NONZEROS,
    MAX_PER_COMPONENT,
    ROWS_OR_COLUMNS,
    SAMPLE_DIM,
    LAYER,
    FEATURE_MASK,
    of_fit(
        "reduction",
        "The features x features Gram matrix, the samples in memory, or a factor from two passes. "
        "[default: what suits SOURCE and memory]",
    ),
    of_fit("rank", "Of the factor, with --reduction factor. [default: 10 P]", "R"),
    of_fit(
        "refine",
        "Refine the components of the greedy path.",
        flag="--refine/--no-refine",
        default=True,
    ),
    of_fit("effort", "high: search from a convex relaxation too, and prove how near the best."),
    of_fit(
        "center",
        "Subtract the mean of each feature, as PCA does, or take numbers as they are.",
        flag="--center/--no-center",
        is_flag=True,
        values=None,
        default=True,
        callback=lambda _, __, value: "features" if value else None,
    ),
    of_fit("normalize", "Scale each feature to variance 1. [default: no]", values=["features"]),
    FEATURE_WEIGHTS,
    SAMPLE_WEIGHTS,
    MISSING_ENTRIES,
    MISSING_VALUE,
    MISSING_CHUNKS,
    DECODE,
    of_fit("memory_limit", 'Such as "2GiB". [default: half of what is free]', "SIZE"),
    THREADS,
]


CV = [
    of_fit("n_components", "How many: numbers to try.", "P,P,...", "--components", **several(int)),
    of_fit(
        "max_fill",
        "Most nonzeros, as shares of all to try.",
        "X,X,...",
        **several(float),
        required=True,
    ),
    option("--folds", "Parts that the samples are cut into.", "K", type=int, default=5),
    option(
        "--split",
        "Parts drawn at random, or runs of samples, for series in time.",
        values=SPLITS,
        default="random",
    ),
    option(
        "--groups",
        "Text file with the group of each sample, one a line; groups are left out whole. "
        "[default: none]",
        "FILE",
    ),
    option(
        "--half-samples",
        "Measure stability over so many fits on half of the folds. [default: over the folds]",
        "M",
        type=int,
        default=0,
    ),
    option("--random-state", "Seed of the folds.", "SEED", type=int, default=0),
    MAX_PER_COMPONENT,
    ROWS_OR_COLUMNS,
    SAMPLE_DIM,
    LAYER,
    FEATURE_MASK,
    of_fit("normalize", "Scale each feature to variance 1. [default: no]", values=["features"]),
    MISSING_ENTRIES,
    MISSING_VALUE,
    FEATURE_WEIGHTS,
    MISSING_CHUNKS,
    DECODE,
    of_fit("memory_limit", 'Such as "2GiB". [default: half of what is free]', "SIZE"),
    THREADS,
]


def options_of(*lists: list[Callable[[Any], Any]]) -> Callable[[F], F]:
    """All options of some lists, in this order."""

    def decorate(command: F) -> F:
        for add in reversed([one for some in lists for one in some]):
            command = add(command)
        return command

    return decorate
