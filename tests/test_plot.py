"""Pictures: what is drawn is what the result holds. That they are readable was looked at."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import normal, write_zarr
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import FancyArrowPatch
from matplotlib.text import Annotation, Text
from scipy import sparse

from streamsvd import OptionError, ResourceError, SVDResult, sparse_pca, sparse_svd
from streamsvd.data.labels import Axis, named
from streamsvd.refinement import Refined
from streamsvd.result import images, loadings, scores
from streamsvd.result.canvas import CATEGORIES, MARKERS
from streamsvd.result.pictures import KINDS
from streamsvd.result.scores import MOST_CLASSES

N, N_SAMPLES, P = 24, 300, 4
X = normal(N, N_SAMPLES) * np.linspace(1, 3, N)[:, None] + normal(N, 1)
X[:6] += 2 * normal(1, N_SAMPLES, 1)


@pytest.fixture(scope="module")
def reduced() -> SVDResult:
    return sparse_pca(X, P, max_fill=0.25)


@pytest.fixture(scope="module")
def in_place() -> SVDResult:
    return sparse_svd(X, P, n_transforms=60, center="features")


def pixels(figure: Figure) -> np.ndarray:
    """The picture, drawn: layout and text take part, and warnings are errors."""
    file = BytesIO()
    figure.savefig(file, dpi=40)
    file.seek(0)
    return np.round(255 * imread(file)[..., :3])


def lines(ax: Axes) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """What a panel plots, by label."""
    return {
        str(line.get_label()): tuple(np.asarray(xy, float) for xy in line.get_data())
        for line in ax.lines
    }


def energies() -> np.ndarray:
    """What PCA explains, as shares, by NumPy alone."""
    values = np.linalg.svd(X - X.mean(axis=1, keepdims=True), compute_uv=False) ** 2
    return values / values.sum()


# -------------------------------------------------------------------------------- components


def test_images_are_the_components(reduced: SVDResult) -> None:
    figure = reduced.plot(image_shape=(4, 6))
    panels = figure.axes[:P]
    for row, ax in zip(reduced.components.toarray(), panels, strict=True):
        shown = ax.images[0].get_array()
        np.testing.assert_array_equal(shown.mask.ravel(), row == 0)
        expected = (row / np.abs(row).max()).reshape(4, 6)
        np.testing.assert_allclose(shown.filled(0), expected, rtol=1e-15)
        count = f"{np.count_nonzero(row)} nonzeros"
        assert count in ax.get_title()
    assert [ax.get_title().split(":")[0] for ax in panels] == ["0", "1", "2", "3"]
    assert f"{reduced.fill:.2%} nonzeros" in figure.get_suptitle()
    assert f"{reduced.explained_variance_ratio.sum():.1%}" in figure.get_suptitle()
    grey = np.round(255 * np.array(to_rgb(loadings.ZERO)))
    assert np.all(pixels(figure) == grey, axis=2).mean() > 0.1


def test_heat_map_is_the_components(in_place: SVDResult) -> None:
    names = [f"gene {k}" for k in range(N)]
    figure = in_place.at(10).plot(feature_names=names)
    dense = in_place.at(10).components.toarray()
    shown = figure.axes[0].images[0].get_array()
    np.testing.assert_array_equal(shown.mask, dense == 0)
    expected = dense / np.abs(dense).max(axis=1, keepdims=True)
    np.testing.assert_allclose(shown.filled(0), expected, rtol=1e-15)
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == names
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["0", "1", "2", "3"]
    assert pixels(figure).std() > 5


def test_features_that_share_a_column_show_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loadings, "MOST_COLUMNS", 10)
    made = sparse_svd(X, P, n_transforms=100, center="features")
    shown = made.plot().axes[0].images[0].get_array().filled(0)
    assert shown.shape == (P, 8)  # three share a column
    for row, drawn in zip(made.components.toarray(), shown, strict=True):
        groups = row.reshape(8, 3)
        largest = groups[np.arange(8), np.abs(groups).argmax(axis=1)]
        np.testing.assert_allclose(drawn, largest / np.abs(largest).max(), rtol=1e-15)


def test_more_images_than_fit_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MOST_IMAGES", 3)
    figure = sparse_svd(X, P, n_transforms=5).plot(image_shape=(4, 6))
    assert len(figure.axes) == 4  # one is the scale
    assert "the first 3 are shown" in figure.get_suptitle()


def made_of(rows: sparse.csr_array, features: Axis | None = None) -> SVDResult:
    """A result with these components, which explain less and less."""
    p, n = rows.shape
    fit = sparse_svd(np.ones((n, p + 1)), p, n_transforms=0, sample_axis=1)
    energies = fit.total_energy * 0.5 ** np.arange(1.0, p + 1)
    return replace(fit, refined=Refined(rows, energies), features=features)


def blocks(p: int, n: int) -> sparse.csr_array:
    """(p, n) rows of a few loadings each, of both signs."""
    size = max(1, min(n // p, 12))
    values = np.resize([0.8, -0.4, 0.2, 0.1], p * size)
    places = np.arange(p)[:, None] * (n // p) + np.arange(size)
    return sparse.csr_array((values, places.ravel(), size * np.arange(p + 1)), shape=(p, n))


def test_few_named_features_are_bars() -> None:
    rows = blocks(3, 13)
    figure = made_of(rows, named("column", [f"<{k}>" for k in range(13)])).plot()
    for c, ax in enumerate(figure.axes):
        widths = [bar.get_width() for bar in ax.patches]
        np.testing.assert_array_equal(widths, rows.toarray()[c])
        assert ax.get_xlim() == figure.axes[0].get_xlim()
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()][::12] == ["<0>", "<12>"]


def test_the_largest_loadings_are_sorted_and_named() -> None:
    figure = made_of(blocks(2, 100)).plot("loadings", feature_names=[f"g{k}" for k in range(100)])
    second = figure.axes[1]
    names = [text.get_text() for text in second.get_yticklabels()]
    assert names[:5] == ["g50", "g54", "g58", "g51", "g55"]
    np.testing.assert_array_equal([bar.get_width() for bar in second.patches][2:4], [0.8, -0.4])
    assert second.get_title() == "component 1: 25.0%\nall nonzeros"


@pytest.mark.parametrize("is_turned", [False, True])
def test_maps_have_north_up_and_are_true_to_scale(is_turned: bool) -> None:
    lat, lon = np.array([50.0, 60.0, 70.0]), np.array([0.0, 10, 20, 350])
    grid = np.arange(1.0, 13).reshape(3, 4)  # (lat, lon)
    dims, stored = (("lat", "lon"), grid)
    if is_turned:
        dims, stored = ("lon", "lat"), grid.T
    features = Axis(dims, stored.shape, {"lat": lat, "lon": lon})
    rows = sparse.csr_array(stored.reshape(1, -1) / np.linalg.norm(grid))
    figure = made_of(rows, features).plot()
    (ax, _) = figure.axes
    # 0 to 350 degrees is uneven: cells are as wide as they are
    drawn = np.ma.getdata(ax.images[0].get_array())
    np.testing.assert_allclose(drawn[[0, -1]][:, [0, -1]], np.array([[9, 12], [1, 4]]) / 12)
    west, east, south, north = ax.images[0].get_extent()
    assert (south, north) == (45, 75)
    assert (west, east) == (-5, 515)
    even = Axis(("lat", "lon"), (3, 3), {"lat": lat, "lon": lon[:3]})
    figure = made_of(sparse.csr_array(np.full((1, 9), 1 / 3)), even).plot()
    box = figure.axes[0].get_window_extent()
    np.testing.assert_allclose(box.height / box.width, 1 / np.cos(np.radians(60)))
    figure.draw_without_rendering()
    texts = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert "60°N" in texts


def test_pixels_have_the_first_row_on_top() -> None:
    features = Axis(("y", "x"), (2, 5), {"y": np.arange(2), "x": np.arange(5)})
    shown = made_of(blocks(1, 10), features).plot().axes[0].images[0].get_array().filled(0)
    np.testing.assert_allclose(shown.ravel(), blocks(1, 10).toarray()[0] / 0.8)


def boxes(figure: Figure, texts: Sequence[Text]) -> np.ndarray:
    """(k, 4) left, bottom, right, top."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    return np.array([text.get_window_extent(renderer).extents for text in texts])


