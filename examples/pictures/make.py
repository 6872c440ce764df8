"""The pictures of the README and of the pages, each from the package and written small.

    python examples/pictures/make.py --data FOLDER            # all of them, into examples/pictures
    python examples/pictures/make.py --only topics wine_biplot
    python examples/pictures/make.py --screens FOLDER         # every kind, many sizes, to look at

FOLDER of ``--data`` holds ``mnist.npz``, see ``examples/datasets.py``; without it MNIST comes from
OpenML, once. The recipes run as they stand in a folder of their own. A picture has at most 128
colours, none of them dithered, which keeps the sum of all well below a megabyte.
"""

import argparse
import io
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from PIL import Image
from sklearn.datasets import load_iris, load_wine
from sklearn.decomposition import PCA

import streamsvd

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from datasets import Matrix, load_labelled  # noqa: E402

RECIPES = (
    "digits_parts",
    "choose_fill",
    "topics",
    "single_cell",
    "cells_to_umap",
    "sea_surface",
    "genotypes",
    "image_cube",
)
"""Examples that write a picture with their name."""


KINDS = ("components", "loadings", "scree", "variance", "accuracy", "scores", "biplot")
"""Of `SVDResult.plot`; ``"stability"`` is of a result of `streamsvd.sparse_pca_cv`."""


DPI = 80


def small(picture: bytes | Figure, colors: int = 128) -> bytes:
    """A PNG of few colours."""
    if isinstance(picture, Figure):
        buffer = io.BytesIO()
        picture.savefig(buffer, dpi=DPI)
        picture = buffer.getvalue()
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    image = image.quantize(colors, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    image.save(buffer, "png", optimize=True)
    return buffer.getvalue()


# ------------------------------------------------------------------------------------ data


class Data:
    """Data of 4, 13, 784 and 30,000 features; each is made when it is asked for."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.mnist = cache(lambda: load_labelled("mnist", folder))

    def of(self, name: str) -> tuple[Any, Any, dict[str, Any], dict[str, Any]]:
        """Data, labels, options of the fit and of `plot`."""
        if name in ("iris", "wine"):
            bunch = (load_iris if name == "iris" else load_wine)(as_frame=True)
            labels = bunch.target_names[bunch.target]
            return bunch.data, labels, {"normalize": "features", "max_fill": 0.5}, {}
        if name == "mnist":
            x, y = self.mnist()
            return x, y, {"sample_axis": 1}, {"image_shape": (28, 28)}
        rng = np.random.default_rng(0)
        counts: Matrix = rng.poisson(1.0, (30_000, 300)).astype(np.float64)
        kind = np.arange(300) % 4
        for k in range(8):
            counts[500 * k : 500 * k + 200] += (6 - k / 2) * rng.random(300) * (kind == k % 4)
        return counts, np.array(list("ABCD"))[kind], {"sample_axis": 1, "max_nonzeros": 3000}, {}

    def fit(self, name: str, p: int, **options: Any) -> streamsvd.SVDResult:
        """`sparse_pca` of it."""
        x, _, usual, _ = self.of(name)
        return streamsvd.sparse_pca(x, p, progress=False, **usual | options)


# -------------------------------------------------------------------------------- pictures


def parts(data: Data) -> Figure:
    """The first screen: MNIST by PCA, and in sparse parts."""
    x, p, side = data.mnist()[0], 8, 28
    sparse = streamsvd.sparse_pca(x, p, max_fill=0.05)
    dense = PCA(p).fit(x.T)
    rows = (
        ("PCA", dense.components_, dense.explained_variance_ratio_),
        ("sparse_pca", sparse.components.toarray(), sparse.explained_variance_ratio),
    )
    figure = Figure(figsize=(10, 3.1))
    cmap = matplotlib.colormaps["RdBu_r"].with_extremes(bad="0.92")
    for r, (name, components, ratios) in enumerate(rows):
        share = np.mean(components != 0)
        note = f"{share:.0%} of the loadings are not zero, {ratios.sum():.0%} of the variance"
        figure.text(0.008, 0.93 - 0.49 * r, name, fontsize=13, weight="bold", va="center")
        figure.text(0.13, 0.93 - 0.49 * r, note, fontsize=11.5, color="0.3", va="center")
        for c, loadings in enumerate(components):
            ax = figure.add_axes((0.008 + 0.124 * c, 0.505 - 0.49 * r, 0.116, 0.374))
            image = np.ma.masked_equal(loadings.reshape(side, side), 0)
            ax.imshow(image / np.abs(image).max(), cmap=cmap, vmin=-1, vmax=1)
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_visible(False)
    return figure


def kind_of(name: str, p: int, kind: str, **options: Any) -> Callable[[Data], Figure]:
    """A kind of picture of `p` components of one of the data."""

    def make(data: Data) -> Figure:
        x, labels, _, drawn = data.of(name)
        return draw(data.fit(name, p, **options), kind, x, labels, drawn)

    return make


def stability(data: Data, name: str, p: int, **options: Any) -> Figure:
    """How often features of a table are chosen again."""
    x, _, usual, _ = data.of(name)
    options = {"normalize": usual["normalize"], "max_fill": [usual["max_fill"]]} | options
    return streamsvd.sparse_pca_cv(x, [p], half_samples=10, **options).result.plot("stability")


def draw(
    result: streamsvd.SVDResult, kind: str, x: Any, labels: Any, drawn: dict[str, Any]
) -> Figure:
    """One kind; data where it needs them or compares with them."""
    if kind in ("scores", "biplot"):
        return result.plot(kind, x, labels=labels)
    if kind in ("scree", "accuracy") and result.n_features < 1000:
        return result.plot(kind, x)
    return result.plot(kind, **drawn if kind == "components" else {})


PICTURES: dict[str, Callable[[Data], Figure]] = {
    "parts": parts,
    "iris_components": kind_of("iris", 2, "components"),
    "wine_components": kind_of("wine", 5, "components", max_fill=0.3),
    "wine_biplot": kind_of("wine", 5, "biplot", max_fill=0.3),
    "wine_stability": lambda data: stability(data, "wine", 5, max_fill=[0.3]),
    "mnist_components": kind_of("mnist", 100, "components"),
    "mnist_scree": kind_of("mnist", 100, "scree"),
    "mnist_accuracy": kind_of("mnist", 10, "accuracy"),
    "mnist_scores": kind_of("mnist", 10, "scores"),
    "wide_components": kind_of("wide", 10, "components"),
    "wide_scree": kind_of("wide", 10, "scree"),
}
"""What is not the picture of a recipe."""


def recipe(name: str) -> bytes:
    """The picture that an example writes, run as a user runs it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(HERE.parent / f"{name}.py")]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        return (Path(folder) / f"{name}.png").read_bytes()


