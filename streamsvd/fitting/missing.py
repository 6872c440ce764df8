"""A fit of data in which values are missing: their means first, where there are any."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from streamsvd.arrays import Array
from streamsvd.cluster.tasks import cluster_missing
from streamsvd.data.missing import Filled, Missing, MissingValues, filled
from streamsvd.data.source import Source
from streamsvd.errors import SourceError
from streamsvd.fitting.planning import plan_fit, resolve
from streamsvd.options import Options
from streamsvd.passes.missing import find_missing
from streamsvd.progress import Progress, progress_bar
from streamsvd.result.svd_result import SVDResult

logger = logging.getLogger("streamsvd")

NAMED = 20
"""Features without a value that the log names."""


def fit_present(
    source: Source,
    options: Options,
    fit_one: Callable[[Source], SVDResult],
    progress: Progress,
    client: Any = None,
) -> SVDResult:
    """The fit of `source` by `fit_one`, with what is missing in it as `options` say.

    Where features are centred their means come with the fit, and data without missing values are
    read as often as ever: the pass over moments is made when the first missing value is met, and
    the fit begins anew. It is made before in a `workspace`, where a run that goes on must find the
    same means, on a cluster, and where the fit would not tell the means.
    """
    asking = Filled(source, options.missing_value, asks=options.missing == "mean")
    if options.missing == "error":
        return fit_one(asking)
    if options.center == "features" and options.workspace is None and client is None:
        try:
            made = fit_one(asking)
        except MissingValues:
            logger.info("values of %s are missing: one pass more, for the means", source.name)
        else:
            counts = np.zeros(source.n_features, dtype=np.int64)
            return replace(made, missing=Missing(made.mean, counts, source.n_samples))
    plan_fit(asking, resolve(asking, options), options, client)  # refuse what cannot be done
    source, missing = with_means(source, options.missing_value, progress, client)
    return replace(fit_one(source), missing=missing)


def with_means(
    source: Source, missing_value: float | None, progress: Progress, client: Any = None
) -> tuple[Source, Missing]:
    """`source` filled by the means of what is there, from a pass of their own."""
    asking = Filled(source, missing_value)
    with progress_bar(progress, "means", source.n_samples) as advance:
        if client is not None and (source.readable_by_workers or source.computed_by_workers):
            missing = cluster_missing(client, asking, advance)
        else:
            missing = find_missing(asking, advance)
    _report(source, missing)
    if missing.counts.any():
        source = filled(source, missing, missing_value)
    return source, missing


def _report(source: Source, missing: Missing) -> None:
    """Log what is missing; refuses data that are missing altogether."""
    n_out = len(missing.left_out)
    if n_out == source.n_features:
        raise SourceError(
            f"no feature of {source.name} has a value: check missing_value and the data"
        )
    logger.info("%d values of %s are missing", missing.n_filled, source.name)
    if n_out:
        logger.warning(
            "%d of %d features of %s have no value and are left out: %s",
            n_out,
            source.n_features,
            source.name,
            _named(source, missing.left_out),
        )


def _named(source: Source, features: Array) -> str:
    names = None if source.features is None else source.features.names
    places = source.present.places
    first = features[:NAMED] if places is None else places[features[:NAMED]]
    shown = [str(i if names is None else names[i]) for i in first]
    return ", ".join(shown) + (", ..." if len(features) > NAMED else "")
