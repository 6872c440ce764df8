"""How the package is built: layers, what importing costs, what is public."""

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import streamsvd

FOLDER = Path(streamsvd.__file__).parent

LAYERS = [
    "errors",
    "version",
    "options",
    "progress",
    "plan",
    "system",
    "interrupts",
    "jit",
    "kernels",
    "scores",
    "tiles",
    "sweeps",
    "transforms",
    "blocklog",
    "supports",
    "pattern",
    "refine",
    "labels",
    "store",
    "sources",
    "frames",
    "inputs",
    "working",
    "replay",
    "ingest",
    "gram",
    "metrics",
    "partition",
    "coordinator",
    "executor",
    "solver",
    "blocks",
    "assembly",
    "columns",
    "workers",
    "tasks",
    "cluster",
    "checkpoint",
    "solution",
    "saving",
    "summary",
    "canvas",
    "curves",
    "plot",
    "exports",
    "result",
    "fit",
    "api",
    "estimators",
    "convert",
    "demo",
    "__init__",
    "cli",
    "__main__",
]
"""Each module imports only from those above it; some are still to come."""

SOLE_USERS = {"numba": {"jit"}, "zarr": {"store", "sources"}, "numcodecs": {"store"}}
"""Packages that few modules import."""

MODULES = sorted(path.stem for path in FOLDER.glob("*.py"))


def tree(module: str) -> ast.Module:
    return ast.parse((FOLDER / f"{module}.py").read_text())


def imported(module: str) -> set[str]:
    """Dotted names of all modules that `module` imports, anywhere in it."""
    names = set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            if node.module == "streamsvd":
                own = {alias.name for alias in node.names}
                names |= {f"streamsvd.{n}" if n in MODULES else "streamsvd.__init__" for n in own}
            else:
                names.add(node.module)
    return names


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_downwards(module: str) -> None:
    assert module in LAYERS, f"give {module} its place in LAYERS"
    own = {name.partition(".")[2] for name in imported(module) if name.startswith("streamsvd.")}
    upwards = {name for name in own if LAYERS.index(name) >= LAYERS.index(module)}
    assert not upwards, f"{module} imports from above: {upwards}"


@pytest.mark.parametrize(("package", "users"), SOLE_USERS.items())
def test_only_few_modules_import(package: str, users: set[str]) -> None:
    found = {m for m in MODULES if package in {name.partition(".")[0] for name in imported(m)}}
    assert found <= users


def test_the_layers_are_those_that_work() -> None:
    """The two rules above see what they are meant to see."""
    assert "streamsvd.kernels" in imported("coordinator")
    assert "numba" in imported("jit")
    assert "zarr" in imported("store")
    assert {"jit", "store", "api"} <= set(MODULES)


# ------------------------------------------------------------------------------------ importing

PROBE = """
import json, sys, time
before = time.process_time()
import streamsvd
seconds = time.process_time() - before
kernels = {
    name: len(value.signatures)
    for module in list(sys.modules.values())
    if module.__name__.startswith("streamsvd")
    for name, value in vars(module).items()
    if hasattr(value, "signatures")
}
print(json.dumps({"seconds": seconds, "kernels": kernels, "modules": list(sys.modules)}))
"""


@pytest.fixture(scope="module")
def after_import() -> dict[str, Any]:
    """What a new process knows after ``import streamsvd``."""
    command = [sys.executable, "-W", "error", "-c", PROBE]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(run.stdout)


def test_importing_compiles_nothing(after_import: dict[str, Any]) -> None:
    kernels = after_import["kernels"]
    assert {"svd_2x2", "rotate_rows", "add_moments"} <= set(kernels)
    assert set(kernels.values()) == {0}


def test_importing_is_quick(after_import: dict[str, Any]) -> None:
    """Half a second of CPU; a noisy machine is forgiven."""
    assert after_import["seconds"] < 2


@pytest.mark.parametrize(
    "package", ["distributed", "matplotlib", "sklearn", "pandas", "dask.array", "click"]
)
def test_importing_does_not_import(after_import: dict[str, Any], package: str) -> None:
    assert "numba" in after_import["modules"]
    assert package not in after_import["modules"]


# --------------------------------------------------------------------------------------- public


def test_all_names_are_there() -> None:
    assert streamsvd.__all__ == sorted(streamsvd.__all__)
    for name in streamsvd.__all__:
        assert getattr(streamsvd, name) is not None
    assert len(streamsvd.__all__) <= 20


def public(nodes: list[ast.stmt], prefix: str = "") -> list[tuple[str, str | None]]:
    """Names and docstrings of public functions, classes and methods."""
    found = []
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            found.append((prefix + node.name, ast.get_docstring(node)))
            if isinstance(node, ast.ClassDef):
                found += public(node.body, f"{prefix}{node.name}.")
    return found


@pytest.mark.parametrize("module", MODULES)
def test_docstrings(module: str) -> None:
    assert ast.get_docstring(tree(module))
    assert [name for name, text in public(tree(module).body) if not text] == []


@pytest.mark.parametrize(
    "name",
    ["sparse_svd", "SVDResult.transform", "SVDResult.accuracy", "SVDResult.plot", "SVDResult.at"],
)
def test_all_parameters_are_documented(name: str) -> None:
    """In the order of the signature, several names a line where they belong together."""
    function: Any = streamsvd
    for part in name.split("."):
        function = getattr(function, part)
    signature = function.__code__.co_varnames[: function.__code__.co_argcount]
    signature += function.__code__.co_varnames[len(signature) :][
        : function.__code__.co_kwonlyargcount
    ]
    expected = [p for p in signature if p != "self"]
    text = inspect.getdoc(function)
    if len(expected) == 1 and "Parameters\n" not in text:
        assert f"`{expected[0]}`" in text
        return
    section = re.search(r"Parameters\n-+\n(.*?)(?:\n\n\w+\n-+\n|\s*$)", text, re.DOTALL)
    assert section
    lines = re.findall(r"^(\w[\w, ]*?)(?: :.*)?$", section[1], re.MULTILINE)
    documented = [part.strip() for line in lines for part in line.split(",")]
    assert sorted(documented) == sorted(expected)


@pytest.mark.parametrize("module", MODULES)
def test_every_module_can_be_imported(module: str) -> None:
    if module == "__main__":  # would run
        return
    name = "streamsvd" if module == "__init__" else f"streamsvd.{module}"
    assert importlib.import_module(name).__doc__
