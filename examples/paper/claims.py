"""The paper's claims, each beside what the rows of a run say."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from figure1 import AccuracyRow
from figure2 import SPARSE, KnnRow
from tables import markdown, percent, power, seconds

REPORTED_SECONDS = {"mnist": 300.0, "usps": 6.0}
"""What the paper reports for 2^16 transforms."""


@dataclass(frozen=True)
class KnnMean:
    """`KnnRow`, averaged over the splits."""

    data: str
    method: str
    transforms: int | None
    target_fill: float | None
    splits: int
    fill: float
    accuracy: float
    accuracy_std: float
    seconds: float


def averaged(rows: list[KnnRow]) -> list[KnnMean]:
    """One entry for each data set, method and point, in the order of the first rows."""

    def key(row: KnnRow) -> tuple[str, str, int | None, float | None]:
        return row.data, row.method, row.transforms, row.target_fill

    order = {k: place for place, k in enumerate(dict.fromkeys(key(row) for row in rows))}
    means = []
    for k, group in groupby(sorted(rows, key=lambda row: order[key(row)]), key):
        same = list(group)
        accuracies = [row.accuracy for row in same]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # not timed on any split
            mean_seconds = float(np.nanmean([row.seconds for row in same]))
        means.append(
            KnnMean(
                *k,
                splits=len(same),
                fill=float(np.mean([row.fill for row in same])),
                accuracy=float(np.mean(accuracies)),
                accuracy_std=float(np.std(accuracies)),
                seconds=mean_seconds,
            )
        )
    return means


# ------------------------------------------------------------------------------------- ordering


def ordering(rows: list[AccuracyRow]) -> str:
    """Claim: proposed above Kogbetliantz above random, at equal numbers of transforms or blocks.

    The first picks are often the same: equal counts as above.
    """
    lines = []
    for data, unit in dict.fromkeys((row.data, row.unit) for row in rows):
        found = {
            method: {r.steps: r.accuracy for r in rows if (r.data, r.unit, r.method) == where}
            for method in ("proposed", "Kogbetliantz", "random")
            for where in [(data, unit, method)]
        }
        steps = sorted(found["proposed"])
        lines.append(
            [
                f"{data}, {unit}",
                _holds(found["proposed"], found["Kogbetliantz"], steps),
                _holds(found["Kogbetliantz"], found["random"], steps),
                *(percent(found[method][steps[-1]]) for method in found),
                power(steps[-1]),
            ]
        )
    header = ["data", "proposed >= Kogbetliantz", "Kogbetliantz >= random"]
    return markdown([*header, "proposed %", "Kogbetliantz %", "random %", "after"], lines)


def _holds(above: dict[int, float], below: dict[int, float], steps: list[int]) -> str:
    """At how many points, and where not."""
    fails = [k for k in steps if above[k] < below[k] - 1e-9 * abs(below[k])]
    count = f"{len(steps) - len(fails)} of {len(steps)}"
    return count if not fails else f"{count} (not at {_ranges(fails, steps)})"


def _ranges(fails: list[int], steps: list[int]) -> str:
    places = [steps.index(k) for k in fails]
    runs = groupby(enumerate(places), lambda entry: entry[1] - entry[0])
    ends = [[place for _, place in run] for _, run in runs]
    return ", ".join(
        str(steps[run[0]]) if len(run) == 1 else f"{steps[run[0]]} to {steps[run[-1]]}"
        for run in ends
    )


# ------------------------------------------------------------------------------- fill and times


def sparse_enough(means: list[KnnMean]) -> str:
    """Claim: with a fill of at most 1 %, 25-NN accuracy within a few percent of the best."""
    lines = []
    for data in dict.fromkeys(mean.data for mean in means):
        own = [mean for mean in means if mean.data == data]
        best = max(mean.accuracy for mean in own)
        for method in dict.fromkeys(mean.method for mean in own):
            within = [m for m in own if m.method == method and m.fill <= SPARSE]
            if within:
                top = max(within, key=lambda m: m.accuracy)
                lines.append(
                    [
                        f"{data}, {method}",
                        percent(top.fill, 2),
                        percent(top.accuracy),
                        percent(best),
                        f"{100 * (best - top.accuracy):.1f}",
                    ]
                )
    header = ["method", "fill %", "25-NN %", "best of all %", "points below"]
    return markdown(header, lines)


def times(means: list[KnnMean]) -> str:
    """Claims: below a second up to 2^8 transforms; 300 s and 6 s at 2^16."""
    lines = []
    for data in dict.fromkeys(mean.data for mean in means):
        for mean in means:
            if (mean.data, mean.method) == (data, "proposed") and mean.transforms is not None:
                reported = "-"
                if mean.transforms <= 2**8:
                    reported = "< 1"
                elif mean.transforms == 2**16:
                    reported = seconds(REPORTED_SECONDS.get(data, np.nan))
                lines.append([data, power(mean.transforms), seconds(mean.seconds), reported])
    return markdown(["data", "transforms", "seconds", "paper"], lines)


def rivals(means: list[KnnMean]) -> str:
    """Claim: the other methods are slower. Every method with its fill, accuracy and time."""
    return markdown(
        ["method", "asked", "fill %", "25-NN %", "std", "splits", "seconds"],
        (_line(mean) for mean in means),
    )


def _line(mean: KnnMean) -> list[str]:
    asked = "-"
    if mean.transforms is not None:
        asked = power(mean.transforms)
    elif mean.target_fill is not None:
        asked = f"{100 * mean.target_fill:g} %"
    return [
        f"{mean.data}, {mean.method}",
        asked,
        percent(mean.fill, 2),
        percent(mean.accuracy),
        percent(mean.accuracy_std),
        str(mean.splits),
        seconds(mean.seconds),
    ]


def accuracies(rows: list[AccuracyRow], unit: str, *, free: bool) -> str:
    """Figure 1 as a table, at every other power of two.

    `free`: with the right vectors that are best for the components, instead of the paper's measure.
    """
    own = [row for row in rows if row.unit == unit and (free or not np.isnan(row.accuracy))]
    steps = sorted({row.steps for row in own if np.log2(row.steps) % 2 == 0})
    lines = []
    for data, method in dict.fromkeys((row.data, row.method) for row in own):
        line = {r.steps: r for r in own if (r.data, r.method) == (data, method)}
        values = [line[k].accuracy_free if free else line[k].accuracy for k in steps]
        lines.append([f"{data}, {method}", *(percent(value) for value in values)])
    return markdown([unit, *(power(k) for k in steps)], lines)


def report(accuracy: list[AccuracyRow], knn: list[KnnRow]) -> Iterator[str]:
    """The whole page, by sections."""
    if accuracy:
        yield f"## Ordering of the methods\n\n{ordering(accuracy)}"
        for unit in dict.fromkeys(row.unit for row in accuracy):
            for free, measure in ((False, "the paper's measure"), (True, "with the best V")):
                table = accuracies(accuracy, unit, free=free)
                yield f"## Accuracy in %, {measure}\n\n{table}"
    if knn:
        means = averaged(knn)
        yield f"## Best 25-NN accuracy with a fill of at most 1 %\n\n{sparse_enough(means)}"
        yield f"## Running times of the proposed method\n\n{times(means)}"
        yield f"## Figure 2\n\n{rivals(means)}"
