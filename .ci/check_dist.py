"""What is in a built wheel and sdist: all of the package, its texts, and nothing else.

    python .ci/check_dist.py FOLDER

FOLDER has one of each, as ``python -m build --outdir FOLDER`` leaves them.
"""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXTS = {"LICENSE", "README.md", "pyproject.toml"}


def tracked(folder: str) -> set[str]:
    """The files of a folder that are part of the repository."""
    command = ["git", "ls-files", folder]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)  # noqa: S603
    if listed.returncode:  # an unpacked archive is no repository
        return {p.relative_to(ROOT).as_posix() for p in (ROOT / folder).rglob("*.py*")}
    return set(listed.stdout.split())


def differ(what: str, found: set[str], expected: set[str]) -> None:
    """End with an error that names what lacks and what is too much."""
    if found != expected:
        sys.exit(f"{what}: lacks {expected - found or 'nothing'}, has {found - expected or 'none'}")


folder = Path(sys.argv[1])
(wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
package = {name for name in tracked("streamsvd") if name.endswith((".py", "py.typed"))}
with zipfile.ZipFile(wheel) as archive:
    names = set(archive.namelist())
about = {name for name in names if ".dist-info/" in name}
differ(wheel.name, names - about, package)
metadata = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt", "LICENSE"}
differ(f"metadata of {wheel.name}", {name.rpartition("/")[2] for name in about}, metadata)
with tarfile.open(sdist) as archive:
    inside = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
differ(f"package in {sdist.name}", {n for n in inside if n.startswith("streamsvd/")}, package)
if not {"README.md", "pyproject.toml"} <= inside:
    sys.exit(f"{sdist.name} lacks {TEXTS - inside}")
print(f"{wheel.name}: {len(package)} files of the package; {sdist.name}: {len(inside)} files")
