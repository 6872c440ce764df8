"""What the last bits of a fit can depend on besides its options and its source."""

import logging
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

logger = logging.getLogger("streamsvd")


def this_machine() -> dict[str, Any]:
    """Versions of what computes, and the processor; for the record."""
    return {
        "numpy": np.__version__,
        "numba": version("numba"),
        "blas": sorted(
            f"{library['internal_api']} {library['version']} {library.get('architecture', '')}"
            for library in threadpool_info()
            if library["user_api"] == "blas"
        ),
        "processor": _processor(),
    }


def warn_of_another(recorded: Any, uses_blas: bool) -> None:
    """Say so where a run goes on with other last bits than it began with.

    Pairs are scored and turned element by element, without products of matrices: the same bits on
    any processor. Block steps multiply by BLAS, which has its own code for each kind of processor.
    """
    here = this_machine()
    if not uses_blas or not isinstance(recorded, dict):
        return
    changed = [
        f"{name} {recorded.get(name)} there, {here[name]} here"
        for name in ("blas", "processor", "numpy")
        if recorded.get(name) != here[name]
    ]
    if changed:
        logger.warning(
            "this run began on another kind of machine (%s): block steps go on with the same "
            "log, but may differ in the last bits from a run on one of them alone",
            "; ".join(changed),
        )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
