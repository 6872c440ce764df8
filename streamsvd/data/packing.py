"""Packed numbers, as the CF conventions describe them: scaled, and with codes for what is missing.

Decoded as xarray decodes them, with the same bits. Beyond what it does, `valid_range`, `valid_min`
and `valid_max` are obeyed, codes are compared in the type of the stored numbers, and all of these
are numbers without a sign where `_Unsigned` says so: as in netCDF4.
"""

import base64
import binascii
import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamsvd.arrays import Array
from streamsvd.errors import SourceError

CODES = ("_FillValue", "missing_value")
"""Attributes of the numbers that stand for missing values."""

BOUNDS = ("valid_range", "valid_min", "valid_max")
"""Attributes of the least and the largest stored number that is no missing value."""

ATTRIBUTES = ("_Unsigned", "scale_factor", "add_offset", *CODES, *BOUNDS)
"""All that say how numbers are packed."""

REMEDY = "pass decode=False to take the numbers as they are stored"


@dataclass(frozen=True, eq=False)
class Packing:
    """How stored numbers become values: ``stored * scale + offset``, NaN where they are missing.

    Attributes
    ----------
    dtype : numpy.dtype
        Of the values: the float type that xarray chooses.
    stored : numpy.dtype
        What stored numbers are: without a sign, or with one, where `_Unsigned` says so.
    scale, offset : number or None
        Of the type that they were given in: it decides how they are multiplied and added.
    codes : tuple of (str, number)
        Numbers that stand for a missing value, after the attribute that says so.
    low, high : number or None
        Numbers below and above are missing values.
    text : str
        The attributes, for errors and for the record.
    """

    dtype: np.dtype[Any]
    stored: np.dtype[Any]
    scale: Any
    offset: Any
    codes: tuple[tuple[str, Any], ...]
    low: Any
    high: Any
    text: str

    def decode(self, numbers: Array) -> Array:
        """The values of stored numbers, a new array."""
        numbers = numbers.astype(self.stored, copy=False)
        values = numbers.astype(self.dtype)
        with np.errstate(over="ignore", invalid="ignore"):  # found and named by who reads
            if self.scale is not None:
                values *= self.scale
            if self.offset is not None:
                values += self.offset
            for missing in self._missing(numbers):
                np.copyto(values, np.nan, where=missing)
        return values

    def _missing(self, numbers: Array) -> Iterator[Array]:
        """Where stored numbers are missing values, one reason after the other."""
        for _, code in self.codes:
            yield numbers == code
        if self.low is not None:
            yield numbers < self.low
        if self.high is not None:
            yield numbers > self.high

    def why(self, number: Any) -> str:
        """What makes a stored number a missing value, for an error; "" if nothing does."""
        number = np.asarray(number).astype(self.stored)[()]
        for name, code in self.codes:
            if number == code:
                return f"{number}, its {name}"
        return f"{number}, outside of its valid range" if any(self._missing(number)) else ""


def packing_of(attributes: Mapping[str, Any], dtype: np.dtype[Any], name: str) -> Packing | None:
    """How the numbers of an array are packed, by its attributes; None if they are values.

    Refuses, as `SourceError` about the array called `name`, attributes that make no sense.
    """
    given = {key: attributes[key] for key in ATTRIBUTES if attributes.get(key) is not None}
    return _Parser(given, dtype, name).packing() if given else None


