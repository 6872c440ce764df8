"""What several test files need: sources of any chunking, forced block widths, comparing bits."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import zarr

from streamsvd import SVDResult, sizes, sparse_svd
from streamsvd.fitting import in_place, planning
from streamsvd.matrix import working
from streamsvd.options.rules import SIDES
from streamsvd.plan import Plan, make_plan
from streamsvd.problem import Problem

PLACES = ("memory", "disk", "disk, rows held", "disk, columns held")
HELD_COLUMNS = {"disk": 0, "disk, rows held": 2, "disk, columns held": 1}
"""Of each chunk; so few that others have to make room."""

STRIP = sizes.STRIP_BYTES

TWO_PASSES = ("features", "samples")
COMBINATIONS = [pair for pair in product(SIDES.values, SIDES.values) if pair != TWO_PASSES]
"""Of `center` and `normalize`, what one pass can do."""


def reached(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A way in from Python to a kernel that only kernels call."""
    way_in: Callable[..., Any] = numba.njit(lambda *arguments: kernel(*arguments))
    return way_in


def write_zarr(path: Path, X: np.ndarray, chunks: Any = None, **options: Any) -> Path:
    """Write `X` as a Zarr array that has all its chunks, uncompressed unless asked otherwise."""
    options = {"compressors": None} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what zarr says of its own formats is no test of ours
        array = zarr.create_array(
            path,
            shape=X.shape,
            chunks=chunks or X.shape,
            dtype=X.dtype,
            config={"write_empty_chunks": True},
            **options,
        )
        array[...] = X
    return path


@contextmanager
def blocks_of(width: int, place: str = "memory", strip: int = STRIP) -> Iterator[None]:
    """Cut working matrices into blocks of `width` columns.

    `place` is one of `PLACES`: in memory, where padding is NaN (nothing may be computed from it),
    or on disk, with prefetching, the first rows held in memory or not, and so many columns. The
    source is read in strips of `strip` bytes, or one chunk.
    """

    def in_memory(n_features: int, n_samples: int, dtype: np.dtype[Any]) -> working.WorkingMatrix:
        c = min(width, n_samples)
        blocks = [np.full((n_features, c), np.nan, dtype) for _ in range(-(-n_samples // c))]
        return working.WorkingMatrix(blocks, n_samples, [])

    def on_disk(problem: Problem, **where: Any) -> Plan:
        c = min(width, problem.n_samples)
        n_chunks = -(-problem.n_samples // c)
        return replace(
            make_plan(problem, **where),
            in_memory=False,
            hold_rows=place == "disk, rows held",
            chunk_width=c,
            n_chunks=n_chunks,
            disk=problem.n_features * problem.dtype.itemsize * c * n_chunks,
            held_columns=0 if problem.is_block else HELD_COLUMNS[place],
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizes, "STRIP_BYTES", strip)
        if place == "memory":
            patch.setattr(working.WorkingMatrix, "in_memory", staticmethod(in_memory))
        else:
            patch.setattr(planning, "make_plan", on_disk)
            patch.setattr(in_place, "page_cache", lambda: 0)
        yield


def fit_in_blocks(
    X: Any,
    n_components: int,
    *,
    width: int,
    place: str = "memory",
    strip: int = STRIP,
    **options: Any,
) -> SVDResult:
    """`sparse_svd` with the working matrix and the reading cut up, see `blocks_of`."""
    with blocks_of(width, place, strip):
        return sparse_svd(X, n_components, **options)


def bits(result: SVDResult, *, path_only: bool = False) -> dict[str, tuple[str, Any, bytes]]:
    """All numbers of a result as bytes, by name.

    `path_only` leaves out what is known at the end of a fit alone.
    """
    k = result.n_transforms
    arrays = {
        **result.log.arrays(0, k),
        "initial diagonal": result.initial_diagonal,
        "total energy": np.float64(result.total_energy),
        "mean": result.mean,
        "scale": result.scale,
        "singular values": result.singular_values,
        "trace": result.history.trace,
        "n_nonzeros": result.history.n_nonzeros,
    }
    if not path_only:
        arrays["final energies"] = result.final_energies
        arrays["explained variance"] = result.explained_variance
    matrices = {"components": result.components}
    if not result.is_reduced and result.refined is None:
        matrices["right vectors"] = result.right
    for name, rows in matrices.items():
        arrays[f"{name} data"] = rows.data
        arrays[f"{name} indices"] = rows.indices.astype(np.int64)
        arrays[f"{name} indptr"] = rows.indptr.astype(np.int64)
    return {name: (a.dtype.str, a.shape, a.tobytes()) for name, a in arrays.items()}


def differences(one: SVDResult, other: SVDResult, *, path_only: bool = False) -> list[str]:
    """Names of what has not the same bits in both; [] is what tests want."""
    a, b = bits(one, path_only=path_only), bits(other, path_only=path_only)
    return [name for name in a if a[name] != b[name]]


def normal(n: int, n_samples: int, seed: int = 0) -> np.ndarray:
    """Random numbers without structure: no ties, full rank."""
    return np.random.default_rng(seed).standard_normal((n, n_samples))


def rounded_counts(n: int, n_samples: int) -> np.ndarray:
    """(n, n_samples) features by samples, most of them zero."""
    X = np.abs(normal(n, n_samples) * 3 * np.linspace(1, 2, n)[:, None])
    X[X < 2.5] = 0
    return X.round(3)


KINDS = [
    "full rank",
    "rank deficient",
    "zeros",
    "duplicated",
    "diagonal",
    "identity",
    "one",
    "none",
]


def data_of(random: np.random.Generator, kind: str, n: int) -> np.ndarray:
    """Data that a search can trip over, of one of `KINDS`."""
    if kind == "rank deficient":
        rank = int(random.integers(0, n))
        return random.standard_normal((n, rank)) @ random.standard_normal((rank, n + 3))
    X = random.standard_normal((n, n + 5)) * np.linspace(1, 3, n)[:, None]
    if kind == "zeros":
        X[random.random(n) < 0.5] = 0
    elif kind == "duplicated":
        X = X[random.integers(0, max(1, n // 2), n)]
    elif kind == "diagonal":
        X = np.diag(random.integers(0, 4, n).astype(float))
    elif kind == "identity":
        X = np.eye(n)
    elif kind in ("one", "none"):
        X = np.zeros((n, 3))
        X[int(random.integers(n)), 0] = kind == "one"
    return X
