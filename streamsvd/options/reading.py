"""The options of how data are read."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from streamsvd.options.options import Options
from streamsvd.options.rules import FLAG


class Reading(TypedDict, total=False):
    """The options of how data are read, by name: see `Ask`."""

    sample_axis: int | None
    sample_dim: str | Sequence[str] | None
    layer: str | None
    missing_chunks: str
    storage_options: dict[str, Any] | None
    decode: bool


class Ask(NamedTuple):
    """How a user wants data to be read.

    Attributes
    ----------
    sample_axis : {0, 1} or None
        Axis of the samples.
    sample_dim : str, sequence of str, or None
        Dimension of the samples, where dimensions have names; several in xarray.
    layer : str or None
        Of an AnnData; None for `X`.
    missing_chunks : {"error", "fill"}
        Whether chunks that are not in a store read as its fill value.
    storage_options : dict or None
        For the file system of a URL.
    decode : bool or None
        Whether packed numbers are decoded.
    """

    sample_axis: int | None = None
    sample_dim: Any = None
    layer: str | None = None
    missing_chunks: str = "error"
    storage_options: Any = None
    decode: bool | None = None

    @classmethod
    def among(cls, arguments: Mapping[str, Any]) -> "Ask":
        """Of the arguments of a call."""
        return cls(*(arguments[name] for name in cls._fields))

    @classmethod
    def of(cls, options: Options) -> "Ask":
        """What the options of a fit say."""
        return cls(*(getattr(options, name) for name in cls._fields))

    @classmethod
    def as_recorded(cls, settings: Mapping[str, Any]) -> "Ask":
        """How the data of a fit were read, by its settings.

        Before there was `decode`, stored numbers were taken as they are.
        """
        dim, layer = settings.get("sample_dim"), settings.get("layer")
        return cls(settings["sample_axis"], dim, layer, decode=settings.get("decode", False))

    def decodes(self, fitted: "Ask") -> bool:
        """`decode`, checked: if it is left out that of `fitted`, else True."""
        said = (one for one in (self.decode, fitted.decode) if one is not None)
        decode = next(said, True)
        FLAG.check("decode", decode)
        return decode