def overlaps(found: np.ndarray) -> int:
    """Pairs of boxes that have more in common than an edge."""
    a, b = found[:, None], found[None]
    meets = ((a[..., :2] < b[..., 2:] - 0.5) & (b[..., :2] < a[..., 2:] - 0.5)).all(axis=-1)
    return int(np.triu(meets, 1).sum())


@pytest.mark.parametrize(
    ("n", "p", "kind", "shape"),
    [
        (4, 2, "loadings", None),
        (13, 13, "components", None),
        (784, 2, "components", (28, 28)),
        (784, 12, "stability", (14, 56)),
        (784, 45, "components", (28, 28)),
        (784, 10, "loadings", None),
        (30_000, 2, "components", None),
        (2000, 100, "components", None),
        (784, 100, "scree", None),
    ],
)
def test_nothing_is_cut_and_no_titles_meet(
    n: int, p: int, kind: str, shape: tuple[int, int] | None
) -> None:
    rows = blocks(p, n)
    names = named("gene", [f"a rather long name of gene {k}" for k in range(n)])
    made = replace(made_of(rows, names), stability=abs(rows))
    figure = made.plot(kind, image_shape=shape)
    figure.draw_without_rendering()
    whole = figure.get_tightbbox()
    assert whole.x0 >= 0
    assert whole.y0 >= 0
    assert whole.x1 <= figure.get_figwidth()
    assert whole.y1 <= figure.get_figheight()
    assert figure.get_figheight() < 13
    titles = [ax.title for ax in figure.axes if ax.get_title()]
    assert overlaps(boxes(figure, [*titles, figure._suptitle])) == 0
    if kind == "components" and shape is None and n > 20:  # rows that can be seen
        height = figure.axes[0].get_window_extent().height / figure.dpi
        assert height / p >= 0.09
        assert height >= 1


