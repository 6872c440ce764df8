"""What a fit is asked for and what it will take, and whether it can be done at all."""

import logging
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from dask.utils import format_bytes, parse_bytes

from streamsvd.cluster.engine import WORKER_SHARE, share_bounds
from streamsvd.cluster.waiting import check_client, workers_of
from streamsvd.data.source import Source
from streamsvd.data.weights import record_of, sample_weights_of, weights_of
from streamsvd.errors import OptionError, ResourceError
from streamsvd.options import Options
from streamsvd.options.rules import MODELS, working_dtype
from streamsvd.passes.strips import stays_sparse
from streamsvd.passes.summed import SummedSamples
from streamsvd.plan import PLANS, Plan, choose_reduction, make_plan
from streamsvd.problem import Problem
from streamsvd.system import free_memory

logger = logging.getLogger("streamsvd")


def weighed(source: Source, options: Options) -> Options:
    """Weigh features and samples as `options` ask; the same options, as they are recorded.

    Batches were weighed when they came.
    """
    weights, asked = source.present.weights, options.sample_weights
    if asked is not None and options.reduction is None:
        raise OptionError(
            "sample_weights= are of sums over samples, and a fit in place depends on the samples "
            'themselves: pass reduction="gram" with it'
        )
    if source.is_readable:
        weights = weights_of(source, options.feature_weights)
        source.weigh(weights)
        source.sample_weights = sample_weights_of(source, asked)
    return replace(
        options,
        feature_weights=record_of(options.feature_weights, weights),
        sample_weights=record_of(asked, source.sample_weights),
    )


def resolve(source: Source, options: Options) -> Problem:
    """The problem that `options` pose of `source`; refuses one that its shape rules out.

    Where components are asked for as a share, that of one component.
    """
    options = with_number(source, options)
    of_data = (source.n_features, source.n_samples, source.sample_axis)
    options.check_shape(*of_data, source.mask is not None)
    return posed(source, options)


def posed(source: Source, options: Options) -> Problem:
    """The same before the number of samples is known."""
    is_share, options = options.share is not None, with_number(source, options)
    is_reduced, budget = options.reduction is not None, options.budget(source.n_features)
    is_gappy = not source.is_readable and options.missing == "mean"
    is_refined = options.refine and budget is not None
    if options.reduction in MODELS and not is_refined:
        raise OptionError(
            f'reduction="{options.reduction}" refines components within a budget: pass refine=True '
            "and max_fill or max_nonzeros"
        )
    return Problem(
        **source.sizes(),
        n_components=options.n_components,
        n_transforms=options.transforms_for(source.n_features),
        dtype=np.dtype(np.float64) if is_reduced else working_dtype(source.dtype, options.dtype),
        reduction=options.reduction,
        rank=options.rank,
        algorithm=options.algorithm,
        selection=options.score,
        budget=budget,
        fill_penalty=options.fill_penalty,
        relaxes=options.refine and options.effort == "high",
        seed=options.seed(),
        n_stored=source.n_stored if stays_sparse(source, options.center) else None,
        may_be_factor=is_refined and not (is_share or is_gappy or options.algorithm == "block"),
        gram_parts=3 if is_gappy else 1,
    )


def with_number(source: Source, options: Options) -> Options:
    """The same options with a number of components: one, where a share is to tell how many.

    As many as there can be, where None asks for them. Refuses a share where nothing tells what
    components explain.
    """
    if options.takes_all:
        return replace(options, n_components=min(source.n_features, source.n_samples))
    if options.share is None:
        return options
    if options.reduction not in ("gram", "samples"):
        raise OptionError(
            f"n_components={options.share:g}, a share of the variance, needs all that PCA explains,"
            f' which reduction={options.reduction!r} does not tell: pass reduction="gram", or '
            '"samples" for few samples, or a number'
        )
    return replace(options, n_components=1, batch_size=1)


def choose_form(source: Source, options: Options) -> Options:
    """The same options, with the form of ``X X^T`` that suits the source where none is given.

    The Gram matrix where nothing is refined; of batches what they were summed up to.
    """
    if isinstance(source, SummedSamples):
        return source.agreed(options)
    if options.reduction is not None:
        return options
    on_gram = replace(options, reduction="gram")
    if not options.refine:
        return on_gram
    problem = resolve(source, on_gram)  # what counts are the sizes, which any form tells
    most = options.memory_bytes or free_memory() // 2
    form, why = choose_reduction(problem, most, exact=options.share is not None)
    logger.info("reduction=%r: %s", form, why)
    return replace(options, reduction=form)


def plan_fit(source: Source, problem: Problem, options: Options, client: Any = None) -> Plan:
    """What the fit of `source` will take; refuses one that cannot be done.

    With a client, what it will take of each worker; of this process for the Gram matrix.
    """
    if client is not None:
        check_client(client)
        if not problem.is_reduced:
            return plan_shares(client, source, problem, options)
    most = options.memory_bytes or free_memory() // 2
    place, width = _place(source, options, problem.dtype)
    if problem.reduction is not None:
        return PLANS[problem.reduction](problem, memory_limit=most)
    return make_plan(problem, memory_limit=most, place=place, width=width)


def _place(source: Source, options: Options, dtype: np.dtype[Any]) -> tuple[str, int | None]:
    """Where the working matrix may be, and its chunk width where it is there already."""
    if options.workspace is not None and not source.is_resumable:
        raise OptionError("workspace= is for sources in Zarr arrays; write the data to one first")
    if options.overwrite_x:
        in_memory = source.own_memory(dtype) is not None
        return "given", None if in_memory else source.raw_chunks(dtype)[1]
    if options.workspace is not None:
        return "disk", None
    return "memory" if source.is_resident else "either", None


def plan_shares(client: Any, source: Source, problem: Problem, options: Options) -> Plan:
    """The plan of the largest share; refuses one that a worker cannot hold."""
    if options.overwrite_x:
        raise OptionError("overwrite_x=True is for one process: leave it out with a client")
    if not source.is_resumable:  # what is lost is read again
        raise OptionError(
            f"{source.name} cannot be read by the workers; write it to a Zarr store that they see, "
            'or use reduction="gram" for a Dask array'
        )
    there = workers_of(client)
    if not there:
        raise ResourceError("the cluster has no workers; start some first")
    bounds = share_bounds(source, len(there))
    limits = [parse_bytes(w["memory_limit"]) for w in there.values() if w.get("memory_limit")]
    most = options.memory_bytes or int(WORKER_SHARE * min(limits, default=2**34))
    # supports are counted where pairs are picked, not on the workers
    share = replace(
        problem, n_samples=max(b - a for a, b in pairwise(bounds)), budget=None, fill_penalty=0.0
    )
    try:
        return make_plan(share, memory_limit=most, place="either")
    except ResourceError as error:
        raise ResourceError(
            f"each of the {len(there)} workers may take {format_bytes(most)}; {error}; or add "
            "workers"
        ) from error
