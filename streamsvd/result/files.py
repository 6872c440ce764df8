"""Solutions on disk: a Zarr group that streamsvd reads back and other programs can read."""

import math
import os
from typing import Any

import numpy as np
from scipy import sparse

from streamsvd.algorithm.block_log import Log, new_log
from streamsvd.algorithm.log_check import log_fault, order_fault, rows_fault
from streamsvd.arrays import Array
from streamsvd.data.compressed import SPARSE_PARTS
from streamsvd.data.labels import Axis, pack, unpack
from streamsvd.data.missing import Missing
from streamsvd.errors import SourceError
from streamsvd.passes.preprocessing import Preprocessing
from streamsvd.refinement import Refined
from streamsvd.result.certificate import Certificate
from streamsvd.result.checks import (
    attributes_fault,
    counts_fault,
    least_energy,
    mask_fault,
    numbers_fault,
    shares_fault,
)
from streamsvd.result.solution import Solution
from streamsvd.storage.groups import SavedGroup, write_group

FORMAT, VERSION = "streamsvd-result", 2


def write_solution(path: str | os.PathLike[str], made: Solution, *, overwrite: bool) -> None:
    """Write a solution as a Zarr group, all or nothing; see `SVDResult.save`."""
    arrays = {
        **{f"log/{name}": array for name, array in made.log.arrays().items()},
        "log/order": made.log.order,
        "initial_diagonal": made.initial_diagonal,
        "final_energies": made.final_energies,
        "mean": made.preprocessing.mean,
        "scale": made.preprocessing.scale,
        "singular_values": made.singular_values,
    }
    if made.feature_mask is not None:
        arrays["feature_mask"] = made.feature_mask
    if made.missing is not None:
        arrays |= {"missing/mean": made.missing.mean, "missing/counts": made.missing.counts}
        if made.missing.share is not None:
            arrays["missing/share"] = made.missing.share
    if made.sample_weights is not None:
        arrays["sample_weights"] = made.sample_weights
    if made.preprocessing.weights is not None:
        arrays["feature_weights"] = made.preprocessing.weights
    matrices = {"components": made.components}
    if made.refined is not None:
        matrices["refined/rows"] = made.refined.components
        arrays["refined/energies"] = made.refined.energies
    elif not made.is_reduced:
        matrices["right"] = made.right
    if made.stability is not None:
        matrices["stability"] = made.stability
    for name, matrix in matrices.items():
        arrays |= {f"{name}/{part}": getattr(matrix, part) for part in SPARSE_PARTS}
    labels = {}
    for name, axis in (("features", made.features), ("samples", made.samples)):
        packed, labels[name] = pack(axis)
        arrays |= {f"{name}/{key}": values for key, values in packed.items()}
    attributes = {
        "format": FORMAT,
        "version": VERSION,
        "n_components": made.n_components,
        "n_features": made.n_features,
        "n_samples": made.n_samples,
        "n_transforms": made.n_transforms,
        "total_energy": made.total_energy,
        "weight": made.weight,
        "weighted": made.sample_weights is not None,
        "shares": made.missing is not None and made.missing.share is not None,
        "center": made.preprocessing.center,
        "normalize": made.preprocessing.normalize,
        "sample_axis": made.sample_axis,
        "dtype": made.dtype.name,
        "stopped": made.stopped,
        "settings": made.settings,
        "labels": labels,
        "seconds": made.seconds,
        "bytes_read": made.bytes_read,
        "refined": made.refined is not None,
        "exact": made.is_exact,
        "certified": None if made.certified is None else made.certified._asdict(),
        "stability": made.stability is not None,
    }
    write_group(path, arrays, attributes, overwrite=overwrite)


