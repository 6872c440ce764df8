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
    "arrays",
    "sizes",
    "progress",
    "options/",
    "problem",
    "plan",
    "system",
    "kernels/",
    "storage/",
    "data/",
    "matrix/",
    "algorithm/",
    "refinement/",
    "passes/",
    "cluster/",
    "result/",
    "fitting/",
    "choosing/",
    "api/",
    "estimators/",
    "__init__",
    "cli/",
]
"""The wings, and the modules beside them: each imports only from those above it."""

DOORS = {
    "numba": {"kernels/"},
    "zarr": {"storage/", "data/"},
    "numcodecs": {"storage/"},
    "distributed": {"cluster/"},
    "matplotlib": {"result/"},
    "sklearn": {"estimators/", "cli/"},
    "click": {"cli/"},
}
"""The only rooms that a package is imported in."""

MODULES = sorted(path.relative_to(FOLDER).as_posix()[:-3] for path in FOLDER.rglob("*.py"))
"""Paths of all modules below the package: ``api``, ``kernels/jit``, ``kernels/__init__``."""


def layer(module: str) -> str:
    """The wing of a module, or itself where it stands beside them."""
    wing, slash, _ = module.partition("/")
    return wing + slash


def tree(module: str) -> ast.Module:
    return ast.parse((FOLDER / f"{module}.py").read_text())


def path_of(dotted: str) -> str:
    """The module that ``streamsvd.a.b`` is, or is defined in."""
    parts = dotted.split(".")[1:]
    while parts:
        path = "/".join(parts)
        for module in (path, f"{path}/__init__"):
            if module in MODULES:
                return module
        parts.pop()
    return "__init__"


def imported(module: str) -> set[str]:
    """Dotted names of all that `module` imports, anywhere in it."""
    names = set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def own(module: str) -> set[str]:
    """The modules of the package that `module` imports."""
    return {path_of(n) for n in imported(module) if n.partition(".")[0] == "streamsvd"} - {module}


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_downwards(module: str) -> None:
    """From wing to wing; `test_no_circles` is for those within one."""
    here = layer(module)
    assert here in LAYERS, f"give {module} its place in LAYERS"
    upwards = {m for m in own(module) if LAYERS.index(layer(m)) > LAYERS.index(here)}
    beside = {m for m in own(module) if layer(m) == here and not here.endswith("/")}
    assert not upwards | beside, f"{module} imports from above: {upwards | beside}"


def test_no_circles() -> None:
    """Modules can be put in an order in which each imports only from those before it."""
    waiting = {m: own(m) for m in MODULES}
    while waiting:
        free = {m for m, needs in waiting.items() if not needs & waiting.keys()}
        assert free, f"these import each other: {sorted(waiting)}"
        for m in free:
            del waiting[m]


@pytest.mark.parametrize(("package", "rooms"), DOORS.items())
def test_each_package_has_its_door(package: str, rooms: set[str]) -> None:
    found = {layer(m) for m in MODULES if package in {n.partition(".")[0] for n in imported(m)}}
    assert found <= rooms
    assert found or package == "numcodecs", f"{package} is not imported at all"


def test_the_layers_are_those_that_work() -> None:
    """The rules above see what they are meant to see."""
    assert {layer(m) for m in MODULES} == set(LAYERS)
    assert "kernels/rotations" in own("algorithm/coordinator")
    assert any(name.startswith("numba") for name in imported("kernels/jit"))
    assert {"kernels/jit", "storage/outputs", "plan"} <= set(MODULES)
    beside = [m for m in MODULES if "/" not in m]
    assert len(beside) <= 12


def test_sizes() -> None:
    """Modules and classes that can be read in one sitting."""
    for module in MODULES:
        assert len((FOLDER / f"{module}.py").read_text().splitlines()) <= 450, module
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.ClassDef):
                assert node.end_lineno - node.lineno < 250, f"{module}.{node.name}"


# ------------------------------------------------------------------------------------ importing

PROBE = """
import json, sys
import streamsvd
kernels = {
    name: len(value.signatures)
    for module in list(sys.modules.values())
    if module.__name__.startswith("streamsvd")
    for name, value in vars(module).items()
    if hasattr(value, "py_func")
}
print(json.dumps({"kernels": kernels, "modules": list(sys.modules)}))
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


@pytest.mark.parametrize(
    "package",
    [
        "click",
        "dask.array",
        "distributed",
        "matplotlib",
        "pandas",
        "scipy.ndimage",
        "scipy.optimize",
        "scipy.sparse.csgraph",
        "scipy.stats",
        "sklearn",
    ],
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
    [
        "sparse_svd",
        "sparse_pca_cv",
        "SVDResult.transform",
        "SVDResult.accuracy",
        "SVDResult.plot",
        "SVDResult.at",
    ],
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
    expected += ["reading"] if "reading" in inspect.signature(function).parameters else []
    text = inspect.getdoc(function).replace("**reading", "reading")
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
    name = "/".join(["streamsvd", module]).removesuffix("/__init__").replace("/", ".")
    assert importlib.import_module(name).__doc__
