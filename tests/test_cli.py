"""The command line: the same as the API, errors of one line, nothing overwritten by mistake."""

import dataclasses
import gzip
import inspect
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time

import click
import numpy as np
import pytest
import zarr
from click.shell_completion import get_completion_class
from click.testing import CliRunner
from matplotlib.image import imread
from scipy.io import savemat
from scipy.sparse import csr_matrix
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

import streamsvd
from streamsvd import SVDResult, options, sparse_pca, sparse_pca_cv, sparse_svd
from streamsvd.cli.commands import in_our_words, main
from streamsvd.cli.convert import convert
from streamsvd.cli.demo import ASCII, BLOCKS, marks_for, pictures
from streamsvd.result.pictures import KINDS
from streamsvd.result.text import table
from streamsvd.storage.outputs import new_output


def run(*args, code=0, charset="utf-8"):
    """Run the command; an exception that is not an exit fails the test."""
    result = CliRunner(charset=charset).invoke(main, list(map(str, args)))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def fails(*args, code=1):
    """The one line on stderr of a command that fails."""
    result = run(*args, code=code)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line


def subprocess_run(*args, **options):
    command = [sys.executable, "-m", "streamsvd.cli.commands", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


def data(n=12, n_samples=60):
    return np.random.default_rng(3).standard_normal((n, n_samples)) + np.arange(n)[:, None]


def write(path, X, chunks=None):
    with new_output(path, X.shape, chunks or (X.shape[0], 17), X.dtype) as array:
        array[...] = X
    return path


@pytest.fixture
def store(tmp_path):
    return write(tmp_path / "x.zarr", data())


@pytest.fixture
def result(tmp_path, store):
    path = tmp_path / "result.zarr"
    sparse_svd(store, 3, n_transforms=20, center="features").save(path)
    return path


def snapshot(folder):
    """Content and time of every file below a folder."""
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def same(a, b):
    np.testing.assert_array_equal(a.pairs, b.pairs)
    np.testing.assert_array_equal(a.components.toarray(), b.components.toarray())
    np.testing.assert_array_equal(a.singular_values, b.singular_values)
    assert a.settings == b.settings


# --------------------------------------------------------------------------------------- fit


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ("--components 3", {}),
        ("--components 2 --transforms 7", {"n_transforms": 7}),
        ("--components 2 --transforms 0", {"n_transforms": 0}),
        ("--components 2 --selection gain", {"selection": "gain"}),
        (
            "--components 2 --selection random --random-state 5",
            {"selection": "random", "random_state": 5},
        ),
        ("--components 2 --sample-axis 0", {"sample_axis": 0}),
        ("--components 2 --center features", {"center": "features"}),
        (
            "--components 2 --center samples --normalize samples",
            {"center": "samples", "normalize": "samples"},
        ),
        ("--components 2 --dtype float32", {"dtype": "float32"}),
        ("--components 2 --missing-chunks fill", {"missing_chunks": "fill"}),
        ("--components 2 --threads 2", {"n_threads": 2}),
        ("--components 2 --memory-limit 4GiB", {"memory_limit": "4GiB"}),
        ("--components 2 --tol 0.3", {"tol": 0.3}),
        ("--components 2 --reduction gram", {"reduction": "gram"}),
        ("--components 2 --fill-penalty 0.5", {"fill_penalty": 0.5}),
        ("--components 2 --max-fill 0.25", {"max_fill": 0.25}),
        ("--components 2 --max-nonzeros 7", {"max_nonzeros": 7}),
        ("--components 2 --pivot --refine", {"pivot": True, "refine": True}),
    ],
)
def test_fit_is_that_of_the_api(tmp_path, store, args, kwargs):
    run("fit", store, *args.split(), "--out", tmp_path / "r.zarr")
    expected = sparse_svd(store, int(args.split()[1]), **kwargs)
    same(SVDResult.load(tmp_path / "r.zarr"), expected)


def test_fit_in_a_workspace_and_more_of_it(tmp_path, store):
    fit = ("fit", store, "--components", 2, "--workspace", tmp_path / "work", "--quiet")
    run(*fit, "--transforms", 5, "--out", tmp_path / "few.zarr")
    assert "pass --resume" in fails(*fit, "--transforms", 9, "--out", tmp_path / "more.zarr")
    run(*fit, "--transforms", 9, "--out", tmp_path / "more.zarr", "--resume")
    same(SVDResult.load(tmp_path / "few.zarr"), sparse_svd(store, 2, n_transforms=5))
    same(SVDResult.load(tmp_path / "more.zarr"), sparse_svd(store, 2, n_transforms=9))


def test_fit_in_the_source_itself(tmp_path):
    X = data()
    array = zarr.create_array(
        tmp_path / "x.zarr", shape=X.shape, chunks=(12, 20), dtype="f8", compressors=None
    )
    array[...] = X
    run(
        "fit", tmp_path / "x.zarr", "--components", 2, "--overwrite-x",
        "--out", tmp_path / "r.zarr",
    )  # fmt: skip
    expected = sparse_svd(X, 2)
    np.testing.assert_array_equal(SVDResult.load(tmp_path / "r.zarr").pairs, expected.pairs)
    assert not np.array_equal(array[...], X)


