"""Components small enough for a row of a table in a notebook: no scripts, no files, a few bytes."""

import base64
import struct
import zlib

import numpy as np
from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.result.canvas import NEGATIVE, POSITIVE
from streamsvd.result.raster import Raster

MOST_PIXELS, MOST_BARS = 32, 40
"""Of a side of an image; in a row of bars."""


HEIGHT = 40
"""Of an image, in the pixels of a page."""


MIDDLE = (247, 247, 247)
"""Between blue and red, as in pictures."""


LEVELS = 7
"""Colours on each side of zero; then come exact zeros, and features without any value: 4 bits."""


ZERO, BLANK = 2 * LEVELS, 2 * LEVELS + 1


def image(values: Array, raster: Raster, label: str) -> str:
    """Loadings (n,) on their grid, on a scale of their own, zeros in grey; NaN is transparent."""
    small = _largest(values[raster.places])
    source = base64.b64encode(_png(_levels(small))).decode()
    width = max(8, min(4 * HEIGHT, round(HEIGHT / raster.aspect)))
    return (
        f'<img src="data:image/png;base64,{source}" alt="{label}" title="{label}" '
        f'style="width:{width}px;height:{HEIGHT}px;max-width:none;image-rendering:pixelated"/>'
    )


def bars(row: sparse.csr_array, label: str) -> str:
    """Loadings (1, n) as bars up and down from a line; of many features the largest of each run."""
    n = row.shape[1]
    run = -(-n // MOST_BARS)
    count = -(-n // run)
    heights = np.zeros(count)
    order = np.argsort(np.abs(row.data), kind="stable")  # what is written last, stays
    heights[row.indices[order] // run] = row.data[order]
    sizes = np.round(10 * heights / (np.abs(heights).max() or 1.0)).astype(int)
    paths = "".join(
        _path(np.flatnonzero(chosen), sizes, color)
        for chosen, color in ((sizes > 0, POSITIVE), (sizes < 0, NEGATIVE))
    )
    return (
        f'<svg width="{count * max(2, 120 // count)}" height="22" '
        f'viewBox="-.5 -11 {count} 22" preserveAspectRatio="none"><title>{label}</title>'
        f'<path d="M-.5 0H{count}" stroke="#888" stroke-width=".5"/>{paths}</svg>'
    )


def _path(places: Array, sizes: Array, color: str) -> str:
    if not len(places):
        return ""
    lines = "".join(f"M{k} 0v{-sizes[k]}" for k in places.tolist())
    return f'<path d="{lines}" stroke="{color}" stroke-width=".8"/>'


def _largest(values: Array) -> Array:
    """An image with at most `MOST_PIXELS` a side: of pixels that become one, that of largest size.

    NaN where none of them has any value.
    """
    steps = [-(-size // MOST_PIXELS) for size in values.shape]
    height, width = (-(-size // step) for size, step in zip(values.shape, steps, strict=True))
    whole = np.full((height * steps[0], width * steps[1]), np.nan)
    whole[: values.shape[0], : values.shape[1]] = values
    parts = whole.reshape(height, steps[0], width, steps[1]).swapaxes(1, 2)
    blocks = parts.reshape(height, width, -1)
    size = np.where(np.isnan(blocks), -1.0, np.abs(blocks))
    return np.take_along_axis(blocks, size.argmax(axis=2)[..., None], axis=2)[..., 0]


def _levels(values: Array) -> Array:
    """Numbers of the colours of `_palette`."""
    largest = np.nanmax(np.abs(values)) if not np.isnan(values).all() else 0.0
    share = np.nan_to_num(values) / (largest or 1.0)
    levels = np.minimum((share + 1) * LEVELS, 2 * LEVELS - 1).astype(np.uint8)
    levels[values == 0] = ZERO
    levels[np.isnan(values)] = BLANK
    return levels


def _palette() -> Array:
    """(16, 3) colours, from negative to positive, zero, blank."""
    share = np.linspace(-1, 1, 2 * LEVELS)[:, None]
    ends = np.where(share < 0, *(list(bytes.fromhex(end[1:])) for end in (NEGATIVE, POSITIVE)))
    scale = np.round(np.array(MIDDLE) + np.abs(share) * (ends - np.array(MIDDLE)))
    return np.vstack([scale, [[224] * 3, [255] * 3]]).astype(np.uint8)


def _png(levels: Array) -> bytes:
    """An image with a palette, of which one colour is transparent, as a file (PNG, ISO 15948)."""
    height, width = levels.shape
    pairs = np.pad(levels, ((0, 0), (0, width % 2))).reshape(height, -1, 2)
    packed = pairs[..., 0] << 4 | pairs[..., 1]
    rows = np.pad(packed, ((0, 0), (1, 0)))  # each begins with its filter: none
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 4, 3, 0, 0, 0)),
        (b"PLTE", _palette().tobytes()),
        (b"tRNS", b"\xff" * BLANK + b"\0"),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
        (b"IEND", b""),
    )
    parts = [b"\x89PNG\r\n\x1a\n"]
    for kind, data in chunks:
        parts += [struct.pack(">I", len(data)), kind, data]
        parts.append(struct.pack(">I", zlib.crc32(kind + data)))
    return b"".join(parts)
