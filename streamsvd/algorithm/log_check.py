"""What a log must be before any kernel sees it: one place, for results and for workspaces.

Kernels do not check the indices that they are given: one that is out of bounds is read from, or
written to, wherever it points.
"""

import numpy as np

from streamsvd.algorithm.block_log import BlockLog, Log
from streamsvd.arrays import Array

TOLERANCE = 1e-6
"""How far factors may be from orthonormal; those of fits are so to rounding, 1e-14."""

BATCH = 2**20
"""Numbers of the factors that are checked at a time."""


def log_fault(log: Log, arrays: dict[str, Array]) -> str | None:
    """What is wrong with `arrays` that are to extend `log`, by its `NAMES`; None if nothing is."""
    m = arrays["values"].shape[0] if arrays["values"].ndim else 0
    w, n_values = (log.width, log.n_components) if isinstance(log, BlockLog) else (2, 2)
    places = log.NAMES[0]
    shapes = {places: (m, w), "g": (m, w, w), "h": (m, w, w), "values": (m, n_values)}
    for name, shape in shapes.items():
        array, dtype = arrays[name], np.dtype(np.int64 if name == places else np.float64)
        if array.shape != shape or array.dtype != dtype:
            return f"{name} is {array.dtype}{array.shape}, not {dtype}{shape}"
    if not np.isfinite(arrays["values"]).all():
        return "values are not finite"
    indices = arrays[places]
    fault = _fault_of_indices(log, indices)
    for name, size in (("g", log.n_features), ("h", log.n_samples)):
        fault = fault or _fault_of_factors(name, arrays[name], indices >= size)
    return fault


def order_fault(order: Array, n_features: int) -> str | None:
    """What is wrong with the order of a log; None if nothing is."""
    if order.shape != (n_features,) or order.dtype != np.int64:
        return f"order is {order.dtype}{order.shape}, not int64{(n_features,)}"
    if not np.array_equal(np.sort(order), np.arange(n_features)):
        return f"order is no permutation of {n_features} features"
    return None


def rows_fault(data: Array, indices: Array, indptr: Array, shape: tuple[int, int]) -> str | None:
    """What is wrong with the parts of a CSR matrix of orthonormal rows; None if nothing is."""
    fault = csr_fault(data, indices, indptr, shape)
    if fault is not None:
        return fault
    rows = np.repeat(np.arange(shape[0]), np.diff(indptr))
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.bincount(rows, data**2, minlength=shape[0])
    if not (np.abs(norms - 1) < TOLERANCE).all():  # also where one is NaN
        return "rows are not of norm 1"
    return None


def csr_fault(data: Array, indices: Array, indptr: Array, shape: tuple[int, int]) -> str | None:
    """What is wrong with the parts of a CSR matrix of float64, in order; None if nothing is."""
    p, n = shape
    if data.dtype != np.float64 or {indices.dtype.kind, indptr.dtype.kind} != {"i"}:
        return f"parts are {data.dtype}, {indices.dtype} and {indptr.dtype}"
    if data.ndim != 1 or indices.shape != data.shape or indptr.shape != (p + 1,):
        return f"parts are of shapes {data.shape}, {indices.shape} and {indptr.shape}"
    if indptr[0] != 0 or indptr[-1] != len(data) or (indptr[1:] < indptr[:-1]).any():
        return "indptr does not count up to the number of entries"
    if len(indices) and (indices.min() < 0 or indices.max() >= n):
        return f"indices are not below {n}"
    rows = np.repeat(np.arange(p), np.diff(indptr))
    if not ((np.diff(indices) > 0) | (np.diff(rows) > 0)).all():
        return "indices of a row do not ascend"
    return None


def _fault_of_indices(log: Log, indices: Array) -> str | None:
    """Whether they ascend within the matrix, the first of a pair or `p` of a step below `p`."""
    p, last = log.n_components, max(log.n_features, log.n_samples)
    good = ((indices >= 0) & (indices < last)).all(axis=1)
    good &= (indices[:, 1:] > indices[:, :-1]).all(axis=1)
    if isinstance(log, BlockLog):
        good &= (indices[:, :p] == np.arange(p)).all(axis=1)
    else:
        good &= indices[:, 0] < p
    bad = np.flatnonzero(~good)
    if len(bad):
        return f"transform {bad[0]} is of {indices[bad[0]].tolist()}, with p={p} and {last} columns"
    return None


def _fault_of_factors(name: str, factors: Array, beyond: Array) -> str | None:
    """Whether all (m, w, w) are orthonormal, with rows of the identity where `beyond` (m, w)."""
    w = factors.shape[-1]
    step = max(1, BATCH // w**2)
    for start in range(0, len(factors), step):
        part = factors[start : start + step]
        with np.errstate(over="ignore", invalid="ignore"):
            if w == 2:  # a matrix product for each would take ten times as long
                a, b, c, d = part.reshape(-1, 4).T
                off = np.abs([a * a + c * c - 1, b * b + d * d - 1, a * b + c * d])
            else:
                off = np.abs(part.transpose(0, 2, 1) @ part - np.eye(w))
        if not (off < TOLERANCE).all():  # also where one is NaN
            return f"{name} of transforms {start} to {start + len(part) - 1} is not orthonormal"
    if not np.array_equal(factors[beyond], np.eye(w)[np.nonzero(beyond)[1]]):
        return f"{name} turns what is not there"
    return None
