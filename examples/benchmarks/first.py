"""Time the first ten minutes: a first fit and the demonstration, with no kernel compiled before.

    python examples/benchmarks/first.py --rounds 3

Each in a process of its own with an empty cache, from the start of Python to its end, then once
more with what is compiled. ``--beside FOLDER`` does the same in turn with the package of another
folder, an earlier checkout say, and gives ratios.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

FIT = """
import numpy as np
import streamsvd

X = np.random.default_rng(0).standard_normal((50, 1000))
streamsvd.{call}
"""

DEMO = (
    "import sys; from streamsvd.cli.commands import main; sys.argv = ['streamsvd', 'demo']; main()"
)

WHAT = {
    "sparse_svd": FIT.format(call="sparse_svd(X, 5, n_transforms=100)"),
    "sparse_pca": FIT.format(call="sparse_pca(X, 5, max_fill=0.2)"),
    "demo": DEMO,
}


def seconds_of(code: str, package: Path, cache: str) -> float:
    """Seconds that a new process takes for `code`."""
    environment = os.environ | {"NUMBA_CACHE_DIR": cache, "PYTHONPATH": str(package)}
    start = time.perf_counter()
    command = [sys.executable, "-c", code]  # where no other package lies beside it
    subprocess.run(command, env=environment, cwd=cache, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside", type=Path, help="a folder with another streamsvd")
    options = parser.parse_args()
    packages = [Path(__file__).resolve().parents[2]]
    if options.beside is not None:
        packages.append(options.beside.resolve())
    for name, code in WHAT.items():
        cold: list[list[float]] = [[] for _ in packages]
        warm: list[list[float]] = [[] for _ in packages]
        for _ in range(options.rounds):
            for k, package in enumerate(packages):
                with tempfile.TemporaryDirectory() as cache:
                    cold[k].append(seconds_of(code, package, cache))
                    warm[k].append(seconds_of(code, package, cache))
        for k, package in enumerate(packages):
            line = f"{name:11} cold {np.median(cold[k]):5.2f} s ({min(cold[k]):.2f} at best)"
            line += f", then {np.median(warm[k]):4.2f} s"
            if k:
                ratio = np.median(np.array(cold[0]) / np.array(cold[k]))
                line += f"  in {package}: the first takes {ratio:.2f} of it"
            print(line)


if __name__ == "__main__":
    main()
