"""``X X^T`` of a source in each of its forms, read here or by tasks of a cluster."""

from typing import Any, NamedTuple

import numpy as np

from streamsvd.arrays import Array
from streamsvd.cluster.factor import cluster_factor
from streamsvd.cluster.tasks import cluster_gram
from streamsvd.data.source import Source
from streamsvd.passes.factor import data_of, factor_of
from streamsvd.passes.gram import gram_matrix
from streamsvd.passes.ingest import n_passes
from streamsvd.passes.preprocessing import Preprocessing
from streamsvd.progress import Progress, progress_of_passes
from streamsvd.refinement import Covariance, Factor, Gram, Samples


class Formed(NamedTuple):
    """``A = X X^T``, and what was learned of the data."""

    covariance: Covariance
    diagonal: Array
    """(n,) of `A`: the sum of squares of each feature, centred and scaled."""
    preprocessing: Preprocessing


def covariance_of(
    form: str,
    source: Source,
    center: str | None,
    normalize: str | None,
    rank: int,
    *,
    client: Any,
    width: int | None = None,
    n_threads: int,
    progress: Progress,
) -> Formed:
    """``X X^T`` of the centred and scaled source.

    Parameters
    ----------
    form : {"gram", "samples", "factor"}
        Samples are read here in any case.
    rank : int
        Of the factor.
    client : distributed.Client or None
    width, n_threads : int
        Samples to read at a time, and what multiplies, where it is done here.
    """
    asked = (source, center, normalize)
    passes = {"gram": 1, "samples": n_passes(center, normalize), "factor": 2}
    with progress_of_passes(progress, form, source.n_samples, passes[form]) as advance:
        if form == "gram":
            if client is not None:
                gram, preprocessing = cluster_gram(client, *asked, advance)
            else:
                gram, preprocessing = gram_matrix(*asked, width, n_threads, advance)
            return Formed(Gram(gram), np.diag(gram).copy(), preprocessing)
        if form == "samples":
            data = data_of(*asked, width=width, on_samples=advance)
            return Formed(Samples(data.data), data.diagonal, data.preprocessing)
        if client is not None:
            made = cluster_factor(client, *asked, rank, advance)
        else:
            made = factor_of(*asked, rank, width=width, n_threads=n_threads, on_samples=advance)
    return Formed(Factor(made.factor, made.rest), made.diagonal, made.preprocessing)
