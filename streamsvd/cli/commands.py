"""The `streamsvd` command: the same functions and options as in Python, from a shell."""

import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np

from streamsvd.cli.options import (
    AS_FITTED,
    COMPLETION,
    CV,
    FIT,
    OF_DATA,
    PCA,
    QUIET,
    SAMPLE_WEIGHTS,
    SCHEDULER,
    SOURCE_IS,
    THREADS,
    argument,
    option,
    options_of,
    sample_axis_option,
)
from streamsvd.errors import OptionError, StreamSVDError, StreamSVDWarning
from streamsvd.options.rules import DTYPES
from streamsvd.version import __version__


class Commands(click.Group):
    """Commands whose errors take one line; the exit code is 1, or 130 after Ctrl-C."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        notes = Notes()
        logging.getLogger("streamsvd").addHandler(notes)
        try:
            with warnings_shown():
                return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            if not str(stop):  # else the note on how to go on has been shown
                click.echo("Interrupted.", err=True)
            ctx.exit(130)
        except BrokenPipeError:  # click ends quietly
            raise
        except (StreamSVDError, OSError, MemoryError) as error:
            message = " ".join(str(error).split()) or "out of memory"
            raise click.ClickException(in_our_words(message)) from error
        finally:
            logging.getLogger("streamsvd").removeHandler(notes)


@contextmanager
def warnings_shown() -> Iterator[None]:
    """Show the library's warnings without the line of code that they are about."""
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *args: Any, **more: Any) -> None:
        if issubclass(category, StreamSVDWarning):
            click.echo(f"Warning: {in_our_words(str(message))}", err=True)
        else:
            usual(message, category, *args, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("always", StreamSVDWarning)
        warnings.showwarning = show
        yield


class Notes(logging.Handler):
    """Shows the warnings of the library."""

    def emit(self, record: logging.LogRecord) -> None:
        """Show one."""
        click.echo(in_our_words(record.getMessage()), err=True)


def in_our_words(message: str) -> str:
    """Options as they are called here: ``n_components=3`` becomes ``--components 3``."""
    context = click.get_current_context(silent=True)
    asked = None if context is None else main.commands.get(context.invoked_subcommand or "")
    options = {
        param.name: param
        for command in [*main.commands.values(), *([] if asked is None else [asked])]
        for param in command.params
        if isinstance(param, click.Option)
    }

    def translate(match: re.Match[str]) -> str:
        name, equals, _, value = match.groups()
        option = options.get(name)
        if option is None or not (equals or "_" in name):
            return match[0]
        if option.is_flag and value == "False":
            return (option.secondary_opts or option.opts)[0]
        return option.opts[0] if option.is_flag or not value else f"{option.opts[0]} {value}"

    return re.sub(r'(?<!\S)(?<!attribute )(\w+)(=("?)([\w.-]*)\3)?', translate, message)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog=f"{SOURCE_IS}\n\n{COMPLETION}",
)
@click.version_option(__version__, prog_name="streamsvd")
def main() -> None:
    """Sparse orthonormal components of data larger than memory; begin with `streamsvd pca`."""


@main.command()
@argument("source")
@option("--out", "Where the result goes.", "RESULT.zarr", required=True)
@option("--overwrite", "Replace a result that is at --out.", is_flag=True)
@options_of(FIT, [SCHEDULER, QUIET])
def fit(source: str, out: str, overwrite: bool, **options: Any) -> None:
    """Fit sparse components to SOURCE and save them."""
    from streamsvd import sparse_svd

    _fit_and_save(sparse_svd, source, out, overwrite, options)


@main.command()
@argument("source")
@options_of(FIT)
def plan(source: str, **options: Any) -> None:
    """Show what `fit` with these options will take, without doing it."""
    from streamsvd import plan_svd

    click.echo(plan_svd(source, **options).describe().replace("; ", "\n"))


@main.command()
@argument("source")
@option("--out", "Where the result goes.", "RESULT.zarr", required=True)
@option("--overwrite", "Replace a result that is at --out.", is_flag=True)
@options_of(PCA, [SCHEDULER, QUIET])
def pca(source: str, out: str, overwrite: bool, **options: Any) -> None:
    """Sparse principal components of SOURCE within a budget of nonzeros."""
    from streamsvd import sparse_pca

    _fit_and_save(sparse_pca, source, out, overwrite, options)