def test_summary(tmp_path, store):
    out = run(
        "fit", store, "--components", 3, "--transforms", 20, "--center", "features",
        "--out", tmp_path / "r.zarr",
    ).stdout  # fmt: skip
    fitted = SVDResult.load(tmp_path / "r.zarr")
    assert "12 features x 60 samples, worked on in float64\n" in out
    assert re.search(r"components +3\n", out)
    assert re.search(r"transforms +20; as many as were to be made\n", out)
    assert re.search(rf"fill +{fitted.n_nonzeros} nonzeros, {fitted.fill:.2%}\n", out)
    assert re.search(rf"singular values +{fitted.singular_values.sum():.6g} in sum\n", out)
    assert f"{fitted.explained_variance_ratio.sum():.2%}\n" in out
    assert re.search(r"time +\d+\.\d s\n", out)
    assert re.search(rf"saved +{tmp_path}/r.zarr\n", out)


def test_summary_of_a_converged_fit(tmp_path):
    write(tmp_path / "x.zarr", np.diag([3.0, 2.0, 1.0]))
    out = run("fit", tmp_path / "x.zarr", "--components", 1, "--out", tmp_path / "r.zarr").stdout
    assert re.search(r"transforms +0; no other would improve the fit\n", out)


def test_a_warning_of_the_orientation(tmp_path):
    write(tmp_path / "x.zarr", data(60, 5))
    fit = ("fit", tmp_path / "x.zarr", "--components", 2, "--transforms", 3)
    (note,) = run(*fit, "--out", tmp_path / "a.zarr").stderr.splitlines()
    assert note.startswith("Warning: ")
    assert "has 60 features and 5 samples, so it may be transposed" in note
    assert "pass --sample-axis 0 if they are rows, or --sample-axis 1" in note
    for axis in (0, 1):
        assert run(*fit, "--sample-axis", axis, "--out", tmp_path / f"b{axis}").stderr == ""


def test_results_are_not_overwritten(store, result):
    before = snapshot(result)
    line = fails("fit", store, "--components", 2, "--out", result)
    assert line == f"Error: {result} exists; pass --overwrite, or choose another path for --out"
    assert snapshot(result) == before
    run("fit", store, "--components", 2, "--out", result, "--overwrite")
    assert SVDResult.load(result).n_components == 2


@pytest.mark.parametrize("what", ["group", "array", "file", "folder"])
def test_what_is_no_result_is_never_overwritten(tmp_path, what):
    group = zarr.create_group(tmp_path / "group.zarr")
    group.create_array("x", data=data())
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    out = {"group": "group.zarr", "array": "group.zarr/x"}.get(what, what)
    before = snapshot(tmp_path)
    line = fails(
        "fit", tmp_path / "group.zarr/x", "--components", 2, "--out", tmp_path / out, "--overwrite"
    )
    assert line.endswith("is not a result of streamsvd and is not overwritten")
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("out", ["result.zarr", "file", "file/below"])
def test_out_is_checked_before_any_work(tmp_path, store, result, monkeypatch, out):
    monkeypatch.setattr(streamsvd, "sparse_svd", lambda *_, **__: pytest.fail("has begun"))
    (tmp_path / "file").write_text("mine")
    assert fails("fit", store, "--components", 2, "--out", tmp_path / out).startswith("Error: ")


def test_folder_of_out_is_made(tmp_path, store):
    out = tmp_path / "new" / "deep" / "r.zarr"
    run("fit", store, "--components", 1, "--transforms", 2, "--out", out)
    assert SVDResult.load(out).n_components == 1


# -------------------------------------------------------------------- the options of the API


def cli_options(command):
    return {
        param.name: param
        for param in main.commands[command].params
        if isinstance(param, click.Option)
    }


READING = ("sample_axis", "missing_chunks", "decode")
"""Of how data are read after a fit, what the commands take."""

MINIMAL = {
    "fit": "x --components 1 --out r",
    "pca": "x --components 1 --out r",
    "transform": "r x --out s",
    "accuracy": "r x",
    "certificate": "r x",
    "plot": "r --out p.png",
    "cv": "x --components 1 --max-fill 0.1",
    "convert": "x.npy x.zarr",
}


@pytest.mark.parametrize(
    ("command", "function", "not_in_cli", "only_in_cli"),
    [
        (
            "fit",
            sparse_svd,
            {"X", "client", "storage_options"},
            {"out", "overwrite", "scheduler"},
        ),
        (
            "pca",
            sparse_pca,
            {"X", "client", "storage_options", "n_transforms", "fill_penalty", "pivot", "tol"},
            {"out", "overwrite", "scheduler"},
        ),
        ("transform", SVDResult.transform, {"self", "X", "client"}, {"scheduler"}),
        ("accuracy", SVDResult.accuracy, {"self", "X", "client"}, {"scheduler"}),
        ("certificate", SVDResult.certificate, {"self", "X", "client"}, {"scheduler"}),
        ("plot", SVDResult.plot, {"self", "feature_names", "labels"}, {"out", "overwrite"}),
        (
            "cv",
            sparse_pca_cv,
            {"X", "center", "storage_options"},
            {"out", "plot", "overwrite"},
        ),
        ("convert", convert, {"source", "out"}, set()),
    ],
)
def test_every_option_of_the_api_with_its_default(command, function, not_in_cli, only_in_cli):
    ours = cli_options(command)
    theirs = dict(inspect.signature(function).parameters)
    if theirs.pop("reading", None):
        theirs |= {name: inspect.signature(options.Ask).parameters[name] for name in READING}
    assert ours.keys() - only_in_cli == theirs.keys() - not_in_cli
    values = main.commands[command].make_context(command, MINIMAL[command].split()).params
    required = {name for name in ours if ours[name].required}
    for name in ours.keys() - only_in_cli - required - {"out"}:
        assert values[name] == theirs[name].default, name


