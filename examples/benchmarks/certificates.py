"""How near the optimum `sparse_pca` is: what it explains beside what is proven to be the most.

    python examples/benchmarks/certificates.py --data FOLDER [--sets usps hsmm ...]

p = 15; the paper's data with each sample centred and scaled, and the two wide sets of ``wide.py``.
In % of what PCA explains: `sparse_pca`, also with ``effort="high"``, and what is proven to be the
most, by clipping alone (``effort="low"``), by 40 and by 120 steps of the relaxation; seconds. Those
of ``effort="high"`` are of the search alone, on a covariance that is there.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from datasets import OPENML, center_columns, load  # noqa: E402
from wide import load as load_wide  # noqa: E402

from streamsvd import sparse_pca  # noqa: E402

FILLS = {"hsmm": [0.001, 0.01, 0.05], "snps": [0.001, 0.01, 0.05]}


def main() -> None:
    """Run the benchmark and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=[*OPENML, *FILLS])
    parser.add_argument("--fills", nargs="+", type=float, default=[0.01, 0.02, 0.05, 0.1])
    options = parser.parse_args()
    print("| data | fill | sparse_pca | high | s | low | s | normal | s | high | s |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name in options.sets:
        if name in FILLS:
            x = load_wide(name, options.data)
        else:
            x = center_columns(load(name, options.data))
        small = x.T @ x if x.shape[0] > x.shape[1] else x @ x.T
        share = float(np.linalg.eigvalsh(small)[-15:].sum() / np.trace(small))
        for fill in FILLS.get(name, options.fills):
            made = sparse_pca(x, 15, sample_axis=1, max_fill=fill, center=None, progress=False)
            began = time.perf_counter()
            better = made.refine(max_fill=fill, effort="high")
            seconds = time.perf_counter() - began
            ratios = [one.explained_variance_ratio.sum() for one in (made, better)]
            cells = [name, f"{100 * fill:g} %"]
            cells += [f"{100 * ratio / share:.2f}" for ratio in ratios] + [f"{seconds:.1f}"]
            for effort in ("low", "normal", "high")[: 1 if name in FILLS else 3]:
                began = time.perf_counter()
                bound = better.certificate(effort=effort).bound
                seconds = time.perf_counter() - began
                cells += [f"{100 * bound / share:.1f}", f"{seconds:.1f}"]
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