@main.command()
@argument("source")
@option("--out", "Where the fit at the chosen point goes. [default: it is not kept]", "RESULT.zarr")
@option("--plot", "Where a picture of the scores goes. [default: none]", "PICTURE.png")
@option("--overwrite", "Replace what is at --out and --plot.", is_flag=True)
@options_of(CV, [QUIET])
def cv(
    source: str,
    out: str | None,
    plot: str | None,
    overwrite: bool,
    groups: str | None,
    **options: Any,
) -> None:
    """Choose the number of components and the fill on samples left out."""
    from streamsvd import sparse_pca_cv
    from streamsvd.choosing.text import lines
    from streamsvd.result.pictures import check_file

    picture = None if plot is None else Path(plot).expanduser()
    if picture is not None:
        check_file(picture, overwrite)
    if out is not None:
        _check_out(out, overwrite)
    labels = None if groups is None else _lines_of(groups)
    made = sparse_pca_cv(source, groups=labels, **options)
    _echo(lines(made)[1:])
    if picture is not None:
        picture.parent.mkdir(parents=True, exist_ok=True)
        made.plot().savefig(picture, dpi=150)
        click.echo(f"  saved               {plot}")
    if out is not None:
        made.result.save(out, overwrite=overwrite)
        click.echo(f"  saved               {out}")


@main.command()
@argument("what", "RESULT or SOURCE")
@options_of(OF_DATA)
def info(what: str, **reading: Any) -> None:
    """Show the sizes, options, components and history of RESULT, or what SOURCE is.

    Of data the first samples alone are read.
    """
    from streamsvd import SVDResult
    from streamsvd.cli.about import about_data, is_data
    from streamsvd.result.text import report

    _echo(about_data(what, reading) if is_data(what, reading) else report(SVDResult.load(what)))


@main.command()
@argument("result")
@argument("source")
@option("--out", "Where the scores go; new.", "SCORES.zarr", required=True)
@option("--whiten", "Scale the scores of each component to variance 1 in the fit.", is_flag=True)
@option("--dtype", "Precision of the scores. [default: float64]", values=DTYPES)
@options_of(AS_FITTED)
@SCHEDULER
@QUIET
def transform(result: str, source: str, out: str, scheduler: str | None, **options: Any) -> None:
    """Write the scores of the samples in SOURCE on the components in RESULT."""
    from streamsvd import SVDResult
    from streamsvd.cluster import client_of

    fitted = SVDResult.load(result)
    with client_of(scheduler) as client:
        scores = fitted.transform(source, out, client=client, **options)
    click.echo(f"saved {out}: {_by(scores.shape)}, {scores.dtype}")


@main.command()
@argument("result")
@argument("source")
@options_of(AS_FITTED, [SAMPLE_WEIGHTS])
@option(
    "--gram-limit",
    "Leave out the true singular values if the features x features matrix is larger.",
    "SIZE",
    default="2GiB",
)
@SCHEDULER
@QUIET
def accuracy(result: str, source: str, scheduler: str | None, **options: Any) -> None:
    """Measure the components in RESULT against SOURCE, in one pass."""
    from streamsvd import SVDResult
    from streamsvd.cluster import client_of

    with client_of(scheduler) as client:
        measured = SVDResult.load(result).accuracy(source, client=client, **options)
    for name, value in asdict(measured).items():
        if isinstance(value, np.ndarray):
            value = " ".join(f"{s:.6g}" for s in value.tolist())
        elif value is not None:
            value = f"{value:.6g}"
        click.echo(f"{name.replace('_', ' '):<20}  {value or 'not known'}")


@main.command()
@argument("result")
@argument("source")
@options_of(AS_FITTED)
@option(
    "--effort",
    "More steps of a convex relaxation make the bound tighter. [default: that which is in RESULT, "
    "else normal]",
    values=["low", "normal", "high"],
)
@THREADS
@SCHEDULER
@QUIET
def certificate(result: str, source: str, scheduler: str | None, **options: Any) -> None:
    """Prove how near the best the components in RESULT are; SOURCE are the data of the fit."""
    from streamsvd import SVDResult
    from streamsvd.cluster import client_of

    with client_of(scheduler) as client:
        click.echo(SVDResult.load(result).certificate(source, client=client, **options))


@main.command()
@argument("result")
@option(
    "--kind",
    "All loadings; the largest of each component; how often they are chosen, after `cv`; "
    "explained variance; that or the accuracy against transforms and fill; scores; these with the "
    "largest loadings.",
    values=[
        "components",
        "loadings",
        "stability",
        "scree",
        "variance",
        "accuracy",
        "scores",
        "biplot",
    ],
    default="components",
)
@option("--out", "Where the picture goes, as its ending says.", "PICTURE.png", required=True)
@option("--overwrite", "Replace a picture that is at --out.", is_flag=True)
@option(
    "--source X",
    "The data of the fit: scores and accuracy need them, others then compare with PCA. "
    "[default: none]",
    "SOURCE",
)
@option(
    "--image-shape",
    "Draw components as images of so many rows and columns. [default: as the features say]",
    "ROWS COLUMNS",
    nargs=2,
    type=int,
)
@option(
    "--pair",
    "Components of scores and biplot, counted from 0.",
    "I J",
    nargs=2,
    type=int,
    default=(0, 1),
)
@options_of(AS_FITTED)
@QUIET
def plot(result: str, out: str, overwrite: bool, **options: Any) -> None:
    """Draw RESULT; needs matplotlib, see the extra `plot`."""
    from streamsvd import SVDResult
    from streamsvd.result.pictures import check_file

    path = Path(out).expanduser()
    check_file(path, overwrite)
    figure = SVDResult.load(result).plot(**options)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    click.echo(f"saved {out}")