@pytest.mark.parametrize("command", main.commands)
def test_help_names_every_option_and_default(command):
    assert "Usage: " in run(command, "--help").stdout
    for name, option in cli_options(command).items():
        assert option.help, name
        flag, text = option.get_help_record(
            click.Context(main.commands[command], show_default=True)
        )
        assert flag.startswith(option.opts[0])
        assert option.is_flag or name == "key" or "[default: " in text or "[required]" in text


def test_choices_are_those_of_the_api():
    fit = cli_options("fit")
    assert tuple(cli_options("plot")["kind"].type.choices) == KINDS
    for one in dataclasses.fields(options.Options):
        if one.name in fit and isinstance(fit[one.name].type, click.Choice):
            values = [str(value) for value in one.metadata["rule"].values if value is not None]
            values = [value for value in values if value != "variables"]  # a path is of one
            assert list(fit[one.name].type.choices) == values


@pytest.mark.parametrize(("flag", "progress"), [((), None), (("--quiet",), False)])
def test_quiet(store, monkeypatch, flag, progress):
    calls = []
    monkeypatch.setattr(
        streamsvd, "sparse_svd", lambda *_, **kwargs: calls.append(kwargs) or sys.exit(7)
    )
    run("fit", store, "--components", 1, "--out", store.parent / "r.zarr", *flag, code=7)
    assert calls[0]["progress"] is progress


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        (("--no-center", "--no-refine"), {"center": None, "refine": False}),
        (("--center", "--refine"), {}),
    ],
)
def test_pca_is_that_of_the_api(tmp_path, store, args, kwargs):
    run("pca", store, "--components", 2, *args, "--threads", 1, "--out", tmp_path / "r.zarr")
    same(SVDResult.load(tmp_path / "r.zarr"), sparse_pca(store, 2, n_threads=1, **kwargs))


# -------------------------------------------------------------------------- cross-validation


def test_cv_is_that_of_the_api(tmp_path, store):
    (tmp_path / "groups.txt").write_text("".join(f"g{k // 5:02}\n" for k in range(60)) + "\n")
    args = ("--components", "1,2", "--max-fill", "0.1,0.25", "--folds", 4, "--half-samples", 2)
    args += ("--groups", tmp_path / "groups.txt", "--random-state", 3, "--threads", 1)
    out = ("--out", tmp_path / "new" / "r.zarr", "--plot", tmp_path / "pictures" / "p.png")
    shown = run("cv", store, *args, *out, "--quiet").stdout
    expected = sparse_pca_cv(
        store, [1, 2], max_fill=[0.1, 0.25], folds=4, half_samples=2, random_state=3,
        groups=np.arange(60) // 5,
    )  # fmt: skip
    lines = repr(expected).splitlines()
    start = lines.index("")
    assert "\n".join(lines[start:]) in shown
    assert lines[3] in shown.splitlines()
    fitted = SVDResult.load(tmp_path / "new" / "r.zarr")
    same(fitted, expected.result)
    np.testing.assert_array_equal(fitted.stability.toarray(), expected.result.stability.toarray())
    assert imread(tmp_path / "pictures" / "p.png").std() > 0.01
    assert shown.splitlines()[-1] == f"  saved               {tmp_path}/new/r.zarr"


def test_cv_refuses_before_it_reads(tmp_path, store, result, monkeypatch):
    grid = ("--components", "1,2", "--max-fill", "0.1")
    line = fails("cv", store, "--components", "1,13", "--max-fill", "0.1")
    assert line.startswith("Error: --components 13 exceeds min(n_features, n_samples)=12")
    assert fails("cv", store, *grid, "--folds", 1).startswith("Error: folds must be an integer")
    (tmp_path / "few.txt").write_text("a\nb\n")
    line = fails("cv", store, *grid, "--groups", tmp_path / "few.txt")
    assert "need a label for each of 60 samples" in line
    monkeypatch.setattr(streamsvd, "sparse_pca_cv", lambda *_, **__: pytest.fail("has begun"))
    assert "pass --overwrite" in fails("cv", store, *grid, "--out", result)
    (tmp_path / "p.png").write_text("mine")
    assert "exists" in fails("cv", store, *grid, "--plot", tmp_path / "p.png")
    assert "must end in .png" in fails("cv", store, *grid, "--plot", tmp_path / "p.xyz")
    assert "No such file" in fails("cv", store, *grid, "--groups", tmp_path / "none.txt")
    wrong = run("cv", store, "--components", "1,x", "--max-fill", "0.1", code=2).stderr
    assert "'1,x' is not a list of numbers such as 2,3,5" in wrong


