"""Shares in percent, alike in tables, notebooks and pictures."""

import math


def percent(share: float, decimals: int = 2) -> str:
    """A share in percent, with two digits that say something however small it is.

    So many `decimals` from one percent on, more below; a dash for NaN, ``0%`` for nothing at all.
    """
    if math.isnan(share):
        return "-"
    if share == 0:
        return "0%"
    size = abs(100 * share)
    if size >= 0.995:
        return f"{share:.{decimals}%}"
    if size < 1e-4:
        return f"{100 * share:.1e}%"
    return f"{share:.{max(decimals, 1 - math.floor(math.log10(size)))}%}"
