"""A run that goes on with fewer transforms than its log has: what a run of so many gives."""

from dataclasses import replace

from streamsvd.data.source import Source
from streamsvd.passes.measure import score_energies
from streamsvd.passes.strips import StripReader
from streamsvd.progress import Progress, progress_bar
from streamsvd.result.svd_result import SVDResult


def shortened(result: SVDResult, source: Source, progress: Progress) -> SVDResult:
    """`result` with a log that ends at its `n_transforms`, and the energies at that point.

    The working store stands at the end of the log and does not tell them. One more pass over the
    source does: the sums of squares of the scores, equal to those of the shorter run to rounding;
    all else has the same bits. The workspace keeps its whole log.
    """
    k = result.n_transforms
    whole = result.log
    log = type(whole)(whole.n_components, whole.n_features, whole.n_samples)
    log.order = whole.order
    log.extend(*whole.arrays(0, k).values())
    rows = log.components(k)
    reader = StripReader(source, result.dtype)
    with progress_bar(progress, "variance", source.n_samples) as advance:
        energies = score_energies(rows, result.preprocessing, reader, advance)
    return replace(result, log=log, final_energies=energies)
