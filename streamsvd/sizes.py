"""How data are cut into chunks, strips, batches and tiles: functions of the sizes alone."""

MIB = 2**20


CHUNK_BYTES = 32 * MIB
"""Wide enough that the rows of a chunk are long runs, small enough for any Zarr reader."""


MOST_CHUNKS = 256
"""Every row move visits every chunk, and every mapped file costs a descriptor."""


STRIP_BYTES = 32 * MIB
"""Samples are read in strips of about so many bytes, or one chunk of the source."""


BATCH_BYTES = 16 * MIB
"""Samples are multiplied in batches of about so many bytes of float64."""


LEAF_BATCHES = 8
"""Batches, at least, that one leaf of the Gram sum adds up."""


FAN_IN = 16
"""Nodes of the Gram sum that make one of the next level."""


FEW_SAMPLES = 32
"""Samples of a batch of products, at least: it reads and writes n x r numbers."""


PRODUCT_LEAF = 4096
"""Samples, at least, that one leaf of a sum of products adds up."""


ENTRY_BYTES = 16
"""A stored number of a sparse strip, with its place."""


TILE_WIDTH = 2048
"""Columns of a tile of block steps: wide enough for BLAS, few enough to stay in the cache."""


SEARCH_THREADS = 4
"""The most threads of a search."""

PAGE = 4096


def chunk_width(n_features: int, n_samples: int, itemsize: int) -> int:
    """Columns in a chunk of the working store: about `CHUNK_BYTES`, more when there are many.

    A multiple of 1024 where that leaves any: whole tiles, and rows that begin with a page.
    """
    column = n_features * itemsize
    width = max(1, CHUNK_BYTES // column)
    if width >= 1024:
        width -= width % 1024
    least = -(-n_samples // MOST_CHUNKS)
    if width < least:
        width = least + -least % 1024
    return min(width, n_samples)


def block_width(n_components: int, n_features: int, n_samples: int) -> int:
    """Indices of a block step: ``2 p``, or as many as there are."""
    return min(2 * n_components, max(n_features, n_samples))


def row_panels(n: int, rows: int) -> list[slice]:
    """`n` rows in panels of so many."""
    return [slice(first, min(first + rows, n)) for first in range(0, n, rows)]


def batch_samples(n_features: int) -> int:
    """Samples that are multiplied at a time on the way to the Gram matrix: a function of `n`."""
    return max(64, BATCH_BYTES // (8 * n_features))


def leaf_samples(n_features: int) -> int:
    """Samples that are summed up before the tree: batches of at least `n` samples in all."""
    batch = batch_samples(n_features)
    return batch * max(LEAF_BATCHES, -(-n_features // batch))


def gram_sums(n_features: int, n_samples: int) -> int:
    """Sums of n x n that are held at a time: of the leaf, and of each level of the tree."""
    return _held_sums(-(-n_samples // leaf_samples(n_features)))


def _held_sums(nodes: int) -> int:
    sums = 1
    while nodes > 1:
        sums, nodes = sums + 1, nodes // FAN_IN
    return sums


def product_batch(n_features: int) -> int:
    """Samples that are multiplied at a time with an (n, r) matrix: a function of `n`."""
    return max(FEW_SAMPLES, BATCH_BYTES // (8 * n_features))


def product_leaf(n_features: int) -> int:
    """Samples whose products are summed up before the tree: whole batches."""
    batch = product_batch(n_features)
    return batch * max(LEAF_BATCHES, -(-PRODUCT_LEAF // batch))


def product_sums(n_features: int, n_samples: int) -> int:
    """Sums of n x r that are held at a time: of the leaf, and of each level of the tree."""
    return _held_sums(-(-n_samples // product_leaf(n_features)))


def product_rows(n_features: int) -> int:
    """Features that one task multiplies: some tasks for each thread."""
    return min(2048, max(128, -(-n_features // 8)))


def sparse_width(n_samples: int, n_stored: int) -> int:
    """Sparse samples to read at a time: about `STRIP_BYTES` of what is stored."""
    sample = ENTRY_BYTES * -(-n_stored // n_samples) + 8
    return min(max(1, STRIP_BYTES // sample), n_samples)


def strip_width(
    n_features: int,
    n_samples: int,
    source_chunk: int,
    memory_limit: int | None = None,
    chunk_bytes: int = 0,
) -> int:
    """Samples to read at a time: whole chunks of the source, so that none is read twice.

    `chunk_bytes` are those that a chunk takes where that is more than its samples do.
    """
    target = STRIP_BYTES if memory_limit is None else min(STRIP_BYTES, memory_limit // 32)
    chunk = max(8 * n_features * source_chunk, chunk_bytes)
    return min(source_chunk * max(1, target // chunk), n_samples)


def search_threads(n_features: int, n_components: int, n_threads: int) -> int:
    """Threads that try starts of a refinement.

    For few features they get in each other's way; for very many each takes too much memory.
    """
    pays = n_features > 2000 and n_features * n_components <= 2_000_000
    return min(n_threads, SEARCH_THREADS) if pays else 1
