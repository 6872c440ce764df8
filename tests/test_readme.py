"""The README's code runs as it stands, and its shell commands exist."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from streamsvd.cli.commands import main

README = Path(__file__).parents[1] / "README.md"
PYTHON = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.S)
SHELL = re.findall(r"^    (streamsvd .*)$", README.read_text(), flags=re.M)


def test_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks but the first, which names data of the reader's own, in order."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in PYTHON[1:]:
        exec(block, names)
    assert {"result", "again", "more"} <= names.keys()
    assert (tmp_path / "result.zarr").is_dir()
    assert len(PYTHON) == 8


@pytest.mark.parametrize("line", SHELL)
def test_shell_options_exist(line: str) -> None:
    words = shlex.split(line)[1:]
    shown = CliRunner().invoke(main, [words[0], "--help"])
    assert shown.exit_code == 0
    for word in words:
        if word.startswith("--"):
            assert word in shown.output


def test_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands in order, on a table of the size that they suit."""

    monkeypatch.chdir(tmp_path)
    np.save("table.npy", np.random.default_rng(0).standard_normal((40, 400)))
    for line in SHELL:
        done = CliRunner().invoke(main, shlex.split(line)[1:])
        assert done.exit_code == 0, done.output
    assert (tmp_path / "scores.zarr").is_dir()
