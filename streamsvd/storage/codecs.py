"""Codecs of Zarr arrays: which are decoded at all, and how much a chunk may become.

What is stored is not trusted: a codec may run code that is in the data (``pickle``), and a few
megabytes may decode to as many gigabytes. So only codecs that are known are decoded, and the size
of what they make is known, or bounded, before it is made:

- blosc, zstd and lz4 say in their header how large the chunk becomes (zstd may say it for each
  block only, which bounds it);
- gzip, zlib, bz2 and lzma do not: they are decoded as a stream that ends at the limit;
- pcodec and zfpy are taken at their word.
"""

import asyncio
import bz2
import gzip
import io
import lzma
import math
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numcodecs.abc import Codec  # type: ignore[import-untyped]
from zarr.abc.codec import BytesBytesCodec
from zarr.codecs import ShardingCodec

from streamsvd.errors import SourceError

CHECKSUMS = ("crc32", "crc32c", "adler32", "fletcher32", "jenkins_lookup3")
FILTERS = ("delta", "fixedscaleoffset", "quantize", "bitround", "astype", "packbits", "shuffle")
COMPRESSORS = ("blosc", "zstd", "lz4", "gzip", "zlib", "bz2", "lzma")
HEADERS = ("blosc", "zstd", "lz4")
WHOLE = ("pcodec", "zfpy")

SAFE = {*CHECKSUMS, *FILTERS, *COMPRESSORS, *WHOLE}
SAFE |= {f"numcodecs.{name}" for name in SAFE}
SAFE |= {"bytes", "endian", "transpose", "sharding_indexed", "scale_offset", "cast_value"}
"""Names of the codecs of numbers that can do no more than decode, in both formats of Zarr."""

TEXT = {"vlen-utf8"}
"""Codecs of text: names of features."""

SLACK = 1024
"""Bytes that checksums and headers add to a chunk on its way."""

WIDEST = 16
"""Bytes of a number on its way through filters, at most."""

TEXT_BYTES = 1024
"""What a name may take on average."""

BLOCK = 2**17
"""The most that a block of zstd decodes to."""


class Damaged(ValueError):
    """What a chunk says of itself cannot be so."""


# --------------------------------------------------------------------------- what is decoded


def refuse_unsafe(array: Any, name: str, *, is_text: bool = False) -> None:
    """Refuse an array with a codec that is not known to be safe, before a byte is decoded."""
    for codec in codec_names(array.metadata):
        if codec not in SAFE and not (is_text and codec in TEXT):
            why = (
                "runs code that is in the data" if "pickle" in codec else "is not known to be safe"
            )
            raise SourceError(
                f"{name} is stored with the codec {codec!r}, which {why}: it is not decoded; store "
                "the data with another codec, or, if you trust them, read them yourself and pass "
                "an array, for example da.from_zarr() of Dask"
            )


def codec_names(metadata: Any) -> Iterator[str]:
    """Names of all filters, compressors and codecs of an array, also those within shards."""
    if metadata.zarr_format == 2:
        chain = [*(metadata.filters or ()), metadata.compressor]
        yield from (str(codec.codec_id) for codec in chain if codec is not None)
    else:
        yield from _names(metadata.codecs)


def _names(codecs: Iterable[Any]) -> Iterator[str]:
    for codec in codecs:
        yield str(codec.to_dict()["name"])
        if isinstance(codec, ShardingCodec):
            yield from _names((*codec.codecs, *codec.index_codecs))


# ------------------------------------------------------------------------------ how much it may be


def bounded(metadata: Any) -> Any:
    """The metadata of an array whose compressors decode no more than a chunk can hold."""
    if metadata.zarr_format == 3:
        return replace(metadata, codecs=_bounded_codecs(metadata.codecs))
    dtype = metadata.dtype.to_native_dtype()
    limit = chunk_limit(metadata.chunks, dtype, is_filtered=bool(metadata.filters))
    filters = [_bounded_v2(codec, limit) for codec in metadata.filters or ()] or None
    return replace(metadata, filters=filters, compressor=_bounded_v2(metadata.compressor, limit))


def chunk_limit(shape: tuple[int, ...], dtype: np.dtype[Any], *, is_filtered: bool) -> int:
    """Bytes that a chunk may take while it is decoded."""
    size = dtype.itemsize
    if dtype.kind in "TO":
        size = TEXT_BYTES
    elif is_filtered:
        size = max(size, WIDEST)
    return math.prod(shape) * size + SLACK


@lru_cache(maxsize=128)
def _limit_of(shape: tuple[int, ...], kind: Any) -> int:
    """`chunk_limit` of a kind of number of Zarr; for every chunk the same."""
    return chunk_limit(shape, kind.to_native_dtype(), is_filtered=False)


def _bounded_v2(codec: Any, limit: int) -> Any:
    is_known = codec is not None and codec.codec_id in COMPRESSORS
    return BoundedFilter(codec, limit) if is_known else codec


def _bounded_codecs(codecs: Iterable[Any]) -> tuple[Any, ...]:
    found = []
    for codec in codecs:
        name = str(codec.to_dict()["name"]).removeprefix("numcodecs.")
        if isinstance(codec, ShardingCodec):
            codec = replace_codecs(codec)
        elif name in COMPRESSORS:
            codec = BoundedCodec(codec, name)
        found.append(codec)
    return tuple(found)


def replace_codecs(codec: ShardingCodec) -> ShardingCodec:
    """Shards whose inner chunks are bounded."""
    return ShardingCodec(
        chunk_shape=codec.chunk_shape,
        codecs=_bounded_codecs(codec.codecs),
        index_codecs=codec.index_codecs,
        index_location=codec.index_location,
    )