# ------------------------------------------------------------- info, transform and accuracy


def test_info(result):
    fitted = SVDResult.load(result)
    out = run("info", result).stdout
    assert "12 features x 60 samples" in out
    assert re.search(r"^center +features$", out, re.MULTILINE)
    assert re.search(r"^selection +nuclear$", out, re.MULTILINE)
    ratios = fitted.explained_variance_ratio
    for k in range(3):
        cells = [
            str(k),
            f"{fitted.singular_values[k]:.6g}",
            str(fitted.components[[k]].nnz),
            f"{ratios[k]:.2%}",
            f"{ratios[: k + 1].sum():.2%}",
        ]
        assert cells in [line.split() for line in out.splitlines()]
    history = fitted.history
    for k in (1, 2, 4, 8, 16, 20):
        cells = [str(k), f"{history.trace[k - 1]:.6g}", f"{history.fill[k - 1]:.2%}"]
        assert cells in [line.split() for line in out.splitlines()]


def test_info_of_reduced_and_refined_results(tmp_path, store):
    sparse_svd(store, 3, n_transforms=20, reduction="gram", refine=True).save(tmp_path / "r.zarr")
    fitted = SVDResult.load(tmp_path / "r.zarr")
    out = run("info", tmp_path / "r.zarr").stdout
    assert f"{fitted.explained_variance_ratio.sum():.2%}\n" in out
    assert re.search(r"^reduction +gram$", out, re.MULTILINE)
    out = run("accuracy", tmp_path / "r.zarr", store).stdout
    assert re.search(r"^accuracy +not known$", out, re.MULTILINE)


def test_info_of_results_along_the_path(tmp_path, result):
    fitted = SVDResult.load(result)
    for k in (0, 1, 5):
        fitted.at(k).save(tmp_path / f"{k}.zarr")
        out = run("info", tmp_path / f"{k}.zarr").stdout
        assert re.search(rf"^transforms +{k};", out, re.MULTILINE)
        assert re.search(r"^explained variance +-$", out, re.MULTILINE)


def about(*args):
    """What `info` says of data, by name."""
    lines = run("info", *args).stdout.splitlines()
    return dict(re.split(r"  +", line, maxsplit=1) for line in lines)


def test_info_of_data(tmp_path, store):
    X = data()
    assert about(store) == {
        "data": str(store),
        "kind": "Zarr",
        "numbers": "12 x 60, float64, 5.62 kiB",
        "samples": "60, the columns",
        "features": "12, the rows",
        "missing": "none",
        "go on with": f"streamsvd pca {store} --components 5 --out result.zarr",
    }
    X[:2, 3] = np.nan
    np.save(tmp_path / "my x.npy", X[:, :4].T.astype("f4"))
    found = about(tmp_path / "my x.npy", "--sample-axis", 0)
    assert found["kind"] == "array of NumPy"
    assert (found["numbers"], found["samples"]) == ("4 x 12, float32, 192 B", "4, the rows")
    assert found["missing"] == "2, 4.17%: fit with --missing mean"
    path = tmp_path / "my x.npy"
    assert f"pca '{path}' --sample-axis 0 --components 4 --out" in found["go on with"]


def test_info_reads_the_first_samples(store, monkeypatch):
    monkeypatch.setattr("streamsvd.cli.about.LOOKED_AT", 12 * 20)
    (store / "c" / "0" / "3").write_bytes(b"damaged")
    assert about(store)["missing"] == "none in the first 20 samples"


def test_info_of_data_with_names(tmp_path):
    anndata, h5py = pytest.importorskip("anndata"), pytest.importorskip("h5py")
    cells = anndata.AnnData(csr_matrix(np.eye(9, 7)))
    cells.var_names = [f"gene{k}" for k in range(7)]
    cells.write_h5ad(tmp_path / "cells.h5ad")
    found = about(tmp_path / "cells.h5ad")
    assert (found["kind"], found["samples"]) == ("AnnData in HDF5, sparse", "9, the rows")
    assert (
        found["features"] == "7, the columns (var): gene0, gene1, gene2, gene3, gene4, gene5, ..."
    )
    with h5py.File(tmp_path / "h.h5", "w") as file:
        for name in ("a", "b"):
            file[name] = (100 * data(3, 4)).astype("i2")
            file[name].attrs["scale_factor"] = 0.01
    assert about(tmp_path / "h.h5/a")["numbers"] == "3 x 4, float64, packed as int16, 96 B"
    assert "name what is in it: a, b" in fails("info", tmp_path / "h.h5")
    cube = zarr.create_array(
        tmp_path / "cube.zarr", data=np.ones((5, 2, 3)), dimension_names=("time", "lat", "lon")
    )
    assert "has the dimensions 'time', 'lat', 'lon'" in fails("info", tmp_path / "cube.zarr")
    found = about(tmp_path / "cube.zarr", "--sample-dim", "time")
    assert found["features"] == "6, the columns (lat: 2, lon: 3)"
    assert "--sample-dim time" in found["go on with"]
    assert cube.shape == (5, 2, 3)