def read_solution(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The fields of the `Solution` that `write_solution` wrote; refuses what it did not write."""
    saved = SavedGroup(path, FORMAT, VERSION)
    try:
        return _fields(saved)
    except KeyError as error:
        raise SourceError(f"{path} is not whole: {error.args[0]} is missing") from error


def _fields(saved: SavedGroup) -> dict[str, Any]:
    attributes = saved.attributes
    _refuse(saved, "zarr.json", attributes_fault(attributes))
    p, n, n_samples = (attributes[key] for key in ("n_components", "n_features", "n_samples"))
    total = float(attributes["total_energy"])
    mask = _mask(saved, p, n)
    fitted = n if mask is None else int(np.count_nonzero(mask))
    missing = _missing(saved, p, fitted, n_samples)
    fitted = fitted if missing is None else len(missing.kept)
    log, weights = _log(saved, fitted), None
    if attributes["settings"].get("feature_weights") is not None:
        weights = _numbers(saved, "feature_weights", fitted, above=0.0)
    preprocessing = Preprocessing(
        attributes["center"],
        attributes["normalize"],
        _numbers(saved, "mean", fitted),
        _numbers(saved, "scale", fitted, above=0.0),
        weights,
    )
    return {
        "log": log,
        "n_transforms": attributes["n_transforms"],
        "n_samples": n_samples,
        "initial_diagonal": _numbers(saved, "initial_diagonal", p),
        "total_energy": total,
        "final_energies": _numbers(saved, "final_energies", p, above=least_energy(total)),
        "preprocessing": preprocessing,
        "sample_axis": attributes["sample_axis"],
        "dtype": np.dtype(attributes["dtype"]),
        "stopped": attributes["stopped"],
        "settings": attributes["settings"],
        "refined": _refined(saved, p, fitted) if attributes["refined"] is True else None,
        "certified": _certified(attributes["certified"]),
        "stability": _stability(saved, p, n),
        "features": _labels(saved, "features", n),
        "samples": _labels(saved, "samples", n_samples),
        "feature_mask": mask,
        "missing": missing,
        "weight": attributes.get("weight"),
        "sample_weights": _sample_weights(saved, n_samples),
        "seconds": attributes["seconds"],
        "bytes_read": attributes["bytes_read"],
    }


def _mask(saved: SavedGroup, p: int, n: int) -> Array | None:
    asked = saved.attributes["settings"].get("feature_mask")
    if asked is None:
        return None
    mask = saved.array("feature_mask")
    _refuse(saved, "feature_mask", mask_fault(mask, n, p, asked))
    return mask


def _missing(saved: SavedGroup, p: int, n: int, n_samples: int) -> Missing | None:
    if saved.attributes["settings"].get("missing", "error") == "error":
        return None
    mean, counts = _numbers(saved, "missing/mean", n), saved.array("missing/counts")
    _refuse(saved, "missing/counts", counts_fault(counts, n, n_samples, p))
    share = None
    if saved.attributes.get("shares") is True:
        share = _numbers(saved, "missing/share", n, above=-1e-9)
    return Missing(mean, counts, n_samples, share)


def _sample_weights(saved: SavedGroup, n_samples: int) -> Array | None:
    if saved.attributes.get("weighted") is not True:
        return None
    return _numbers(saved, "sample_weights", n_samples, above=-np.finfo(float).tiny)


def _log(saved: SavedGroup, n: int) -> Log:
    attributes = saved.attributes
    settings = attributes["settings"]
    n_columns = attributes["n_samples"] if settings["reduction"] is None else n
    order = saved.array("log/order")
    _refuse(saved, "log", order_fault(order, n))  # before a log of so many features is made
    log = new_log(settings["algorithm"], attributes["n_components"], n, n_columns)
    log.order = order
    arrays = {name: saved.array(f"log/{name}") for name in log.NAMES}
    _refuse(saved, "log", log_fault(log, arrays))
    log.extend(*arrays.values())
    if attributes["n_transforms"] > len(log):
        _refuse(saved, "log", f"has {len(log)} of {attributes['n_transforms']} transforms")
    return log


def _refined(saved: SavedGroup, p: int, n: int) -> Refined:
    data, indices, indptr = (saved.array(f"refined/rows/{part}") for part in SPARSE_PARTS)
    _refuse(saved, "refined/rows", rows_fault(data, indices, indptr, (p, n)))
    least = least_energy(saved.attributes["total_energy"])
    energies = _numbers(saved, "refined/energies", p, above=least)
    rows = sparse.csr_array((data, indices, indptr), shape=(p, n))
    return Refined(rows, energies, saved.attributes["exact"])


def _certified(numbers: dict[str, Any] | None) -> Certificate | None:
    return None if numbers is None else Certificate(**numbers)


def _stability(saved: SavedGroup, p: int, n: int) -> sparse.csr_array | None:
    """Absent from results that were saved before there was any."""
    if saved.attributes.get("stability", False) is not True:
        return None
    data, indices, indptr = (saved.array(f"stability/{part}") for part in SPARSE_PARTS)
    _refuse(saved, "stability", shares_fault(data, indices, indptr, (p, n)))
    return sparse.csr_array((data, indices, indptr), shape=(p, n))


def _labels(saved: SavedGroup, name: str, size: int) -> Axis | None:
    """Features or samples as `write_solution` wrote them."""
    try:
        described = saved.attributes["labels"][name]
        return unpack(lambda key: saved.array(f"{name}/{key}"), described, size)
    except (ValueError, TypeError) as error:
        if isinstance(error, SourceError):
            raise
        raise saved.damaged(f"labels of {name}", f"are none: {error}") from error


def _numbers(saved: SavedGroup, name: str, size: int, above: float = -math.inf) -> Array:
    numbers = saved.array(name)
    _refuse(saved, name, numbers_fault(name, numbers, size, above=above))
    return numbers


def _refuse(saved: SavedGroup, name: str, fault: str | None) -> None:
    if fault is not None:
        raise saved.damaged(name, f"({fault})")
