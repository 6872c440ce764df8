"""What a fit will take, and whether it can be done at all, from its source and options."""

from itertools import pairwise
from typing import Any

import numpy as np
from dask.utils import format_bytes, parse_bytes

from streamsvd.cluster.engine import WORKER_SHARE, share_bounds
from streamsvd.cluster.waiting import check_client, workers_of
from streamsvd.data.source import Source
from streamsvd.data.zarr_sources import ZarrSource
from streamsvd.errors import OptionError, ResourceError
from streamsvd.options import Options, working_dtype
from streamsvd.plan import Plan, make_gram_plan, make_plan
from streamsvd.storage.raw import raw_chunk_paths
from streamsvd.system import free_memory


def plan_fit(source: Source, options: Options, client: Any = None) -> Plan:
    """What the fit of `source` will take; refuses one that cannot be done.

    With a client, what it will take of each worker; of this process for the Gram matrix.
    """
    dtype = working_dtype(source.dtype, options.dtype)
    if client is not None:
        check_client(client)
        if options.reduction != "gram":
            return plan_shares(client, source, options, dtype, options.memory_bytes)
    sizes = {
        "n_features": source.n_features,
        "n_samples": source.n_samples,
        "n_components": options.n_components,
        "source_chunk": source.chunk,
        "source_itemsize": source.dtype.itemsize,
        "source_chunk_bytes": source.chunk_bytes,
        "decoded_bytes": source.decoded_bytes,
        "memory_limit": options.memory_bytes or free_memory() // 2,
    }
    width = None
    if isinstance(source, ZarrSource):
        place = "either" if options.workspace is None else "disk"
    elif options.workspace is not None:
        raise OptionError("workspace= is for sources in Zarr arrays; write the data to one first")
    else:
        place = "memory" if type(source.array) is np.ndarray else "either"
    if options.overwrite_x:
        place = "given"
        if isinstance(source, ZarrSource):
            raw_chunk_paths(source.array, dtype)
            width = source.array.chunks[1]
        else:
            _check_own_memory(source.array, dtype)
    if options.refine or options.reduction == "gram":
        is_block = options.algorithm == "block" and options.reduction == "gram"
        steps = options.transforms_for(source.n_features) if is_block else 0
        reduced = make_gram_plan(**sizes, n_block_steps=steps)
        if options.reduction == "gram":
            return reduced
    return make_plan(
        **sizes,
        n_transforms=options.transforms_for(source.n_features),
        itemsize=dtype.itemsize,
        place=place,
        width=width,
        counts_fill=bool(options.fill_penalty) or options.budget(source.n_features) is not None,
        is_block=options.algorithm == "block",
    )


def _check_own_memory(x: Any, dtype: np.dtype[Any]) -> None:
    if not isinstance(x, np.ndarray):
        raise OptionError("overwrite_x=True is for NumPy arrays and local Zarr arrays")
    if x.dtype != dtype or not x.flags.c_contiguous or not x.flags.writeable:
        raise OptionError(
            f"overwrite_x=True needs a writeable C-contiguous {dtype} array with samples as "
            f"columns; got {x.dtype}, C-contiguous: {x.flags.c_contiguous}, writeable: "
            f"{x.flags.writeable}; leave it out to work on a copy"
        )


def plan_shares(
    client: Any, source: Source, options: Options, dtype: np.dtype[Any], limit: int | None
) -> Plan:
    """The plan of the largest share; refuses one that a worker cannot hold."""
    if options.overwrite_x:
        raise OptionError("overwrite_x=True is for one process: leave it out with a client")
    if not isinstance(source, ZarrSource):
        raise OptionError(
            f"{source.name} cannot be read by the workers; write it to a Zarr store that they see, "
            'or use reduction="gram" for a Dask array'
        )
    there = workers_of(client)
    if not there:
        raise ResourceError("the cluster has no workers; start some first")
    bounds = share_bounds(source, len(there))
    limits = [parse_bytes(w["memory_limit"]) for w in there.values() if w.get("memory_limit")]
    most = limit or int(WORKER_SHARE * min(limits, default=2**34))
    try:
        return make_plan(
            n_features=source.n_features,
            n_samples=max(b - a for a, b in pairwise(bounds)),
            n_components=options.n_components,
            n_transforms=options.transforms_for(source.n_features),
            itemsize=dtype.itemsize,
            source_chunk=source.chunk,
            source_itemsize=source.dtype.itemsize,
            source_chunk_bytes=source.chunk_bytes,
            decoded_bytes=source.decoded_bytes,
            memory_limit=most,
            place="either",
            is_block=options.algorithm == "block",
        )
    except ResourceError as error:
        raise ResourceError(
            f"each of the {len(there)} workers may take {format_bytes(most)}; {error}; or add "
            "workers"
        ) from error