def test_info_of_what_is_to_be_converted(tmp_path):
    text = "".join(f"{row}\n" for row in ("cell,a,b", "x,1,2", "y,3,4"))
    (tmp_path / "x.csv").write_text("\n" + text)
    (tmp_path / "y.csv.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("x.csv", "y.csv.gz"):
        found = about(tmp_path / name)
        assert (found["kind"], found["first line"]) == ("table of text", "3 fields: cell, a, b")
        assert found["go on with"] == f"streamsvd convert {tmp_path}/{name} {name[0]}.zarr"
    np.savez(tmp_path / "x.npz", a=data(), b=data())
    savemat(tmp_path / "x.mat", {"m": data()})
    assert about(tmp_path / "x.npz")["holds"] == "a, b"
    assert about(tmp_path / "x.mat")["holds"] == "m (12, 60)"
    (tmp_path / "x.npz").write_text("no such thing")
    assert "x.npz cannot be read: " in fails("info", tmp_path / "x.npz")


@pytest.mark.parametrize(("axis", "args"), [(1, ()), (0, ("--sample-axis", "0"))])
def test_transform(tmp_path, result, axis, args):
    X = data(n_samples=31)
    write(tmp_path / "new.zarr", X if axis else X.T.copy(), (4, 4))
    out = run("transform", result, tmp_path / "new.zarr", "--out", tmp_path / "s.zarr", *args)
    expected = SVDResult.load(result).transform(X)
    scores = zarr.open_array(tmp_path / "s.zarr", mode="r")
    np.testing.assert_array_equal(scores[...], expected if axis else expected.T)
    shape = "3 x 31" if axis else "31 x 3"
    assert out.stdout == f"saved {tmp_path}/s.zarr: {shape}, float64\n"


def test_transform_refuses_an_existing_path(tmp_path, store, result):
    before = snapshot(tmp_path)
    assert "exists" in fails("transform", result, store, "--out", store)
    assert snapshot(tmp_path) == before


def test_accuracy(store, result):
    measured = SVDResult.load(result).accuracy(store)
    lines = run("accuracy", result, store).stdout.splitlines()
    found = dict(re.split(r"  +", line, maxsplit=1) for line in lines)
    assert found == {
        "accuracy": f"{measured.accuracy:.6g}",
        "captured variance": f"{measured.captured_variance:.6g}",
        "captured by component": " ".join(
            f"{share:.6g}" for share in measured.captured_by_component.tolist()
        ),
        "captured of best": f"{measured.captured_of_best:.6g}",
        "orthogonality error": f"{measured.orthogonality_error:.6g}",
        "true singular values": " ".join(f"{s:.6g}" for s in measured.true_singular_values),
    }


def test_certificate(tmp_path, store):
    saved = tmp_path / "r.zarr"
    run("pca", store, "--components", 2, "--max-nonzeros", 6, "--out", saved)
    loaded = SVDResult.load(saved)
    for effort in ("low", "high"):
        expected = loaded.certificate(store, effort=effort)
        assert run("certificate", saved, store, "--effort", effort).stdout == f"{expected}\n"
    asked = ("--components", 2, "--max-nonzeros", 6, "--effort", "high")
    run("pca", store, *asked, "--out", tmp_path / "h")
    proven = SVDResult.load(tmp_path / "h").certified
    assert run("certificate", tmp_path / "h", store).stdout == f"{proven}\n"
    assert f"at most             {proven.bound:.2%}" in run("info", tmp_path / "h").stdout


def test_accuracy_without_the_singular_values(store, result):
    out = run("accuracy", result, store, "--gram-limit", "1kB").stdout
    assert re.search(r"true singular values +not known\n", out)
    assert re.search(r"captured variance +0\.", out)


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--image-shape", 3, 4),
        ("--kind", "loadings"),
        ("--kind", "scree"),
        ("--kind", "variance", "--source", "{x}"),
        ("--kind", "accuracy", "--source", "{x}"),
        ("--kind", "scores", "--source", "{x}", "--pair", 2, 0),
    ],
)
def test_plot(tmp_path, store, result, args):
    out = tmp_path / "new" / "picture.PNG"
    args = [str(arg).format(x=store) for arg in args]
    assert run("plot", result, "--out", out, "--quiet", *args).stdout == f"saved {out}\n"
    assert imread(out).std() > 0.01
    before = out.read_bytes()
    assert "exists and is not overwritten" in fails("plot", result, "--out", out, *args)
    assert out.read_bytes() == before
    out.write_text("")
    run("plot", result, "--out", out, "--overwrite", *args)
    assert out.stat().st_size > 1000


def test_missing_chunks(tmp_path, store, result):
    (store / "c" / "0" / "1").unlink()
    for args in (
        ("fit", store, "--components", 2, "--transforms", 3, "--out", tmp_path / "r.zarr"),
        ("transform", result, store, "--out", tmp_path / "s.zarr"),
        ("accuracy", result, store),
    ):
        assert "pass --missing-chunks fill if they were left out on purpose" in fails(*args)
        run(*args, "--missing-chunks", "fill")