class _Parser:
    """The attributes of one array on their way to a `Packing`."""

    def __init__(self, given: dict[str, Any], dtype: np.dtype[Any], name: str) -> None:
        self._given, self._dtype, self._name = given, dtype, name
        self._stored = self._of_sign()

    def packing(self) -> Packing | None:
        scale, offset = self._factor("scale_factor"), self._factor("add_offset")
        if scale == 0:
            raise self._malformed("scale_factor", "makes all values equal")
        asked = {key: self._numbers(key) for key in CODES if key in self._given}
        found = [(key, self._as_stored(v)) for key, listed in asked.items() for v in listed]
        codes = tuple((key, code) for key, code in found if code is not None)
        low, high = self._bounds()
        is_same = self._stored == self._dtype.newbyteorder("=")
        if is_same and not codes and all(one is None for one in (scale, offset, low, high)):
            return None
        dtype = _float_type(self._stored, scale, offset)
        if self._stored.kind == "f" and asked and _are_nan(asked.values()):
            dtype = self._stored  # also where they are scaled: so it is in xarray
        told = [f"{key}={_plain(value)}" for key, value in self._given.items()]
        text = f"{self._dtype.name}, {', '.join(told)}"
        return Packing(dtype, self._stored, scale, offset, codes, low, high, text)

    def _malformed(self, key: str, what: str) -> SourceError:
        value = _plain(self._given[key])
        return SourceError(f"{self._name}: attribute {key}={value!r} {what}; mend it, or {REMEDY}")

    def _of_sign(self) -> np.dtype[Any]:
        """The type of the stored numbers in the byte order of the machine, by `_Unsigned`."""
        dtype = self._dtype.newbyteorder("=")
        if "_Unsigned" not in self._given or dtype.kind not in "iu":
            return dtype
        text = _text(np.ravel(self._given["_Unsigned"])[0]).lower()
        if text not in ("true", "false"):
            raise self._malformed("_Unsigned", 'is neither "true" nor "false"')
        return np.dtype(f"{'u' if text == 'true' else 'i'}{dtype.itemsize}")

    def _factor(self, key: str) -> Any:
        """A scale or an offset, in the type that it has; None if there is none."""
        if key not in self._given:
            return None
        listed = _listed(self._given[key])
        if len(listed) != 1:
            raise self._malformed(key, f"has {len(listed)} values; need one")
        if not _is_real(listed[0]) or not _is_finite(listed[0]):
            raise self._malformed(key, "is not a finite number")
        return listed[0]

    def _numbers(self, key: str) -> list[Any]:
        """The numbers in an attribute, also those that are written as text."""
        try:
            return [self._number(value) for value in _listed(self._given[key])]
        except (ValueError, TypeError, OverflowError) as error:
            raise self._malformed(key, "is no number") from error

    def _number(self, value: Any) -> Any:
        if isinstance(value, str | bytes):
            return _from_text(_text(value), self._stored)
        if not _is_real(value) and not isinstance(value, bool | np.bool):
            raise TypeError
        return float(value) if isinstance(value, int) and not _is_finite(value) else value

    def _as_stored(self, value: Any) -> Any:
        """`value` in the type of the stored numbers, None where that has no such number.

        What is negative there, as a signed type says it, is meant by its bits.
        """
        for dtype in (self._dtype.newbyteorder("="), self._stored):
            number = _exact(value, dtype)
            if number is not None:
                return number if dtype == self._stored else number.astype(self._stored)
        return None

    def _bounds(self) -> tuple[Any, Any]:
        """The least and the largest number that is valid; None where any is."""
        lows, highs = [], []
        for key in (key for key in BOUNDS if key in self._given):
            listed, need = self._numbers(key), 2 if key == "valid_range" else 1
            if len(listed) != need:
                raise self._malformed(key, f"has {len(listed)} values; need {need}")
            ends = [self._bound(key, value) for value in listed]
            lows += ends[:1] if key != "valid_max" else []
            highs += ends[-1:] if key != "valid_min" else []
        low, high = max(lows, default=-math.inf), min(highs, default=math.inf)
        least, most = _ends(self._stored)
        if low > high or low > most or high < least or low == math.inf:
            key = next(key for key in BOUNDS if key in self._given)
            raise self._malformed(key, f"leaves no number of {self._stored.name} valid")
        return (low if low > least else None), (high if high < most else None)

    def _bound(self, key: str, value: Any) -> Any:
        """A bound in the type of the stored numbers, or a number beyond all of those."""
        if math.isnan(value):
            raise self._malformed(key, "is not a number")
        number = self._as_stored(value)
        if number is not None:
            return number
        least, most = _ends(self._stored)
        if self._stored.kind != "f" and least < value < most:
            raise self._malformed(
                key, f"is not in the units of the packed {self._dtype.name}, as CF wants it"
            )
        return math.inf if value > 0 else -math.inf


# ------------------------------------------------------------------------------------- numbers


def _float_type(stored: np.dtype[Any], scale: Any, offset: Any) -> np.dtype[Any]:
    """The type of the values, as `xarray.coding.variables` chooses it.

    Factors that xarray would compute with as integers, or in half precision, are floats here.
    """
    types = [np.dtype(type(one)) for one in (scale, offset) if one is not None]
    if not types:
        return _promoted(stored)
    if len(types) == 2 and types[0] == types[1] and types[0] in (np.float32, np.float64):
        is_wide = stored.kind in "iu" and stored.itemsize == 4
        return np.dtype(np.float64) if is_wide else types[0]
    is_single = offset is None and types[0] in (np.float16, np.float32)
    return np.dtype(np.float32 if is_single else np.float64)


def _promoted(stored: np.dtype[Any]) -> np.dtype[Any]:
    """The type that holds numbers of another and NaN."""
    if stored.kind == "f":
        return stored
    return np.dtype(np.float32 if stored.itemsize <= 2 else np.float64)


def _exact(value: Any, dtype: np.dtype[Any]) -> Any:
    """`value` as a number of `dtype`; None where there is no such number, nor one for NaN."""
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            number = dtype.type(value)
        is_lost = np.isnan(number) or (np.isinf(number) and not math.isinf(value))
        return None if is_lost else number
    if not _is_finite(value) or value != int(value):
        return None
    least, most = _ends(dtype)
    return dtype.type(int(value)) if least <= int(value) <= most else None


def _ends(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """The least and the largest number of a type."""
    if dtype.kind == "f":
        return -math.inf, math.inf
    if dtype.kind == "b":
        return 0, 1
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)


def _from_text(text: str, dtype: np.dtype[Any]) -> float:
    """A number that is written as text, of floats also in the way of xarray: base64 of 8 bytes."""
    if dtype.kind == "f" and len(text) == 12 and text.endswith("="):
        try:
            return float(struct.unpack("<d", base64.b64decode(text, validate=True))[0])
        except (binascii.Error, struct.error) as error:
            raise ValueError(text) from error
    return float(text)


def _text(value: Any) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)


def _listed(value: Any) -> list[Any]:
    """The values of an attribute, each in its type."""
    if isinstance(value, np.ndarray):
        return list(value.ravel())
    return list(value) if isinstance(value, list | tuple) else [value]


def _plain(value: Any) -> Any:
    """An attribute for people to read."""
    listed = [one.item() if isinstance(one, np.generic) else one for one in _listed(value)]
    return listed[0] if len(listed) == 1 else listed


def _is_real(value: Any) -> bool:
    is_number = isinstance(value, int | float | np.integer | np.floating)
    return is_number and not isinstance(value, bool)


def _are_nan(lists: Iterable[list[Any]]) -> bool:
    return all(math.isnan(one) for listed in lists for one in listed)


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        return False