class BoundedFilter(Codec):  # type: ignore[misc]
    """A compressor of Zarr v2 that decodes to `limit` bytes at most."""

    codec_id = "streamsvd.bounded"

    def __init__(self, inner: Any, limit: int) -> None:
        self.inner, self.limit = inner, limit
        self._config = inner.get_config()

    def decode(self, buf: Any, out: Any = None) -> Any:
        """The decoded bytes."""
        data = memoryview(buf).cast("B")
        streamed = unpack(self.inner.codec_id, self._config, data, self.limit)
        return self.inner.decode(buf) if streamed is None else streamed

    def encode(self, buf: Any) -> Any:
        """Not needed: what is read is not written."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """That of the compressor."""
        return dict(self.inner.get_config())


@dataclass(frozen=True)
class BoundedCodec(BytesBytesCodec):
    """A compressor of Zarr v3 that decodes to no more than the chunk can hold."""

    inner: Any
    kind: str
    is_fixed_size = False

    async def decode(self, chunks_and_specs: Iterable[tuple[Any, Any]]) -> Iterable[Any]:
        """The decoded bytes of some chunks."""
        batch = list(chunks_and_specs)
        if self.kind not in HEADERS:
            return await super().decode(batch)
        for data, spec in batch:
            if data is not None:
                self._unpack(data, spec)
        return await self.inner.decode(batch)

    async def _decode_single(self, chunk_data: Any, chunk_spec: Any) -> Any:
        content = await asyncio.to_thread(self._unpack, chunk_data, chunk_spec)
        return chunk_spec.prototype.buffer.from_bytes(content)

    def _unpack(self, chunk_data: Any, chunk_spec: Any) -> bytes | None:
        limit = _limit_of(chunk_spec.shape, chunk_spec.dtype)
        data = memoryview(chunk_data.as_numpy_array()).cast("B")
        return unpack(self.kind, getattr(self.inner, "codec_config", {}), data, limit)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
        """Not known."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """That of the compressor."""
        return dict(self.inner.to_dict())


def unpack(kind: str, config: Any, data: memoryview, limit: int) -> bytes | None:
    """What streams decode to; None of a codec that says how much it is, which is checked."""
    if kind in HEADERS:
        told = {"blosc": _of_blosc, "zstd": _of_zstd, "lz4": _of_lz4}[kind](data)
        _check(told if kind != "zstd" or told <= limit else _of_zstd_blocks(data, told), limit)
        return None
    if kind == "zlib":
        stream = zlib.decompressobj()
        content = stream.decompress(data, limit + 1)
        _check(len(content), limit)
        if not stream.eof:
            raise Damaged("the stream of zlib is truncated")
        return content
    with _stream(kind, config, io.BytesIO(data)) as file:
        content = file.read(limit + 1)
    _check(len(content), limit)
    return bytes(content)


def _stream(kind: str, config: Any, packed: io.BytesIO) -> Any:
    if kind == "gzip":
        return gzip.GzipFile(fileobj=packed)
    if kind == "bz2":
        return bz2.BZ2File(packed)
    return lzma.LZMAFile(packed, format=config.get("format", 1), filters=config.get("filters"))


def _check(size: int, limit: int) -> None:
    if size > limit:
        raise Damaged(
            f"it decodes to {size:,} bytes or more, and the array has room for {limit:,} in a chunk"
        )


# ------------------------------------------------------------------------- what headers tell


def _number(data: memoryview, start: int, count: int) -> int:
    if len(data) < start + count:
        raise Damaged(f"it is truncated: {len(data)} bytes end within a header")
    return int.from_bytes(data[start : start + count], "little")


def _of_blosc(data: memoryview) -> int:
    """A truncated chunk gives wrong numbers or kills the process: its own size is there too."""
    size = _number(data, 12, 4)
    if size != len(data):
        raise Damaged(f"it is truncated, or not of blosc: {len(data):,} bytes, not {size:,}")
    return _number(data, 4, 4)


def _of_lz4(data: memoryview) -> int:
    return _number(data, 0, 4)


def _of_zstd(data: memoryview) -> int:
    """The size of the content of the first frame, 2^64 where it does not say."""
    magic, flags = _number(data, 0, 4), _number(data, 4, 1)
    if magic != 0xFD2FB528:
        raise Damaged("it is not of zstd")
    start, width = _zstd_header(flags)
    width = width or 0
    if not width:
        return 2**64
    return _number(data, start - width, width) + (256 if width == 2 else 0)


def _zstd_header(flags: int) -> tuple[int, int]:
    """Where the blocks of a frame begin, and how many bytes before them its size takes."""
    is_single = flags >> 5 & 1
    width = (is_single, 2, 4, 8)[flags >> 6]
    return 5 + (1 - is_single) + (0, 1, 2, 4)[flags & 3] + width, width


def _of_zstd_blocks(data: memoryview, told: int) -> int:
    """An upper bound from the blocks, where the frame does not say its size."""
    if told < 2**64:
        return told
    at, size, is_last = _zstd_header(_number(data, 4, 1))[0], 0, False
    while not is_last:
        head = _number(data, at, 3)
        is_last, kind, length = bool(head & 1), head >> 1 & 3, head >> 3
        size += length if kind < 2 else BLOCK
        at += 3 + (1 if kind == 1 else length)
    return max(0, size - BLOCK)  # the last is seldom full