# ----------------------------------------------------------------------------------- convert


def test_convert_and_fit(tmp_path):
    X = data()
    np.savez(tmp_path / "x.npz", a=X.T, b=X)
    out = run(
        "convert", tmp_path / "x.npz", tmp_path / "x.zarr", "--key", "a", "--dtype", "float32",
        "--chunk-bytes", "1kB",
    ).stdout  # fmt: skip
    assert f"saved {tmp_path}/x.zarr: 60 x 12, float32, in chunks of 20 x 12\n" in out
    assert "samples are on axis 0 (the longer one)\n" in out
    (line,) = (line for line in out.splitlines() if line.startswith("Go on with: streamsvd pca "))
    run(*line.split()[4:-1], tmp_path / "r.zarr", "--threads", 1)
    expected = sparse_pca(X.T.astype("float32"), 5, sample_axis=0, n_threads=1)
    same(SVDResult.load(tmp_path / "r.zarr"), expected)


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ("1,2,3\n4,5,6\n", ()),
        ("1\t2\t3\n4\t5\t6\n", ("--delimiter", r"\t")),
        ("1;2;3\n4;5;6\n", ("--delimiter", ";")),
        ("7,8\n1,2,3\n4,5,6\n", ("--skip-lines", "1")),
    ],
)
def test_convert_text(tmp_path, text, args):
    (tmp_path / "x.csv").write_text(text)
    out = run("convert", tmp_path / "x.csv", tmp_path / "x.zarr", "--sample-axis", 1, *args).stdout
    assert "samples are on axis 1\n" in out
    assert zarr.open_array(tmp_path / "x.zarr", mode="r")[...].tolist() == [[1, 2, 3], [4, 5, 6]]


def test_convert_errors(tmp_path):
    np.savez(tmp_path / "x.npz", a=data(), b=data())
    (tmp_path / "x.csv").write_text("1,2\nx,3\n")
    line = fails("convert", tmp_path / "x.npz", tmp_path / "x.zarr")
    assert line.endswith("x.npz holds 2 matrices; pass --key with one of: a, b")
    line = fails("convert", tmp_path / "x.csv", tmp_path / "x.zarr")
    assert "x.csv, line 2: 'x' is not a number" in line
    assert "--skip-lines" in line
    (tmp_path / "out").write_text("mine")
    assert "exists" in fails("convert", tmp_path / "x.npz", tmp_path / "out", "--key", "a")
    assert (tmp_path / "out").read_text() == "mine"


# ------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("fit {x} --components 0 --out {new}", "--components must be an integer of at least 1"),
        ("fit {x} --components 13 --out {new}", "--components 13 exceeds min(n_features"),
        ("fit {x} --components 2 --transforms -1 --out {new}", "--transforms must be an integer"),
        ("fit {x} --components 2 --threads 0 --out {new}", "--threads must be an integer"),
        ("fit {x} --components 2 --memory-limit x --out {new}", "--memory-limit must be a number"),
        ("fit {x} --components 2 --tol -1 --out {new}", "tol must be a number of at least 0"),
        ("fit {x} --components 2 --random-state -1 --out {new}", "--random-state must be an int"),
        ("fit {x} --components 2 --workspace {x} --out {new}", "workspace"),
        ("fit {x} --components 2 --resume --out {new}", "--resume needs the --workspace of"),
        ("fit {absent} --components 2 --out {new}", "no Zarr array at {absent}: no such path"),
        ("fit {file} --components 2 --out {new}", "is a file of no kind that is read"),
        ("fit {r} --components 2 --out {new}", "is a Zarr group; name one of its arrays: "),
        ("info {absent}", "no Zarr group at {absent}"),
        ("info {r} --sample-axis 0", "{r} is a result, not data: leave out --sample-axis"),
        ("info {file}", "{file}"),
        ("transform {absent} {x} --out {new}", "no Zarr group at {absent}"),
        ("transform {r} {absent} --out {new}", "no Zarr array at {absent}"),
        (
            "transform {r} {x} --sample-axis 0 --out {new}",
            "has 60 features, the fit had 12; pass --sample-axis 1 if samples are on the other",
        ),
        ("accuracy {r} {absent}", "no Zarr array at {absent}"),
        ("accuracy {r} {x} --gram-limit x", "--gram-limit must be a number of bytes"),
        ("plot {r} --out {new}.xyz", "{new}.xyz must end in .png or another of: "),
        ("plot {r} --out {new}.png --image-shape 3 3", "--image-shape must be rows and columns"),
        ("plot {r} --out {new}.png --kind accuracy", "pass --source ..., the data of the fit"),
        ("plot {r} --out {new}.png --kind scores --pair 0 3", "pair must be two"),
        ("plot {absent} --out {new}.png", "no Zarr group at {absent}"),
        ("convert {absent} {new}", "cannot convert {absent}"),
        ("convert {x} {new}", "cannot convert {x}"),
        ("demo --out {file}", "{file}"),
    ],
)
def test_errors_take_one_line(tmp_path, store, result, args, message):
    paths = {
        "x": store,
        "r": result,
        "new": tmp_path / "new",
        "absent": tmp_path / "absent",
        "file": tmp_path / "file",
    }
    paths["file"].write_text("mine")
    line = fails(*args.format(**paths).split())
    assert line.startswith("Error: ")
    assert message.format(**paths) in line
    assert not paths["new"].exists()
    assert paths["file"].read_text() == "mine"


