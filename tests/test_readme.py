"""Every page is executed as it stands: its Python and its shell lines in order, in one folder.

A page is read as a user reads it. Python blocks share their names, shell blocks (``sh``) the
folder; lines of `streamsvd` run in this process. What installs or tests the package is left to
`.ci/run`. Excerpts of recipes (in sections of the gallery that link to one) are statements of that
recipe, which `test_examples.py` runs, and so are the calls in the table of fields. Of commands that
need data or hours, the script and its options exist.
"""

import ast
import re
import shlex
import textwrap
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from streamsvd.cli.commands import main

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "examples/README.md",
    "examples/ideas.md",
    "examples/data.md",
    "examples/larger.md",
    "examples/benchmarks/README.md",
    "examples/paper/README.md",
]
RECIPE = re.compile(r"^\[`(\w+\.py)`\]\(\1\)", re.M)
MOST_BYTES = 600_000
"""Of all pictures together."""


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def blocks(text: str) -> list[tuple[str, str]]:
    """Language and content of each fenced block."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S)


def sections(page: str) -> Iterator[tuple[str | None, str]]:
    """The parts of a page by its headings, and the recipe that each is about."""
    for part in re.split(r"^(?=##? )", text_of(page), flags=re.M):
        found = RECIPE.search(part)
        yield (found[1] if found and page == "examples/README.md" else None), part


# ------------------------------------------------------------------------------------ commands


def run_line(line: str) -> None:
    """One line of a shell block."""
    for command in line.partition("#")[0].split(" && "):
        words = shlex.split(command)
        if words[:1] == ["streamsvd"]:
            done = CliRunner().invoke(main, words[1:])
            assert done.exit_code == 0, f"{command}\n{done.output}"
        elif words[:2] == ["pip", "install"]:
            check_extras(command)
        elif ".py" in command:
            check_script(words)
        elif words:  # an environment, tests, lint and types: as CI makes them
            assert words[0] in ("git", "cd", ".", ".ci/run") or command.strip() in CI, command


CI = text_of(".ci/run").replace('"$1" -m venv "$scratch/$2"', "python -m venv .venv")


def check_extras(command: str) -> None:
    """What is to be installed beside the package is known to it."""
    extras = tomllib.loads(text_of("pyproject.toml"))["project"]["optional-dependencies"]
    assert set(re.findall(r"[.\w]\[(\w+)\]", command)) <= extras.keys()


def check_script(words: list[str]) -> None:
    """The script is there, and has the options."""
    script = next(word for word in words if word.endswith(".py"))
    source = text_of(script)
    for option in words[words.index(script) :]:
        assert not option.startswith("--") or f'"{option}"' in source, f"{script}: no {option}"


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_the_text_exist(page: str) -> None:
    flat = re.sub(r"\s+", " ", re.sub(r"^```.*?^```$", "", text_of(page), flags=re.M | re.S))
    for command in re.findall(r"`((?:prlimit \S+ )?python (?:-W error )?\S+\.py[^`]*)`", flat):
        check_script(shlex.split(command))
    for command in re.findall(r"`(pip install [^`]*)`", flat):
        check_extras(command)


# --------------------------------------------------------------------------------------- blocks


@pytest.mark.parametrize("page", PAGES)
def test_blocks_run_in_order(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": page}
    for recipe, part in sections(page):
        for language, block in blocks(part) if recipe is None else []:
            if language == "python":
                code = compile(block, page, "exec")
                with warnings.catch_warnings():
                    if "scanpy" in block or "xeofs" in block:
                        warnings.simplefilter("ignore")  # they have theirs
                    exec(code, names)
            else:
                assert language == "sh", f"{page} has a block of {language}"
                for line in block.splitlines():
                    run_line(line)
    saved = re.findall(r'savefig\("([^"]+)"\)|--out (\S+)', "".join(
        block for recipe, part in sections(page) if recipe is None for _, block in blocks(part)
    ))  # fmt: skip
    for one in saved:
        assert (tmp_path / "".join(one)).exists()


def statements(code: str) -> set[str]:
    """What is done in it, wherever it stands, without regard to layout and comments."""
    return {ast.dump(node) for node in ast.walk(ast.parse(code)) if isinstance(node, ast.stmt)}


def test_excerpts_are_lines_of_their_recipes() -> None:
    seen = set()
    for recipe, part in sections("examples/README.md"):
        if recipe is None:
            continue
        seen.add(recipe)
        done = statements((EXAMPLES / recipe).read_text())
        for _, block in blocks(part):
            for node in ast.parse(textwrap.dedent(block)).body:
                assert ast.dump(node) in done, f"{recipe} has no {ast.unparse(node)}"
    assert seen == {path.name for path in EXAMPLES.glob("*.py")} - {"datasets.py"}


def test_lines_of_the_table_of_fields_are_those_of_recipes() -> None:
    row = r"^\| [\w ]+ \| `(streamsvd\.\w+\(.*?\))` \| \[`\w+\.py`\]\((.*?)\)"
    rows = re.findall(row, text_of("README.md"), re.M)
    assert len(rows) == 5
    for line, recipe in rows:
        assert called(ast.parse(line)) <= called(ast.parse(text_of(recipe))), line


def called(code: ast.AST) -> set[tuple[str, ...]]:
    """What is called, with which data and options; numbers of components have names in recipes."""
    return {
        (
            ast.unparse(node.func),
            ast.unparse(node.args[0]),
            *sorted(map(ast.unparse, node.keywords)),
        )
        for node in ast.walk(code)
        if isinstance(node, ast.Call) and node.args and ast.unparse(node.func).startswith("stream")
    }


# --------------------------------------------------------------------------- links and pictures


def anchor(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for _, target in re.findall(r"\[([^\]]*)\]\(([^)\s]+)\)", text_of(page)):
        if target.startswith("http"):
            continue
        name, _, part = target.partition("#")
        there = (ROOT / page).parent / name if name else ROOT / page
        assert there.exists(), f"{page}: {target}"
        if part:
            headings = re.findall(r"^#+ (.*)$", there.read_text(), re.M)
            assert part in map(anchor, headings), f"{page}: {target}"


def test_pictures_are_small_shown_and_made_by_a_command() -> None:
    made = {path.name for path in (EXAMPLES / "pictures").glob("*.png")}
    shown = {
        Path(target).name
        for page in PAGES
        for alt, target in re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", text_of(page))
        if "pictures/" in target
    }
    assert shown == made
    source = text_of("examples/pictures/make.py")
    assert all(f'"{Path(name).stem}"' in source for name in made)
    sizes = [path.stat().st_size for path in (EXAMPLES / "pictures").iterdir() if path.is_file()]
    assert sum(sizes) < MOST_BYTES