# ---------------------------------------------------------------------- variance and accuracy


def test_scree(reduced: SVDResult) -> None:
    each, summed = reduced.plot("scree").axes
    ratios = 100 * reduced.explained_variance_ratio
    np.testing.assert_allclose([bar.get_height() for bar in each.patches[:P]], ratios)
    drawn = lines(summed)
    np.testing.assert_allclose(drawn["sparse components"][1], np.cumsum(ratios))
    expected = 100 * np.cumsum(energies()[:P])
    np.testing.assert_allclose(drawn["PCA, no zeros"][1], expected, rtol=1e-10)


def test_scree_without_the_data_has_no_pca(in_place: SVDResult) -> None:
    assert list(lines(in_place.plot("scree").axes[1])) == ["sparse components"]


def test_variance_along_a_reduced_path(reduced: SVDResult) -> None:
    for ax, x in zip(reduced.plot("variance").axes, ("transforms", "fill"), strict=True):
        path, drawn = reduced.path()[1:], lines(ax)
        scale = 100 if x == "fill" else 1
        np.testing.assert_allclose(drawn["path"][0], scale * path[x])
        np.testing.assert_allclose(drawn["path"][1], 100 * path["explained_variance"])
        here = reduced.n_transforms if x == "transforms" else 100 * reduced.fill
        explained = 100 * reduced.explained_variance_ratio.sum()
        np.testing.assert_allclose(np.ravel(drawn["refined"]), [here, explained])
        expected = 100 * energies()[:P].sum()
        np.testing.assert_allclose(drawn["PCA, no zeros"][1], expected, rtol=1e-10)


@pytest.mark.parametrize("k", [0, 25, 60])
def test_variance_along_a_path_in_place_is_measured(
    in_place: SVDResult, k: int, tmp_path: Path
) -> None:
    store = write_zarr(tmp_path / "x.zarr", X, (N, 70))
    by_transforms, by_fill = in_place.at(k).plot("variance", store).axes
    steps, shares = lines(by_transforms)["path"]
    assert steps[0] == 1
    assert steps[-1] == 60
    fills = lines(by_fill)["path"][0]
    for step, share, fill in list(zip(steps, shares, fills, strict=True))[::6]:
        point = in_place.at(int(step))
        np.testing.assert_allclose(share, 100 * point.accuracy(X).captured_variance, rtol=1e-10)
        assert fill == 100 * point.fill
    measured = in_place.at(k).accuracy(X).captured_variance
    here = lines(by_fill)["this result"]
    np.testing.assert_allclose(np.ravel(here), [100 * in_place.at(k).fill, 100 * measured])
    # there is no zero on an axis of logarithms
    assert ("this result" in lines(by_transforms)) == (k > 0)


def test_accuracy_in_place_is_the_papers(in_place: SVDResult) -> None:
    by_transforms = in_place.at(30).plot("accuracy", X).axes[0]
    drawn = lines(by_transforms)
    for k in (1, 30, 60):
        measured = in_place.at(k).accuracy(X).accuracy
        np.testing.assert_allclose(drawn["path"][1][k - 1], 100 * measured, rtol=1e-10)
    assert drawn["this result"][0] == [30]


def test_accuracy_of_a_reduced_path_is_over_pca(reduced: SVDResult) -> None:
    drawn = lines(reduced.plot("accuracy").axes[0])
    best = energies()[:P].sum()
    expected = 100 * reduced.path()["explained_variance"][1:] / best
    np.testing.assert_allclose(drawn["path"][1], expected, rtol=1e-10)
    refined = 100 * reduced.explained_variance_ratio.sum() / best
    np.testing.assert_allclose(drawn["refined"][1], refined, rtol=1e-10)


