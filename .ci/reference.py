"""The reference, as HTML, from the docstrings: what is public, and the modules that it refers to.

    python -W error .ci/reference.py FOLDER

Needs pdoc (the extra ``docs``). Ends with an error where something public has no docstring, a
parameter is not documented or there is none of that name, or a name in backticks that begins with
``streamsvd.`` is not there; with ``-W error`` also where pdoc has a warning.
"""

import inspect
import re
import sys
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import pdoc
import pdoc.doc
import pdoc.render

import streamsvd

NAME = re.compile(r"(?<!`)`(streamsvd(?:\.\w+)+)(?:\([^`]*\))?`(?!`)")
PARAMETERS = re.compile(r"^Parameters\n-+\n(.*?)(?=^\w[\w ]+\n-+\n|\Z)", re.M | re.S)
problems: list[str] = []


class Whole(pdoc.doc.Class):
    """A class with all that is its own or inherited within the package, as users meet it."""

    @cached_property
    def own_members(self) -> list[pdoc.doc.Doc[Any]]:
        """Those of the package, in the order of its classes."""
        ours = [m for m in self.members.values() if m.taken_from[0].startswith("streamsvd.")]
        return [m for m in ours if m.docstring and not m.name.startswith("_")]


def resolved(name: str) -> str | None:
    """The module that a dotted name is in, None where there is none of that name."""
    module, rest = name, []
    while True:
        try:
            found: Any = import_module(module)
            break
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            rest.insert(0, last)
    for part in rest:
        fields = getattr(found, "__dataclass_fields__", {})
        if not hasattr(found, part) and part not in fields:
            return None
        found = getattr(found, part, None)
    return module


def check(one: pdoc.doc.Doc[Any]) -> None:
    """Note what its docstring lacks."""
    text = inspect.cleandoc(one.docstring)
    if not text:
        problems.append(f"{one.fullname} has no docstring")
    function = one.obj if isinstance(one, pdoc.doc.Class) else getattr(one, "obj", None)
    if not callable(function):  # a field, or made by scikit-learn
        return
    section = PARAMETERS.search(text)
    if section is None:
        return
    heads = re.findall(r"^(\S[^:\n]*)(?: : .*)?$", section[1], re.M)
    told = {name.strip(" *") for head in heads for name in head.split(",")}
    taken = {p.lstrip("*") for p in inspect.signature(function).parameters} - {"self"}
    if told != taken:
        problems.append(
            f"{one.fullname}: not documented {taken - told or 'none'}, not there {told - taken}"
        )


folder = Path(sys.argv[1])
pdoc.doc.Class = Whole  # type: ignore[misc]
for name in streamsvd.__all__:  # those that are imported when they are used
    setattr(streamsvd, name, getattr(streamsvd, name))
pages = {"streamsvd": pdoc.doc.Module(streamsvd)}
for one in pages["streamsvd"].members.values():
    whole = [one, *(one.own_members if isinstance(one, pdoc.doc.Class) else [])]
    for member in whole:
        if member.name == "__version__":
            continue
        check(member)
        for name in NAME.findall(member.docstring):
            module = resolved(name)
            if module is None:
                problems.append(f"{member.fullname} refers to {name}, which is not there")
            elif module not in pages:
                pages[module] = pdoc.doc.Module(import_module(module))
if problems:
    sys.exit("\n".join(problems))

pdoc.render.configure(docformat="numpy", show_source=False, footer_text=streamsvd.__version__)
for name, page in sorted(pages.items()):
    path = folder / f"{name.replace('.', '/')}.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(pdoc.render.html_module(page, pages))
(folder / "index.html").write_text(pdoc.render.html_index(pages))
(folder / "search.js").write_text(pdoc.render.search_index(pages))
print(f"{len(pages)} pages in {folder}; begin with {folder / 'streamsvd.html'}")