@pytest.mark.parametrize(
    "args",
    [
        "fit",
        "fit x --out r",
        "fit x --components 2",
        "fit x --components two --out r",
        "fit x --components 2 --out r --center rows",
        "fit x --components 2 --out r --sample-axis 2",
        "fit x --components 2 --out r --dtype int8",
        "fit x --components 2 --out r --no-such-option",
        "transform r x",
        "convert x.npy",
        "info",
        "nonsense",
    ],
)
def test_usage_errors(args):
    result = run(*args.split(), code=2)
    assert "Usage: " in result.stderr
    assert "Error: " in result.stderr


@pytest.mark.parametrize(
    ("raised", "line"),
    [
        (MemoryError(), "Error: out of memory"),
        (MemoryError("Unable to allocate 3 TiB"), "Error: Unable to allocate 3 TiB"),
        (OSError(28, "No space left on device"), "Error: [Errno 28] No space left on device"),
        (streamsvd.ResourceError("two\nlines"), "Error: two lines"),
    ],
)
def test_failures_on_the_way(tmp_path, store, monkeypatch, raised, line):
    def fail(*_, **__):
        raise raised

    monkeypatch.setattr(streamsvd, "sparse_svd", fail)
    assert fails("fit", store, "--components", 1, "--out", tmp_path / "r.zarr") == line


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("n_components=5 exceeds 4", "--components 5 exceeds 4"),
        ('pass missing_chunks="fill" if', "pass --missing-chunks fill if"),
        ("pass resume=True to go on", "pass --resume to go on"),
        ("or pass workspace= on another disk", "or pass --workspace on another disk"),
        ("memory_limit is 1 MiB; sample_axis too", "--memory-limit is 1 MiB; --sample-axis too"),
        ("the key of the workspace, /tmp/tol=1/out", "the key of the workspace, /tmp/tol=1/out"),
        ("min(n_features, n_samples)=4", "min(n_features, n_samples)=4"),
        ("attribute missing_value=2 is", "attribute missing_value=2 is"),
        ('pass missing="mean", or', "pass --missing mean, or"),
        ("refine=False leaves, refine=True", "--no-refine leaves, --refine"),
    ],
)
def test_messages_speak_of_the_options_here(message, expected):
    assert in_our_words(message) == expected


# --------------------------------------------------------------------------- real processes


def test_interrupt_is_one_line(tmp_path, store, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(streamsvd, "sparse_svd", interrupt)
    fit = ("fit", store, "--components", 1, "--out", tmp_path / "r.zarr")
    assert fails(*fit, code=130) == "Interrupted."


def test_interrupted_fit_tells_how_to_go_on(tmp_path, store):
    fit = (
        "fit", store, "--components", 2, "--selection", "random", "--random-state", 1, "--quiet",
    )  # fmt: skip
    run(*fit, "--transforms", 5, "--out", tmp_path / "warm.zarr")  # compiled from here on
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    line = fails(
        *fit, "--transforms", 2_000_000, "--workspace", tmp_path / "work",
        "--out", tmp_path / "r.zarr", code=130,
    )  # fmt: skip
    timer.join()
    assert re.match(r"stopped after \d+ of 2000000 transforms; go on with .* --resume", line)
    assert not (tmp_path / "r.zarr").exists()


@pytest.mark.slow
def test_ctrl_c_in_a_process(tmp_path, store):
    command = [
        sys.executable, "-m", "streamsvd.cli.commands", "fit", store, "--components", "1",
        "--workspace", tmp_path / "work", "--transforms", "3000000", "--selection", "random",
        "--random-state", "1", "--out", tmp_path / "r.zarr",
    ]  # fmt: skip
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        log, began = tmp_path / "work" / "log", time.monotonic()
        while not (log.exists() and log.stat().st_size):  # now it makes transforms
            assert process.poll() is None
            assert time.monotonic() - began < 120
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, "")
    assert re.fullmatch(r"stopped after \d+ of 3000000 transforms; go on .* --resume .*\n", err)
    assert not (tmp_path / "r.zarr").exists()


