"""Timings that are compared: of calls taken in turn, so that the ratios hold."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np


def best(repeat: int, *works: Callable[[], Any]) -> list[float]:
    """Least seconds of each of some calls, taken in turn."""
    seconds = [np.inf] * len(works)
    for _ in range(repeat):
        for k, work in enumerate(works):
            start = time.perf_counter()
            work()
            seconds[k] = min(seconds[k], time.perf_counter() - start)
    return seconds