@main.command()
@argument("source", "IN")
@argument("out", "OUT.zarr")
@option("--key", "Which matrix of an .npz or .mat file with several.", "NAME")
@option("--chunk-bytes", "Size of a chunk before compression.", "SIZE", default="32MiB")
@sample_axis_option(
    "Axis of the samples, which is cut into chunks: 0 for rows. [default: the longer axis]"
)
@option("--dtype", "Type of the numbers. [default: that of IN]", values=DTYPES)
@option(
    "--delimiter",
    r"What separates fields in a text file, \t for a tab. [default: comma in .csv, tab in .tsv, "
    "white space in .txt]",
    "CHAR",
)
@option(
    "--skip-lines",
    "Lines to leave out at the start of a text file, beside a header without numbers.",
    "K",
    type=int,
    default=0,
)
@option(
    "--id-column",
    'Column of a text file with the names of the rows, by the header; "" if it has no name there. '
    "[default: none]",
    "NAME",
)
@QUIET
def convert(source: str, out: str, **options: Any) -> None:
    """Convert IN (.npy, .npz, .mat, .csv, .tsv, .txt, also .csv.gz ...) to a Zarr array.

    Rows stay rows and columns columns. Names in text files are kept, in an AnnData; NA and empty
    fields are missing values. IN is not loaded whole, unless it is a .mat file.
    """
    from streamsvd.cli.convert import convert as run

    if options["delimiter"] == r"\t":
        options["delimiter"] = "\t"
    done = run(source, out, **options)
    longer = " (the longer one)" if options["sample_axis"] is None else ""
    click.echo(f"saved {out}: {_by(done.shape)}, {done.dtype}, in chunks of {_by(done.chunks)}")
    click.echo(f"samples are on axis {done.sample_axis}{longer}")
    if done.is_named:
        click.echo("names are kept: the array is X of an AnnData")
    click.echo(
        f"Go on with: streamsvd pca {out} --sample-axis {done.sample_axis} "
        f"--components {min(5, *done.shape)} --out result.zarr"
    )


@main.command()
@option("--out", "Keep the data and the result here. [default: neither]", "DIR")
@QUIET
def demo(out: str | None, progress: bool | None) -> None:
    """Fit 1797 images of handwritten digits from a store on disk and show the components."""
    from streamsvd.cli.demo import demo as run
    from streamsvd.cli.demo import marks_for

    folder = None if out is None else Path(out).expanduser()
    for line in run(folder, marks_for(sys.stdout.encoding), progress):
        click.echo(line)


for _command in main.commands.values():
    if any(param.name in ("what", "source") for param in _command.params) and _command != convert:
        _command.epilog = SOURCE_IS


# ---------------------------------------------------------------------------------- helpers


def _fit_and_save(
    method: Callable[..., Any], source: str, out: str, overwrite: bool, options: dict[str, Any]
) -> None:
    from streamsvd.cluster import client_of
    from streamsvd.result.text import summary

    _check_out(out, overwrite)
    with client_of(options.pop("scheduler")) as client:
        result = method(source, client=client, **options)
    result.save(out, overwrite=overwrite)
    _echo([*summary(result), f"saved               {out}"])


def _echo(lines: list[str]) -> None:
    click.echo("\n".join(lines))


def _lines_of(path: str) -> list[str]:
    """The lines of a text file, without those that are empty at its end."""
    return Path(path).expanduser().read_text().rstrip().splitlines()


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _check_out(out: str, overwrite: bool) -> None:
    """Refuse, before a long fit, a path that the result could not or must not be saved to."""
    from streamsvd.cli.about import is_result

    path = Path(out).expanduser()
    if os.path.lexists(path):
        if not overwrite:
            raise OptionError(f"{path} exists; pass --overwrite, or choose another path for --out")
        if not is_result(path):
            raise OptionError(f"{path} is not a result of streamsvd and is not overwritten")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        raise OptionError(f"cannot write into {path.parent}; choose another path for --out")


if __name__ == "__main__":
    main()
