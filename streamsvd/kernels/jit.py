"""The compiler of the kernels: Numba, with a cache on disk that can do no harm.

Compiling all kernels takes seconds in each process, loading them a fraction of one. Numba's own
cache has an index that processes can corrupt for each other, fails on a truncated file, and does
not notice that a callee in another module has changed. Here each compiled function is one file,
named after everything that determines it, checked before it is loaded, and written aside and
renamed; whatever goes wrong, the function is compiled as if there were no cache.

The files are in the user's cache folder, as Numba's own are where it has no other place, or in
``NUMBA_CACHE_DIR``; ``STREAMSVD_CACHE=0`` does without. Never beside the package: a package that
is uninstalled would leave a folder of its name behind, which Python takes for the package.
"""

import gc
import hashlib
import os
import pickle
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba import njit
from numba.core import serialize
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.cpu import CPUTargetOptions
from numba.core.registry import CPUDispatcher


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel at its first call, for the types that it is called with.

    Strict IEEE arithmetic; the GIL is released. ``error_model="numpy"``: a division by zero gives
    inf or nan instead of a branch that would keep loops from being vectorised. Arrays are not
    counted, since a kernel makes none (`jit_that_allocates` may): half of the compiling would be
    for that.
    """
    return _compiled(function, _Kernel, _nrt=False)


def jit_that_allocates(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a kernel that makes arrays."""
    return _compiled(function, _Kernel)


def inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a kernel that kernels alone call: without what Python needs to call it.

    Nor is it kept: it is part of those that call it.
    """
    return _compiled(function, _Inner, _nrt=False, no_cpython_wrapper=True)


class _Kernel(CPUDispatcher):  # type: ignore[misc]
    """Compiles without the collector of garbage, which looks through all that Numba makes."""

    def _compile_for_args(self, *args: Any, **kwargs: Any) -> Any:
        with _uncollected():
            return super()._compile_for_args(*args, **kwargs)


class _Inner(_Kernel):
    """Python may not call what has no way in for it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{self.py_func.__name__} is for kernels to call")


@contextmanager
def _uncollected() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _compiled(
    function: Callable[..., Any], kind: "type[_Kernel]", **flags: Any
) -> Callable[..., Any]:
    # A wrapper for C would be compiled for nobody.
    flags = {**flags, "nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    known = {name: flag for name, flag in flags.items() if hasattr(CPUTargetOptions, name)}
    compiled: Callable[..., Any] = njit(**known)(function)
    if isinstance(compiled, CPUDispatcher):
        compiled.__class__ = kind
    is_kept = kind is not _Inner
    if is_kept and os.environ.get("STREAMSVD_CACHE") != "0" and hasattr(compiled, "_cache"):
        with suppress(Exception):  # no place to write to, or another Numba inside
            compiled._cache = _Cache(function)
    return compiled


def is_compiled(kernel: Callable[..., Any], arguments: Sequence[Any]) -> bool:
    """Whether a call with `arguments` needs no compiling: done before, or kept on disk.

    Always, where Numba is told not to compile.
    """
    if not isinstance(kernel, _Kernel):
        return True
    signature = tuple(numba.typeof(argument) for argument in arguments)
    kept = getattr(kernel, "_cache", None)
    return signature in kernel.overloads or (
        isinstance(kept, _Cache) and kept.has(signature, kernel.targetctx)
    )


def part(function: Callable[..., Any]) -> Callable[..., Any]:
    """What is written apart to be read, and compiled as part of the one kernel that calls it.

    Compiling it alone first would take as long again.
    """
    inlined: Callable[..., Any] = njit(inline="always", error_model="numpy")(function)
    return inlined


class _Places(CompileResultCacheImpl):  # type: ignore[misc]
    """Where Numba would look for a cache, but for the folder of the package."""

    _locator_classes = [  # noqa: RUF012
        place
        for place in getattr(CompileResultCacheImpl, "_locator_classes", [])
        if not place.__name__.endswith("InTreeCacheLocator")
    ]


class _Cache(FunctionCache):  # type: ignore[misc]
    """One file for each function and signature; any failure means compiling."""

    _impl_class = _Places

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function, None when it is not there or not sound."""
        try:
            target_context.refresh()
            content = self._path(sig, target_context.codegen()).read_bytes()
            check, data = content[:32], content[32:]
            if hashlib.sha256(data).digest() != check:
                return None
            return self._impl.rebuild(target_context, pickle.loads(data))  # noqa: S301
        except Exception:
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write the compiled function, aside first."""
        with suppress(Exception):
            if self._impl.check_cachable(data):
                self._impl.locator.ensure_cache_path()
                path = self._path(sig, data.codegen)
                content = serialize.dumps(self._impl.reduce(data))
                aside = path.with_suffix(f".{uuid.uuid4().hex}")
                try:
                    aside.write_bytes(hashlib.sha256(content).digest() + content)
                    os.replace(aside, path)
                finally:
                    aside.unlink(missing_ok=True)

    def has(self, sig: Any, target_context: Any) -> bool:
        """Whether there is a file for a signature."""
        return self._path(sig, target_context.codegen()).is_file()

    def _path(self, sig: Any, codegen: Any) -> Path:
        key = repr((sig, codegen.magic_tuple(), numba.__version__, _sources()))
        digest = hashlib.sha256(key.encode()).hexdigest()[:24]
        return Path(self._cache_path) / f"{self._impl.filename_base}-{digest}.streamsvd"


@cache
def _sources() -> str:
    """A digest of all modules of this wing: kernels call each other across modules."""
    sources = (path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    return hashlib.sha256(b"".join(sources)).hexdigest()
