"""Pictures: what is drawn is what the result holds. That they are readable was looked at."""

import sys
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import normal, write_zarr
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread

from streamsvd import OptionError, ResourceError, SVDResult, sparse_pca, sparse_svd
from streamsvd.result import loadings
from streamsvd.result.loadings import CATEGORIES, MARKERS, MOST_CLASSES

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
    monkeypatch.setattr(loadings, "MOST_IMAGES", 3)
    figure = sparse_svd(X, P, n_transforms=5).plot(image_shape=(4, 6))
    assert len(figure.axes) == 4  # one is the scale
    assert "the first 3 are shown" in figure.get_suptitle()


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
    monkeypatch.setattr(loadings, "MOST_POINTS", most)
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
    scores = reduced.transform(X)[:2].T
    legend = ax.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "c"]
    for name, color in zip("abc", CATEGORIES, strict=False):
        own = [c for c in ax.collections if tuple(c.get_facecolor()[0][:3]) == to_rgb(color)]
        drawn = np.concatenate([np.asarray(c.get_offsets()) for c in own])
        expected = scores[labels == name]
        np.testing.assert_allclose(
            drawn[np.lexsort(drawn.T)], expected[np.lexsort(expected.T)], rtol=1e-12
        )


def test_no_two_classes_look_alike() -> None:
    looks = {(k % len(CATEGORIES), k % len(MARKERS)) for k in range(MOST_CLASSES)}
    assert len(looks) == MOST_CLASSES


def test_samples_as_rows() -> None:
    made = sparse_pca(X.T, P, max_fill=0.25, sample_axis=0)
    figure = made.plot("scores", X.T)
    expected = made.transform(X.T)[:, :2]
    np.testing.assert_allclose(points(figure.axes[0]), expected[np.lexsort(expected.T)], rtol=1e-12)


# ------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("kind", loadings.KINDS)
def test_each_kind_draws_whatever_the_result(
    kind: str, reduced: SVDResult, in_place: SVDResult, tmp_path: Path
) -> None:
    one = sparse_pca(X, 2, max_nonzeros=2)  # no transforms
    reduced.save(tmp_path / "r.zarr")
    loaded = SVDResult.load(tmp_path / "r.zarr")
    for made in (reduced, loaded, in_place.at(7), in_place.refine(X), one):
        if len(made.log) == 0 and kind in ("variance", "accuracy"):
            continue
        if kind == "stability":  # as if it had been measured
            made = replace(made, stability=abs(made.components))
        assert pixels(made.plot(kind, X)).std() > 5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "pie"}, ("'components', 'stability'", "got 'pie'")),
        ({"image_shape": (5, 5)}, ("image_shape", "24 features", "got (5, 5)")),
        ({"image_shape": (24,)}, ("image_shape", "got (24,)")),
        ({"image_shape": (-4, -6)}, ("image_shape", "got (-4, -6)")),
        ({"feature_names": ["a"]}, ("feature_names", "1 names", "24 features")),
        ({"kind": "scores"}, ("X=...",)),
        ({"kind": "scores", "X": X[:5]}, ("5 features", "24")),
        ({"kind": "scores", "X": X, "pair": (0, 4)}, ("pair", "4 components", "got (0, 4)")),
        ({"kind": "scores", "X": X, "pair": (0,)}, ("pair", "got (0,)")),
        ({"kind": "scores", "X": X, "labels": [1, 2]}, ("labels", "(2,)", "300")),
        ({"kind": "scores", "X": X, "labels": np.arange(300)}, ("300 classes", "20", "floats")),
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