def test_in_a_process(tmp_path, result):
    done = subprocess_run("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"streamsvd, version {streamsvd.__version__}\n"
    done = subprocess_run("info", result)
    assert (done.returncode, done.stdout, done.stderr) == (0, run("info", result).stdout, "")
    done = subprocess_run("info", tmp_path / "absent")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"Error: no Zarr group at {tmp_path}/absent\n"


def test_output_into_a_closed_pipe(result):
    command = f"{sys.executable} -m streamsvd.cli.commands info {result} | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help(flag):
    out = run(flag).stdout
    for command in ("fit", "info", "transform", "accuracy", "plot", "convert", "demo"):
        assert re.search(rf"^  {command} ", out, re.MULTILINE)


def test_help_says_what_data_may_be():
    for name, command in main.commands.items():
        reads = any(param.name in ("source", "what") for param in command.params)
        is_said = "SOURCE is one of:\n" in run(name, "--help").stdout
        assert is_said == (reads and name != "convert"), name


def test_completion():
    """The lines of the help are those that click answers to; commands, options, files."""
    out = run("--help").stdout
    for shell in ("bash", "zsh", "fish"):
        assert f"_STREAMSVD_COMPLETE={shell}_source streamsvd" in out
        variable, complete = "_STREAMSVD_COMPLETE", get_completion_class(shell)
        asked = complete(main, {}, "streamsvd", variable)
        assert f"{variable}={shell}_complete" in asked.source_template % asked.source_vars()
        assert [one.value for one in asked.get_completions([], "acc")] == ["accuracy"]
        found = asked.get_completions(["pca", "x.zarr"], "--no-")
        assert {one.value for one in found} == {"--no-center", "--no-refine", "--no-decode"}
        assert [one.type for one in asked.get_completions(["pca"], "x")] == ["file"]


# -------------------------------------------------------------------------------------- demo


@pytest.fixture(scope="module")
def demo_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    return folder, run("demo", "--out", folder, "--quiet").stdout


def test_demo_says_what_was_measured(demo_run):
    folder, out = demo_run
    X = load_digits().data.T
    array = zarr.open_array(folder / "digits.zarr", mode="r")
    np.testing.assert_array_equal(array[...], X)
    assert array.nchunks == 4
    fitted = SVDResult.load(folder / "result.zarr")
    captured = fitted.explained_variance_ratio.sum()
    best = PCA(fitted.n_components).fit(X.T).explained_variance_ratio_.sum()
    assert re.search(rf"captured by the sparse components +{captured:.1%}\n", out)
    assert re.search(rf"by the first 8 of PCA, .* +{best:.1%}\n", out)
    assert re.search(rf"share of what PCA captures +{captured / best:.1%}\n", out)
    assert re.search(rf"exactly zero +{1 - fitted.fill:.1%}\n", out)
    assert captured / best > 0.95
    assert fitted.fill <= 0.25
    for line in run("info", folder / "result.zarr").stdout.splitlines():
        assert line in out or not re.match(r" +\d+ +[\d.]+ +\d+ ", line)  # the same table


def test_demo_says_what_to_do_next(demo_run):
    """Each line runs as it stands; the last ones with data of one's own."""
    folder, out = demo_run
    lines = [line.strip() for line in out.partition("Next, ")[2].splitlines()]
    commands = [shlex.split(line) for line in lines if line.startswith("streamsvd ")]
    assert [words[1] for words in commands] == ["info", "plot", "pca"]
    mine = {"YOURS.h5ad": folder / "digits.zarr", "yours.zarr": folder / "yours.zarr"}
    for words in commands:
        run(*(mine.get(word, word) for word in words[1:]))
    assert (folder / "parts.png").stat().st_size > 1000
    X = load_digits().data.T
    named = {"streamsvd": streamsvd, "X": X}
    exec(lines[-1], named)
    same(named["result"], SVDResult.load(folder / "yours.zarr"))


def test_demo_fits_on_the_terminal(demo_run):
    folder, out = demo_run
    lines = out.splitlines()
    assert max(len(line) for line in lines if str(folder) not in line) <= 80
    assert sum("█" in line for line in lines) > 10


def test_demo_leaves_nothing_and_works_in_ascii(temporary):
    out = run("demo", "--quiet", charset="ascii").stdout
    assert os.listdir(temporary) == []
    assert out.isascii()
    assert "@@" in out
    assert "\n  streamsvd demo --out digits\n" in out


def test_demo_refuses_a_folder_with_another_demo(demo_run):
    folder, _ = demo_run
    before = snapshot(folder)
    result = run("demo", "--out", folder, code=1)
    assert re.match(r"Error: .*digits\.zarr exists", result.stderr)
    assert snapshot(folder) == before


@pytest.mark.parametrize(
    ("encoding", "marks"),
    [
        ("utf-8", BLOCKS),
        ("UTF-16", BLOCKS),
        ("ascii", ASCII),
        ("latin-1", ASCII),
        ("cp437", ASCII),
        ("no-such", ASCII),
        (None, ASCII),
    ],
)
def test_marks_are_those_the_encoding_has(encoding, marks):
    assert marks_for(encoding) is marks


def test_picture():
    row = np.array([[0.0, 4.0, 1.0, -1e-9, -4.0, 2.0, -2.0, 0.0, 3.9]])
    assert list(pictures(row, 3, ASCII)) == [" .@@ +", " -%%++", "-- .@@", ""]
    many = list(pictures(np.repeat(row, 5, axis=0), 3, BLOCKS))
    assert len(many) == 8
    assert many[0] == "   ".join([" ·██░░"] * 4)
    assert many[4] == " ·██░░"


def test_table():
    assert table(("a", "long"), [("123", "4"), ("5", "6")]) == [
        "  a  long",
        "123     4",
        "  5     6",
    ]
