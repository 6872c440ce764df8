"""What was read of a result must be one before anything is made of it."""

import math
from typing import Any

import numpy as np

from streamsvd.algorithm.log_check import TOLERANCE, csr_fault
from streamsvd.arrays import Array
from streamsvd.data.masks import described
from streamsvd.errors import OptionError
from streamsvd.options import Options
from streamsvd.options.rules import DTYPES, SIDES
from streamsvd.result.certificate import Certificate

STOPPED = ("n_transforms", "converged", "budget")

NOT_OPTIONS = ("streamsvd", "batches", "packing", "share")
"""What settings record besides options."""


def attributes_fault(attributes: dict[str, Any]) -> str | None:
    """What is wrong with the attributes of a result; None if nothing is."""
    sizes = ("n_components", "n_features", "n_samples")
    for name in sizes:
        if type(attributes[name]) is not int or attributes[name] < 1:
            return f"{name} is {attributes[name]!r}"
    p, n, n_samples = (attributes[name] for name in sizes)
    if p > min(n, n_samples):
        return f"{p} components of {n} features and {n_samples} samples"
    if type(attributes["n_transforms"]) is not int or attributes["n_transforms"] < 0:
        return f"n_transforms is {attributes['n_transforms']!r}"
    for name, known in (
        ("center", SIDES.values),
        ("normalize", SIDES.values),
        ("sample_axis", (0, 1)),
        ("dtype", DTYPES),
        ("stopped", STOPPED),
        ("exact", (False, True)),
    ):
        if not _is_one_of(attributes[name], known):
            return f"{name} is {attributes[name]!r}, not one of {known}"
    weight = attributes.get("weight")
    if weight is not None and not (_is_amount(weight) and weight > 1):
        return f"weight is {weight!r}"
    for name in ("total_energy", "seconds", "bytes_read"):
        may_lack = name != "total_energy" and attributes[name] is None
        if not may_lack and not _is_amount(attributes[name]):
            return f"{name} is {attributes[name]!r}"
    return _certificate_fault(attributes) or _settings_fault(attributes)


def _certificate_fault(attributes: dict[str, Any]) -> str | None:
    """A certificate is of these components, and its bound a share."""
    found = attributes["certified"]
    if found is None:
        return None
    p, size = attributes["n_components"], attributes["n_components"] * attributes["n_features"]
    is_one = (
        isinstance(found, dict)
        and set(found) == set(Certificate._fields)
        and all(_is_amount(value) for value in found.values())
        and found["n_components"] == p
        and type(found["max_nonzeros"]) is int
        and p <= found["max_nonzeros"] <= size
    )
    return None if is_one else f"certified is {found!r}"


def _settings_fault(attributes: dict[str, Any]) -> str | None:
    """Settings are options that a fit takes, and those that the result has been made with."""
    settings = attributes["settings"]
    if not isinstance(settings, dict):
        return f"settings are {settings!r}"
    try:
        found = {name: settings[name] for name in settings if name not in NOT_OPTIONS}
        budget = Options(**found).budget(attributes["n_features"])
    except (OptionError, TypeError) as error:
        return f"settings: {error}"
    if attributes["stopped"] == "budget" and budget is None:
        return "stopped is 'budget', and the settings have none"
    if not _is_one_of(settings["batches"], (False, True)):
        return f"batches is {settings['batches']!r} in the settings"
    for name in ("n_components", "center", "normalize", "sample_axis", "dtype"):
        is_scaled = name == "normalize" and settings[name] == "variables"
        if ("features" if is_scaled else settings[name]) != attributes[name]:
            return f"{name} is {attributes[name]!r}, and {settings[name]!r} in the settings"
    return None


def numbers_fault(name: str, numbers: Array, size: int, *, above: float = -math.inf) -> str | None:
    """What is wrong with `size` finite float64 numbers above a limit; None if nothing is."""
    if numbers.shape != (size,) or numbers.dtype != np.float64:
        return f"{name} is {numbers.dtype}{numbers.shape}, not float64{(size,)}"
    if not (np.isfinite(numbers) & (numbers > above)).all():
        return f"{name} is not finite" + ("" if above == -math.inf else f" and above {above:.3g}")
    return None


def shares_fault(data: Array, indices: Array, indptr: Array, shape: tuple[int, int]) -> str | None:
    """What is wrong with the parts of a CSR matrix of shares, zeros left out; None if nothing."""
    fault = csr_fault(data, indices, indptr, shape)
    if fault is None and not ((data > 0.0) & (data <= 1.0)).all():  # also where one is NaN
        return "shares are not above 0 and at most 1"
    return fault


def counts_fault(counts: Array, n_features: int, n_samples: int, p: int) -> str | None:
    """What is wrong with how many of the samples lack each feature; None if nothing is.

    `p` features have to have a value at least.
    """
    if counts.shape != (n_features,) or counts.dtype != np.int64:
        return f"is {counts.dtype}{counts.shape}, not int64{(n_features,)}"
    if counts.min() < 0 or counts.max() > n_samples:
        return f"is not all from 0 to {n_samples}"
    if np.count_nonzero(counts < n_samples) < p:
        return f"leaves fewer than {p} features with a value"
    return None


def mask_fault(mask: Array, n_features: int, p: int, asked: Any) -> str | None:
    """What is wrong with the features that take part, at least `p`; None if nothing is.

    `asked` is what the settings say of them.
    """
    if mask.shape != (n_features,) or mask.dtype != bool:
        return f"is {mask.dtype}{mask.shape}, not bool{(n_features,)}"
    if np.count_nonzero(mask) < p:
        return f"leaves fewer than {p} features"
    return None if described(mask) == asked else f"is another than {asked!r} in the settings"


def least_energy(total_energy: float) -> float:
    """Sums of squares are above this: not below zero but for rounding, as on ``X X^T``."""
    return -TOLERANCE * total_energy - np.finfo(float).tiny


def _is_one_of(value: Any, known: tuple[Any, ...]) -> bool:
    return any(value == one and type(value) is type(one) for one in known)


def _is_amount(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0