def test_refined_in_place_has_no_accuracy_of_its_own(in_place: SVDResult) -> None:
    drawn = lines(in_place.refine(X).plot("accuracy", X).axes[0])
    assert list(drawn) == ["path"]


# ------------------------------------------------------------------------------------- scores


def points(ax: Axes) -> np.ndarray:
    """(count, 2) all points, in the order of their coordinates."""
    found = np.concatenate([np.asarray(c.get_offsets()) for c in ax.collections])
    return found[np.lexsort(found.T)]


@pytest.mark.usefixtures("narrow_strips")
@pytest.mark.parametrize("most", [20_000, 300, 299, 100, 7])
def test_scores(
    reduced: SVDResult, most: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(scores, "MOST_SCORES", most)
    store = write_zarr(tmp_path / "x.zarr", X, (N, 13))
    step = -(-N_SAMPLES // most)
    expected = reduced.transform(X)[[2, 0], ::step].T
    for labels in (None, np.arange(N_SAMPLES) % 9, np.linspace(0, 1, N_SAMPLES)):
        figure = reduced.plot("scores", store, labels=labels, pair=(2, 0))
        drawn = points(figure.axes[0])
        np.testing.assert_allclose(drawn, expected[np.lexsort(expected.T)], rtol=1e-12)
        some = f"{len(drawn)} of " if len(drawn) < N_SAMPLES else ""
        assert figure.get_suptitle() == f"Scores of {some}300 samples"


def test_classes_have_their_samples(reduced: SVDResult) -> None:
    labels = np.array(["a", "b", "c"])[np.arange(N_SAMPLES) % 3]
    ax = reduced.plot("scores", X, labels=labels).axes[0]
    samples = reduced.transform(X)[:2].T
    (legend,) = ax.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "c"]
    for name, color in zip("abc", CATEGORIES, strict=False):
        drawn_with = [c for c in ax.collections if len(c.get_offsets())]
        own = [c for c in drawn_with if tuple(c.get_facecolor()[0][:3]) == to_rgb(color)]
        drawn = np.concatenate([np.asarray(c.get_offsets()) for c in own])
        expected = samples[labels == name]
        np.testing.assert_allclose(
            drawn[np.lexsort(drawn.T)], expected[np.lexsort(expected.T)], rtol=1e-12
        )


def test_no_two_classes_look_alike() -> None:
    looks = {(k % len(CATEGORIES), k % len(MARKERS)) for k in range(MOST_CLASSES)}
    assert len(looks) == MOST_CLASSES


def test_many_classes_are_named_in_the_picture(
    reduced: SVDResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = np.array([f"kind {k}" for k in np.arange(N_SAMPLES) % 20])
    monkeypatch.setattr(scores, "MOST_POINTS", 150)  # a line around half of each class as well
    figure = reduced.plot("scores", np.hstack([X] * 10), labels=np.tile(labels, 10))
    (legend,) = figure.legends
    expected = [f"kind {k}" for k in range(20)]  # 2 before 10
    assert [text.get_text() for text in legend.get_texts()] == expected
    named_there = [text for text in figure.axes[0].texts if isinstance(text, Annotation)]
    assert [text.get_text() for text in named_there] == expected
    assert overlaps(boxes(figure, named_there)) == 0
    assert figure.get_tightbbox().x1 <= figure.get_figwidth()


def test_many_samples_are_density(reduced: SVDResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "MOST_POINTS", N_SAMPLES - 1)
    cells = reduced.plot("scores", X).axes[0].collections[0]
    assert cells.get_array().sum() == N_SAMPLES
    x = reduced.transform(X)[0]
    means = reduced.plot("scores", X, labels=x).axes[0].collections[0]
    np.testing.assert_allclose(means.get_array(), means.get_offsets()[:, 0], atol=np.ptp(x) / 60)


def test_biplot(reduced: SVDResult) -> None:
    names = [f"feature of name {k}" for k in range(N)]
    figure = reduced.plot("biplot", X, pair=(2, 0), feature_names=names)
    ax = figure.axes[0]
    arrows = [patch for patch in ax.patches if isinstance(patch, FancyArrowPatch)]
    tips = np.array([arrow._posA_posB[1] for arrow in arrows])
    both = reduced.components[[2, 0]].toarray().T
    sizes = np.hypot(*both.T)
    features = [int(text.get_text().split()[-1]) for text in ax.texts]
    assert set(np.argsort(-sizes)[:4]) <= set(features)
    order = np.argsort(-np.hypot(*tips.T), kind="stable")
    unit = tips[order[0]] @ both[features[0]] / sizes[features[0]] ** 2
    np.testing.assert_allclose(tips[order], unit * both[features], atol=1e-9 * unit)
    assert overlaps(boxes(figure, list(ax.texts))) == 0
    limits = np.array([ax.get_xlim(), ax.get_ylim()]).T
    assert (tips > limits[0]).all()
    assert (tips < limits[1]).all()
    top = ax.child_axes[0].get_xlim()  # the scale of the arrows
    np.testing.assert_allclose(np.array(top) * unit, ax.get_xlim())


def test_samples_as_rows() -> None:
    made = sparse_pca(X.T, P, max_fill=0.25, sample_axis=0)
    figure = made.plot("scores", X.T)
    expected = made.transform(X.T)[:, :2]
    np.testing.assert_allclose(points(figure.axes[0]), expected[np.lexsort(expected.T)], rtol=1e-12)


# ------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_draws_whatever_the_result(
    kind: str, reduced: SVDResult, in_place: SVDResult, tmp_path: Path
) -> None:
    one = sparse_pca(X, 2, max_nonzeros=2)  # no transforms
    reduced.save(tmp_path / "r.zarr")
    loaded = SVDResult.load(tmp_path / "r.zarr")
    whatever = (loaded, one, in_place.at(7), reduced, in_place.refine(X))
    for made in whatever[: 3 if kind in ("biplot", "loadings", "scores") else None]:
        if len(made.log) == 0 and kind in ("variance", "accuracy"):
            continue
        if kind == "stability":  # as if it had been measured
            made = replace(made, stability=abs(made.components))
        assert pixels(made.plot(kind, X)).std() > 5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "pie"}, ("'components', 'loadings'", "got 'pie'")),
        ({"image_shape": (5, 5)}, ("image_shape", "24 features", "got (5, 5)")),
        ({"image_shape": (24,)}, ("image_shape", "got (24,)")),
        ({"image_shape": (-4, -6)}, ("image_shape", "got (-4, -6)")),
        ({"feature_names": ["a"]}, ("feature_names", "1 names", "24 features")),
        ({"kind": "scores"}, ("X=...",)),
        ({"kind": "biplot"}, ("X=...",)),
        ({"kind": "scores", "X": X[:5]}, ("5 features", "24")),
        ({"kind": "scores", "X": X, "pair": (0, 4)}, ("pair", "4 components", "got (0, 4)")),
        ({"kind": "scores", "X": X, "pair": (0,)}, ("pair", "got (0,)")),
        ({"kind": "scores", "X": X, "labels": [1, 2]}, ("labels", "(2,)", "300")),
        ({"kind": "scores", "X": X, "labels": np.arange(300)}, ("300 classes", "40", "floats")),
        ({"kind": "variance"}, ("variance along the path", "X=...")),
        ({"kind": "accuracy"}, ("accuracy", "X=...")),
        ({"kind": "accuracy", "X": X[:, :9]}, ("9 samples", "300")),
    ],
)
def test_refused(in_place: SVDResult, options: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(OptionError) as caught:
        in_place.plot(**options)
    for word in words:
        assert word in str(caught.value)


def test_unknown_variance_of_a_point_of_the_path(in_place: SVDResult) -> None:
    with pytest.raises(OptionError, match="the variance of this result is not known"):
        in_place.at(5).plot("scree")
    bars = in_place.at(5).plot("scree", X).axes[0].patches[:P]
    measured = in_place.at(5).accuracy(X).captured_variance
    np.testing.assert_allclose(sum(bar.get_height() for bar in bars), 100 * measured)


def test_no_room_for_the_gram_matrix(in_place: SVDResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsvd.result.refined.free_memory", lambda: 8 * N * N - 1)
    with pytest.raises(
        ResourceError, match=r"24 features takes 4\.50 kiB of memory, and 4\.50 kiB"
    ):
        in_place.plot("accuracy", X)


@pytest.mark.parametrize("kind", ["variance", "accuracy"])
def test_a_path_without_transforms(kind: str) -> None:
    with pytest.raises(OptionError, match="made no transforms"):
        sparse_svd(X, P, n_transforms=0).plot(kind, X)


def test_without_matplotlib(in_place: SVDResult, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("matplotlib")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(OptionError, match=r"streamsvd\[plot\]"):
        in_place.plot()
