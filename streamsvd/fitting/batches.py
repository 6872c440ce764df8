"""What batches of samples are added up to, before anyone knows how many will come."""

import copy
import logging
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from typing import Any

import numpy as np

from streamsvd.arrays import Array
from streamsvd.data.source import Source
from streamsvd.errors import OptionError
from streamsvd.fitting.planning import posed
from streamsvd.options import Options
from streamsvd.passes.factor import FactorSum
from streamsvd.passes.gaps import GappyGram
from streamsvd.passes.gram import GramSum
from streamsvd.passes.sample_sum import SampleSum
from streamsvd.passes.strips import LARGEST, GappyReader, sum_strips
from streamsvd.passes.summed import Batches
from streamsvd.plan import PLANS, choose_sum
from streamsvd.result.svd_result import SVDResult
from streamsvd.system import free_memory, n_cpus

logger = logging.getLogger("streamsvd")


def begin_sum(n_features: int, options: Options, weights: Array | None = None) -> SampleSum:
    """An empty sum in the form of ``X X^T`` that is asked for, or suits `n` and the memory.

    `weights` are those of the features.

    Refuses one that cannot be held, and what the fit would refuse of any samples.
    """
    if options.reduction == "samples":
        raise OptionError(
            'reduction="samples" needs all samples at once, and batches are only summed up: use '
            '"gram" or "factor" with partial_fit, or fit'
        )
    if options.normalize == "variables":
        raise OptionError(
            'normalize="variables" is for several variables, and batches are of one: leave it out, '
            "or fit"
        )
    is_gappy = options.missing == "mean"
    if is_gappy and options.reduction == "factor":
        raise OptionError(
            'missing="mean" in batches is for the Gram matrix: pass reduction="gram" with '
            "partial_fit, or fit"
        )
    batches, most = Batches(n_features), options.memory_bytes or free_memory() // 2
    form, why = options.reduction, "as asked"
    if form is None and (is_gappy or not options.refine):
        form, why = "gram", "for what is missing" if is_gappy else "for the greedy path"
    if form is None:
        form, why = choose_sum(posed(batches, replace(options, reduction="gram")), most)
    problem = posed(batches, replace(options, reduction=form))
    plan = PLANS[form](problem, memory_limit=most)
    logger.info("reduction=%r: %s; %s", form, why, plan.describe())
    asked = (options.center, options.normalize, options.n_threads or n_cpus())
    total: SampleSum
    if form == "gram":
        total = (GappyGram if is_gappy else GramSum)(n_features, *asked)
    else:
        total = FactorSum(n_features, problem.asked_rank, *asked, weights)
    total.weights = weights
    return total


def sum_of(made: SVDResult, n_threads: int | None) -> SampleSum:
    """The sum of the samples of a fit, for batches to be added: its Gram matrix in their units.

    Refuses a fit that has not kept one, or whose sum lacks what more samples would need.
    """
    learned, gram = made.preprocessing, made.gram
    why = None
    if made.missing is not None or made.settings["normalize"] == "variables":
        why = 'with missing="mean" or normalize="variables"'
    elif learned.normalize == "features" and learned.center != "features":
        why = 'with normalize="features" and without center="features"'
    elif made.settings["reduction"] != "gram":
        why = f"with reduction={made.settings['reduction']!r}"
    elif gram is None:
        why = "in a copy"
    if why is not None or gram is None:
        raise OptionError(
            f"fit keeps no sums {why}, to which batches could be added: pass all batches to "
            "partial_fit of a new estimator, or all samples to fit"
        )
    scales = np.ones(len(gram)) if learned.divisor is None else learned.divisor
    node = np.empty((len(gram) + 1, len(gram)))
    np.multiply(gram, scales, out=node[:-1])
    node[:-1] *= scales[:, None]
    node[-1] = 0.0  # samples less the shift, which is their mean where that is taken away
    asked = (learned.center, learned.normalize)
    total = GramSum.of_node(
        node, made.n_samples, learned.mean.copy(), *asked, n_threads or n_cpus()
    )
    total.weights, total.weight = learned.weights, made.weight
    return total


def with_batch(total: SampleSum, source: Source, weights: Array | None = None) -> SampleSum:
    """The sum with the samples of `source`; a batch that cannot be read to its end changes nothing.

    It is a copy of `total` that is added to, where that is not known before the first is added.
    `weights` are those of the samples.
    """
    if isinstance(total, GappyGram):
        reader = GappyReader(source, source.sum_dtype, largest=LARGEST**0.5)
        strips: Iterator[Any] = (strip for _, strip in reader)
    else:
        strips = iter(sum_strips(source, total.takes_sparse(source)))
    first = list(islice(strips, 2))
    if len(first) == 2:
        total = copy.deepcopy(total)
    total.extend(chain(first, strips), weights=weights)
    return total
