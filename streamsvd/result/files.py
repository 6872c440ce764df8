"""Solutions on disk: a Zarr group that streamsvd reads back and other programs can read."""

import os
from typing import Any

import numpy as np
from scipy import sparse

from streamsvd.algorithm.block_log import new_log
from streamsvd.arrays import Array
from streamsvd.data.labels import Axis, pack, unpack
from streamsvd.data.zarr_sources import SPARSE_PARTS
from streamsvd.errors import OptionError, SourceError
from streamsvd.passes.preprocessing import Preprocessing
from streamsvd.refinement.refine import Refined
from streamsvd.result.solution import Solution
from streamsvd.storage.outputs import read_group, write_group

FORMAT, VERSION = "streamsvd-result", 1


def write_solution(path: str | os.PathLike[str], made: Solution, *, overwrite: bool) -> None:
    """Write a solution as a Zarr group, all or nothing; see `SVDResult.save`."""
    arrays = {
        **{f"log/{name}": array for name, array in made.log.arrays().items()},
        "log/order": made.log.order,
        "initial_diagonal": made.initial_diagonal,
        "final_energies": made.final_energies,
        "mean": made.mean,
        "scale": made.scale,
        "singular_values": made.singular_values,
    }
    matrices = {"components": made.components}
    if made.refined is not None:
        matrices["refined/rows"] = made.refined.components
        arrays["refined/energies"] = made.refined.energies
    elif not made.is_reduced:
        matrices["right"] = made.right
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
        "center": made.preprocessing.center,
        "normalize": made.preprocessing.normalize,
        "sample_axis": made.sample_axis,
        "dtype": made.dtype.name,
        "stopped": made.stopped,
        "settings": made.settings,
        "labels": labels,
        "seconds": made.seconds,
        "bytes_read": made.bytes_read,
    }
    write_group(path, arrays, attributes, overwrite=overwrite)


def read_solution(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The fields of the `Solution` that `write_solution` wrote."""
    arrays, attributes = read_group(path)
    found = attributes.get("format"), attributes.get("version")
    if found != (FORMAT, VERSION):
        raise OptionError(
            f"{path} is not a result of this version: format and version are {found}, "
            f"need {(FORMAT, VERSION)}"
        )
    try:
        return _fields(arrays, attributes)
    except KeyError as error:
        raise SourceError(f"{path} is not whole: {error.args[0]} is missing") from error


def _fields(arrays: dict[str, Array], attributes: dict[str, Any]) -> dict[str, Any]:
    p, n, n_samples = (attributes[key] for key in ("n_components", "n_features", "n_samples"))
    is_reduced = attributes["settings"]["reduction"] == "gram"
    algorithm = attributes["settings"].get("algorithm", "coordinate")
    log = new_log(algorithm, p, n, n if is_reduced else n_samples)
    log.order = arrays["log/order"]
    log.extend(*(arrays[f"log/{k}"] for k in log.NAMES))
    refined = None
    if "refined/energies" in arrays:
        parts = tuple(arrays[f"refined/rows/{part}"] for part in SPARSE_PARTS)
        refined = Refined(sparse.csr_array(parts, shape=(p, n)), arrays["refined/energies"])
    return {
        "log": log,
        "n_transforms": attributes["n_transforms"],
        "n_samples": n_samples,
        "initial_diagonal": arrays["initial_diagonal"],
        "total_energy": attributes["total_energy"],
        "final_energies": arrays["final_energies"],
        "preprocessing": Preprocessing(
            attributes["center"], attributes["normalize"], arrays["mean"], arrays["scale"]
        ),
        "sample_axis": attributes["sample_axis"],
        "dtype": np.dtype(attributes["dtype"]),
        "stopped": attributes["stopped"],
        "settings": attributes["settings"],
        "refined": refined,
        "features": _labels(arrays, attributes, "features"),
        "samples": _labels(arrays, attributes, "samples"),
        # results saved before these were recorded have neither
        "seconds": attributes.get("seconds"),
        "bytes_read": attributes.get("bytes_read"),
    }


def _labels(arrays: dict[str, Array], attributes: dict[str, Any], name: str) -> Axis | None:
    """Features or samples as `write_solution` wrote them."""
    start = f"{name}/"
    own = {key.removeprefix(start): value for key, value in arrays.items() if key.startswith(start)}
    return unpack(own, attributes.get("labels", {}).get(name))
