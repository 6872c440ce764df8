"""What a solution says of itself: lines and tables of text."""

from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import numpy as np
from dask.utils import format_bytes

from streamsvd.options import LIMITS, Options
from streamsvd.result.percent import percent
from streamsvd.result.solution import Solution

OF_A_FACTOR = ", of a factor; accuracy(X) measures that of the data"

SHOWN = 10
"""Components that a representation lists; tables that are asked for list all."""


def headline(made: Solution) -> str:
    """One line, like the call that would make it."""
    explained = ""
    ratio = float(made.explained_variance_ratio.sum())
    if not np.isnan(ratio):
        explained = f", explained_variance={'' if made.is_exact else '~'}{ratio:.4g}"
    if made.refined is not None:
        explained += ", refined"
    return (
        f"SVDResult(n_components={made.n_components}, n_features={made.n_features}, "
        f"n_samples={made.n_samples}, n_transforms={made.n_transforms}, "
        f"fill={made.fill:.4g}{explained})"
    )


def facts(made: Solution) -> dict[str, str]:
    """Sizes, how good it is and what it cost, by name."""
    explained = float(made.explained_variance_ratio.sum())
    found = {
        "data": f"{made.n_features} features x {made.n_samples} samples, worked on in {made.dtype}",
        "reduction": made.settings["reduction"] or "none",
        "components": str(made.n_components) + (", refined" if made.refined is not None else ""),
        "transforms": f"{made.n_transforms}; {_ending(made)}",
        "fill": f"{made.n_nonzeros} nonzeros, {percent(made.fill)}",
        "singular values": f"{made.singular_values.sum():.6g} in sum",
        "explained variance": percent(explained) + ("" if made.is_exact else OF_A_FACTOR),
    }
    if made.certified is not None:
        found["at most"] = (
            f"{percent(made.certified.bound)}, by any {made.n_components} orthonormal components "
            f"with {made.certified.max_nonzeros} nonzeros"
        )
    if made.mean_stability is not None:
        share = np.average(made.mean_stability, weights=np.diff(made.components.indptr))
        found["stability"] = f"{share:.0%} of the nonzeros chosen again"
    if made.feature_mask is not None:
        found["mask"] = f"{np.count_nonzero(made.feature_mask)} of the features take part"
    if made.missing is not None:
        found["missing"] = f"{made.n_missing} values, as means of their features"
        if len(made.missing.left_out):
            n_out = len(made.missing.left_out)
            found["missing"] += f"; {n_out} features have none and are left out"
    weights = made.preprocessing.weights
    if weights is not None:
        found["weights"] = f"of features, from {weights.min():.3g} to {weights.max():.3g}"
    if made.weight is not None:
        found["samples"] = f"weigh {made.weight:.6g} in all"
    if made.seconds is not None:
        found["time"] = f"{made.seconds:.1f} s"
    if made.bytes_read is not None:
        found["read"] = format_bytes(made.bytes_read)
    return found


def _ending(made: Solution) -> str:
    """Why there are no more transforms."""
    if made.n_transforms < len(made.log):
        return f"of the {len(made.log)} of the fit"
    if made.stopped == "n_transforms":
        return "as many as were to be made"
    asked = made.settings
    if made.stopped == "converged":
        tol = f" by more than tol={asked['tol']:g}" if asked.get("tol") else ""
        return f"no other would improve the fit{tol}"
    limits: dict[str, Any] = {name: asked.get(name) for name in LIMITS}
    budget = Options(n_components=made.n_components, **limits).budget(made.n_fitted)
    cap = asked.get("max_nonzeros_per_component")
    each = "" if cap is None else f", at most {cap} a component,"
    return f"the budget of {budget} nonzeros{each} is spent"


def component_rows(made: Solution) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Head and rows of a table with one row for each component, counted from 0 as in code."""
    ratios = made.explained_variance_ratio.tolist()
    rows = zip(
        map(str, range(made.n_components)),
        (f"{value:.6g}" for value in made.singular_values.tolist()),
        map(str, np.diff(made.components.indptr).tolist()),
        map(percent, ratios),
        map(percent, accumulate(ratios)),
        strict=True,
    )
    head = ("component", "singular value", "nonzeros", "explained variance", "cumulative")
    return head, list(rows)


# ---------------------------------------------------------------------------------- as text


def text(made: Solution) -> str:
    """`headline`, `facts` and the first components: the ``repr``."""
    head, rows = component_rows(made)
    shown = table(head, rows[:SHOWN])
    if len(rows) > SHOWN:
        shown.append(f"... and {len(rows) - SHOWN} more")
    lines = [*summary(made), "", *shown]
    return "\n".join([headline(made), *(f"  {line}".rstrip() for line in lines)])


def summary(made: Solution) -> list[str]:
    """`facts` as lines."""
    return aligned(facts(made))


def aligned(found: dict[str, str]) -> list[str]:
    """Names and values, one a line."""
    return [f"{name:<18}  {value}" for name, value in found.items()]


def component_table(made: Solution) -> list[str]:
    """Lines of a table with all components."""
    return table(*component_rows(made))


def report(made: Solution) -> list[str]:
    """Lines with sizes, options, components and the history at powers of two."""
    history, m = made.history, made.n_transforms
    steps = sorted({2**k for k in range(m.bit_length())} | {m} - {0})
    rows = [(str(k), f"{history.trace[k - 1]:.6g}", percent(history.fill[k - 1])) for k in steps]
    return [
        *summary(made),
        "",
        *aligned({name: str(value) for name, value in sorted(made.settings.items())}),
        "",
        *component_table(made),
        "",
        *table(("transforms", "trace", "fill"), rows),
    ]


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Lines of a table with columns flush right."""
    lines = [list(head), *(list(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    ]