def screens(data: Data) -> Iterator[tuple[str, Figure]]:
    """Every kind of picture for 4, 13, 784 and 30,000 features, of 2 to 100 components."""
    for name, counts in (
        ("iris", (2, 4)),
        ("wine", (2, 5, 13)),
        ("mnist", (2, 10, 40, 100)),
        ("wide", (2, 10, 100)),
    ):
        x, labels, _, drawn = data.of(name)
        for p in counts:
            result = data.fit(name, p)
            for kind in KINDS:
                if kind in ("variance", "accuracy") and not len(result.log):
                    continue  # there is no path
                if kind == "accuracy" and result.n_features > 1000:
                    continue  # needs a matrix of 30,000 x 30,000
                yield f"{name}_{p}_{kind}", draw(result, kind, x, labels, drawn)
            if name == "mnist":
                yield f"{name}_{p}_heat", result.plot()
            if name in ("iris", "wine"):
                yield f"{name}_{p}_stability", stability(data, name, p)


def main() -> None:
    """Read the arguments, write pictures, tell their sizes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, help="folder of .npz files; OpenML without it")
    parser.add_argument("--only", nargs="+", default=[*RECIPES, *PICTURES], help="names of these")
    parser.add_argument("--screens", type=Path, help="write all kinds and sizes there instead")
    args = parser.parse_args()
    data = Data(args.data)
    if args.screens is not None:
        args.screens.mkdir(parents=True, exist_ok=True)
        for name, figure in screens(data):
            (args.screens / f"{name}.png").write_bytes(small(figure))
        return
    for name in args.only:
        made = recipe(name) if name in RECIPES else PICTURES[name](data)
        (HERE / f"{name}.png").write_bytes(small(made))
        print(f"{name}.png: {(HERE / f'{name}.png').stat().st_size:,} bytes", flush=True)
    print(f"together {sum(path.stat().st_size for path in HERE.glob('*.png')):,} bytes")


if __name__ == "__main__":
    main()
