"""Every kind of picture: what is checked before it is drawn, and who draws it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvd.arrays import Array
from streamsvd.data.source import Source
from streamsvd.errors import OptionError
from streamsvd.progress import Progress
from streamsvd.result import curves, scores
from streamsvd.result.bars import FEW, draw_all, draw_top
from streamsvd.result.canvas import new_figure
from streamsvd.result.images import draw_images
from streamsvd.result.loadings import draw_heat_map
from streamsvd.result.raster import raster_of
from streamsvd.result.solution import Solution
from streamsvd.storage.outputs import refuse_existing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


KINDS = (
    "components",
    "loadings",
    "stability",
    "scree",
    "variance",
    "accuracy",
    "scores",
    "biplot",
)


OF_SAMPLES = ("scores", "biplot")


def check_file(path: Path, overwrite: bool) -> None:
    """Refuse a file that is there, or whose ending is of no picture."""
    formats = sorted(new_figure().canvas.get_supported_filetypes())
    if path.suffix[1:].lower() not in formats:
        raise OptionError(f"{path} must end in .png or another of: {', '.join(formats)}")
    if not overwrite:
        refuse_existing(path)


def check(made: Solution, kind: str, shape: Any, names: Any, pair: Any) -> None:
    """Refuse, before any work, what cannot be drawn; see `SVDResult.plot`."""
    new_figure()  # matplotlib is there
    n, p = made.n_features, made.n_components
    if kind not in KINDS:
        raise OptionError(f"kind must be one of {', '.join(map(repr, KINDS))}; got {kind!r}")
    if kind == "stability" and made.stability is None:
        raise OptionError(
            "the stability of these components was not measured: draw the result of sparse_pca_cv"
        )
    if kind in ("variance", "accuracy") and not len(made.log):
        raise OptionError(f"kind={kind!r} draws the path, and the fit made no transforms")
    if shape is not None and (len(shape) != 2 or min(shape) < 1 or shape[0] * shape[1] != n):
        raise OptionError(
            f"image_shape must be rows and columns with a pixel for each of the {n} features; got "
            f"{tuple(shape)}"
        )
    if names is not None and len(names) != n:
        raise OptionError(f"feature_names holds {len(names)} names; there are {n} features")
    if kind in OF_SAMPLES and not (len(pair) == 2 and all(0 <= c < p for c in pair)):
        raise OptionError(
            f"pair must be two of the {p} components, counted from 0; got {tuple(pair)}"
        )


def check_labels(labels: Any, n_samples: int) -> Array | None:
    """Labels as an array: one for each sample, of a few classes unless they are floats."""
    if labels is None:
        return None
    array = np.asarray(labels)
    if array.shape != (n_samples,):
        raise OptionError(
            f"labels have shape {array.shape}; need one for each of {n_samples} samples"
        )
    classes = 0 if array.dtype.kind == "f" else len(np.unique(array))
    if classes > scores.MOST_CLASSES:
        raise OptionError(
            f"labels are of {classes} classes, more than the {scores.MOST_CLASSES} that can be "
            "told apart; pass floats for a colour scale"
        )
    return array


def draw_features(
    made: Solution, kind: str, shape: Sequence[int] | None, names: Sequence[Any] | None
) -> "Figure":
    """Components, how often their features are chosen, or the largest loadings.

    Images or maps where features lie on a grid, bars where they are few and have names, else a
    heat map.
    """
    if kind == "loadings":
        return draw_top(made, made.feature_names if names is None else names)
    raster = raster_of(made.features, shape)
    if raster is not None and (names is None or shape is not None):
        return draw_images(made, raster, kind)
    named = made.feature_names if names is None else names
    if kind == "components" and named is not None and made.n_features <= FEW:
        return draw_all(made, named)
    return draw_heat_map(made, named, kind)


def draw_samples(
    made: Any,
    kind: str,
    source: Source,
    labels: Any,
    pair: Sequence[int],
    names: Sequence[Any] | None,
    progress: Progress,
) -> "Figure":
    """Scores of samples, read in one pass, or of some where there are very many."""
    labels = check_labels(labels, source.n_samples)
    step = -(-source.n_samples // scores.MOST_SCORES)
    found = made._some_scores(source, step, progress)
    labels = None if labels is None else labels[::step]
    if kind == "scores":
        return scores.draw_scores(made, found, labels, pair, source.n_samples)
    named = made.feature_names if names is None else names
    return scores.draw_biplot(made, found, labels, pair, source.n_samples, named)


def draw_path(made: Solution, kind: str, gram: Array | None) -> "Figure":
    """Explained variance or accuracy, by component or along the path."""
    if kind == "scree":
        return curves.draw_scree(made, gram)
    curve = curves.variance_curve if kind == "variance" else curves.accuracy_curve
    return curves.draw_curve(made, curve(made, gram))
