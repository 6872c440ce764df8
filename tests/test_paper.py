"""The paper's experiments: the rivals on cases with known answers, the measures, a whole run."""

import json
import sys
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

import streamsvd

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "paper"))

import claims
import elastic_net
import figure1
import figure2
import inverse_power
import rivals
import run
import tables
from sparse_jl import sparse_jl


@pytest.fixture
def X() -> np.ndarray:
    X = np.random.default_rng(0).standard_normal((12, 50))
    return X * np.linspace(1, 3, 12)[:, None]


def hidden_factors() -> np.ndarray:
    """The exact covariance of Zou, Hastie and Tibshirani's simulated example, their section 5.2.

    Two hidden factors of variances 290 and 300, a third that mixes them; features 0 to 3 show the
    first, 4 to 7 the second, 8 and 9 the third, each with noise of variance 1.
    """
    mixing = np.array([[1, 0, 0], [0, 1, 0], [-0.3, 0.925, 1]])
    factors = mixing @ np.diag([290.0, 300.0, 1.0]) @ mixing.T
    shown = np.repeat(np.eye(3), [4, 4, 2], axis=0)
    return shown @ factors @ shown.T + np.eye(10)


SECOND_THEN_FIRST = np.array([[0] * 4 + [0.5] * 4 + [0] * 2, [0.5] * 4 + [0] * 6]).T
"""Their answer for two components of four nonzeros: the two factors, the stronger one first."""


# ------------------------------------------------------------------------------------ sparse JL


@pytest.mark.parametrize(("p", "s"), [(10, 1), (10, 3), (40, 10), (5, 5)])
def test_jl_has_s_equal_entries_for_each_feature(p, s):
    P = sparse_jl(200, p, s, np.random.default_rng(0))
    assert P.shape == (200, p)
    assert np.all(np.count_nonzero(P, axis=1) == s)
    np.testing.assert_allclose(np.abs(P[P != 0]), 1 / np.sqrt(s), rtol=1e-15)
    assert 0.35 < np.mean(P[P != 0] > 0) < 0.65
    assert np.all(np.any(P != 0, axis=0))


def test_jl_keeps_lengths_in_the_mean():
    x = np.random.default_rng(1).standard_normal(30)
    random = np.random.default_rng(2)
    lengths = [np.sum((x @ sparse_jl(30, 20, 4, random)) ** 2) for _ in range(2000)]
    error = np.std(lengths) / np.sqrt(2000)
    assert abs(np.mean(lengths) - x @ x) < 4 * error
    assert error < 0.01 * (x @ x)


@pytest.mark.parametrize("s", [0, 6])
def test_jl_refuses_more_entries_than_components(s):
    with pytest.raises(ValueError, match=f"1 to n_components=5; got {s}"):
        sparse_jl(10, 5, s, np.random.default_rng(0))


# ------------------------------------------------------------------------------ Hein and Buehler


def test_inverse_power_without_a_penalty_is_the_leading_eigenvector(X):
    gram = X @ X.T
    f = inverse_power.inverse_power(gram, np.ones(12), 0.0, max_iter=5000, tol=0.0)
    leading = rivals.leading_eigenvectors(gram, 1)[:, 0]
    assert abs(f @ leading) / np.linalg.norm(f) == pytest.approx(1, abs=1e-10)
    assert f @ gram @ f == pytest.approx(1)


@pytest.mark.parametrize("alpha", [0.1, 0.4, 0.7])
def test_each_step_lowers_the_ratio(X, alpha):
    gram = X @ X.T
    start = np.random.default_rng(3).standard_normal(12)
    path = [inverse_power.inverse_power(gram, start, alpha, max_iter=k, tol=0) for k in range(8)]
    values = [inverse_power.ratio(gram, f, alpha) for f in path]
    assert all(after <= before * (1 + 1e-14) for before, after in pairwise(values))
    assert values[-1] < values[0]


def test_a_larger_weight_is_sparser():
    gram = hidden_factors()
    start = np.eye(10)[4]
    sizes = [
        np.count_nonzero(inverse_power.inverse_power(gram, start, alpha))
        for alpha in (0.0, 0.1, 0.5, 0.999)
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 10
    assert sizes[-1] < 5


@pytest.mark.parametrize("cardinality", [1, 2, 5, 11, 12])
def test_inverse_power_keeps_to_the_cardinality(X, cardinality):
    x = inverse_power.sparse_component(X @ X.T, cardinality)
    assert np.count_nonzero(x) == cardinality
    assert np.linalg.norm(x) == pytest.approx(1)


def test_one_nonzero_is_the_feature_of_largest_variance(X):
    gram = X @ X.T
    x = inverse_power.sparse_component(gram, 1)
    assert abs(x[np.argmax(gram.diagonal())]) == 1


def test_inverse_power_finds_the_best_support_of_a_planted_component():
    """The best of all 120 supports of three features, by trying them."""
    rng = np.random.default_rng(4)
    v = np.zeros(10)
    v[[1, 5, 8]] = 0.6, -0.5, 0.62
    noise = rng.standard_normal((10, 40)) / 20
    gram = 4 * np.outer(v, v) + noise @ noise.T
    best = max(
        combinations(range(10), 3),
        key=lambda s: np.linalg.eigvalsh(gram[np.ix_(s, s)])[-1],
    )
    x = inverse_power.sparse_component(gram, 3)
    assert tuple(np.flatnonzero(x)) == best == (1, 5, 8)


def test_inverse_power_finds_hidden_factors():
    components = inverse_power.sparse_components(hidden_factors(), [4, 4])
    np.testing.assert_allclose(np.abs(components), SECOND_THEN_FIRST, atol=1e-12)


def test_deflation_takes_what_was_found():
    """Two features that are copies count once; beyond the rank there is nothing."""
    X = np.array([[3.0, 3.0], [3.0, 3.0], [2.0, -2.0]])
    components = inverse_power.sparse_components(X @ X.T, [1, 1, 1])
    assert np.flatnonzero(components[:, 0]).tolist() == [0]
    assert np.flatnonzero(components[:, 1]).tolist() == [2]
    assert not components[:, 2].any()


# ----------------------------------------------------------------------- Zou, Hastie, Tibshirani


def test_elastic_net_meets_the_conditions_of_the_lasso(X):
    gram = X @ X.T
    target = gram @ np.random.default_rng(5).standard_normal(12)
    b = elastic_net.elastic_net(gram, target, 4)
    slope = target - gram @ b
    penalty = np.max(np.abs(slope))
    assert 1 <= np.count_nonzero(b) <= 4
    np.testing.assert_allclose(slope[b != 0], penalty * np.sign(b[b != 0]), rtol=1e-8)


def test_elastic_net_with_all_steps_is_least_squares(X):
    gram = X @ X.T
    target = gram @ np.random.default_rng(6).standard_normal(12)
    b = elastic_net.elastic_net(gram, target, 12)
    np.testing.assert_allclose(gram @ b, target, rtol=1e-8)


def test_spca_with_all_nonzeros_is_pca(X):
    """Their Theorem 3: without a 1-norm penalty the loadings are those of PCA."""
    gram = X @ X.T
    b = elastic_net.sparse_components(gram, [12, 12, 12])
    leading = rivals.leading_eigenvectors(gram, 3)
    np.testing.assert_allclose(np.abs(b.T @ leading), np.eye(3), atol=1e-5)


def test_spca_finds_hidden_factors():
    b = elastic_net.sparse_components(hidden_factors(), [4, 4])
    np.testing.assert_allclose(np.abs(b), SECOND_THEN_FIRST, atol=1e-3)


@pytest.mark.parametrize("cardinalities", [[3, 3], [5, 1], [2, 2, 2, 2]])
def test_spca_keeps_to_the_cardinalities(X, cardinalities):
    b = elastic_net.sparse_components(X @ X.T, cardinalities, max_iter=20)
    assert np.all(np.count_nonzero(b, axis=0) <= cardinalities)
    np.testing.assert_allclose(np.linalg.norm(b, axis=0), 1)


# ------------------------------------------------------------------------------------- measures


def test_spectrum_has_the_singular_values(X):
    values = figure1.Spectrum.of(X, 4).values
    np.testing.assert_allclose(values, np.linalg.svd(X, compute_uv=False)[:4], rtol=1e-10)


def test_accuracy_is_that_of_the_package_and_less_than_with_free_right_vectors(X):
    result = streamsvd.sparse_svd(X, 3, n_transforms=60)
    spectrum = figure1.Spectrum.of(X, 3)
    (row,) = figure1._points("x", "transforms", "proposed", [result], spectrum, [60])
    assert row.accuracy == pytest.approx(result.accuracy(X).accuracy, rel=1e-10)
    free = np.linalg.svd(result.components @ X, compute_uv=False).sum() / spectrum.values.sum()
    assert row.accuracy_free == pytest.approx(free, rel=1e-10)
    assert row.accuracy < row.accuracy_free <= 1
    assert row.fill == result.fill


def test_a_whole_svd_has_accuracy_one(X):
    result = streamsvd.sparse_svd(X, 12, n_transforms=20_000)
    spectrum = figure1.Spectrum.of(X, 12)
    (row,) = figure1._points("x", "transforms", "proposed", [result], spectrum, [20_000])
    assert row.accuracy == pytest.approx(1, abs=1e-6)
    assert row.accuracy_free == pytest.approx(1, abs=1e-6)


def test_grid():
    assert figure1.grid(16) == [1, 2, 3, 4, 6, 8, 11, 16]


def test_splits_are_disjoint_and_the_same_when_drawn_again():
    task = figure2.Task("x", 2, 30, 20)
    x = np.arange(100.0).reshape(2, 50)
    y = np.arange(50)
    split = figure2.Split.draw(task, 3, x, y, None)
    assert sorted([*split.y_train, *split.y_test]) == list(range(50))
    np.testing.assert_array_equal(split.x_test, x[:, split.y_test])
    few = figure2.Split.draw(task, 3, x, y, 5)
    np.testing.assert_array_equal(few.y_train, split.y_train)
    np.testing.assert_array_equal(few.y_test, split.y_test[:5])
    other = figure2.Split.draw(task, 4, x, y, None)
    assert list(other.y_test) != list(split.y_test)


def test_classification_is_that_of_the_projected_samples():
    random = np.random.default_rng(7)
    y = random.integers(3, size=150)
    x = random.standard_normal((6, 150)) + 2 * np.eye(6)[:, y]
    split = figure2.Split.draw(figure2.Task("x", 2, 100, 50), 0, x, y, None)
    dense = np.eye(6)[:2]
    row = split.row("two", dense, 1.0)
    model = KNeighborsClassifier(25).fit(split.x_train[:2].T, split.y_train)
    assert row.accuracy == pytest.approx(model.score(split.x_test[:2].T, split.y_test))
    assert row.fill == 2 / 12


# ---------------------------------------------------------------------------- tables and claims


def test_rows_come_back_from_csv(tmp_path):
    rows = [
        figure2.KnnRow("a, b", 0, "m", 256, None, 0.1, 1 / 3, 2.5),
        figure2.KnnRow("c", 1, "n", None, 0.05, 1e-300, 1.0, 0.0),
    ]
    tables.write_csv(tmp_path / "x.csv", figure2.KnnRow, rows)
    assert tables.read_csv(tmp_path / "x.csv", figure2.KnnRow) == rows


def test_markdown_lines_up():
    assert tables.markdown(["a", "long"], [["one", "2"], ["t", "33"]]).split("\n") == [
        "| a   | long |",
        "| --- | ---: |",
        "| one |    2 |",
        "| t   |   33 |",
    ]


def test_numbers_as_text():
    assert [tables.power(k) for k in (1, 2, 256, 300)] == ["1", "2^1", "2^8", "300"]
    assert [tables.seconds(s) for s in (0.123, 12.34, 123.4, np.nan)] == [
        "0.12",
        "12.3",
        "123",
        "-",
    ]
    assert [tables.percent(s) for s in (0.12345, np.nan)] == ["12.3", "-"]


def test_ordering_says_where_it_does_not_hold():
    lines = {
        "proposed": [3, 3, 1, 1, 3],
        "Kogbetliantz": [2, 2, 2, 2, 2],
        "random": [2, 1, 1, 1, 2.5],
    }
    rows = [
        figure1.AccuracyRow("x", "blocks", method, 1, 2**place, value / 10, 1.0, 0.0)
        for method, values in lines.items()
        for place, value in enumerate(values)
    ]
    (line,) = claims.ordering(rows).split("\n")[2:]
    assert "3 of 5 (not at 4 to 8)" in line
    assert "4 of 5 (not at 16)" in line
    assert [part.strip() for part in line.split("|")][-5:-1] == ["30.0", "20.0", "25.0", "2^4"]


def test_means_over_splits():
    first = figure2.KnnRow("x", 0, "m", 16, None, 0.1, 0.8, 2.0)
    other = replace(first, transforms=64, seconds=np.nan)
    again = replace(first, split=1, accuracy=0.9, fill=0.2, seconds=np.nan)
    mean, alone = claims.averaged([first, other, again])
    assert (mean.splits, mean.seconds, mean.transforms) == (2, 2.0, 16)
    assert mean.accuracy == pytest.approx(0.85)
    assert mean.accuracy_std == pytest.approx(0.05)
    assert mean.fill == pytest.approx(0.15)
    assert alone.transforms == 64
    assert np.isnan(alone.seconds)


def test_sparse_enough_takes_the_best_below_the_limit():
    row = figure2.KnnRow("x", 0, "m", 16, None, 0.005, 0.8, 2.0)
    rows = [row, replace(row, transforms=64, fill=0.009, accuracy=0.9)]
    rows += [replace(row, transforms=256, fill=0.02, accuracy=0.95)]
    (line,) = claims.sparse_enough(claims.averaged(rows)).split("\n")[2:]
    assert [part.strip() for part in line.split("|")][1:-1] == [
        "x, m",
        "0.90",
        "90.0",
        "95.0",
        "5.0",
    ]


# ---------------------------------------------------------------------------------- the command


@pytest.mark.slow
def test_the_command_runs_whole(tmp_path, capsys):
    """On scikit-learn's digits: every method, every file."""
    run.main(["--tiny", "--out", str(tmp_path)])
    names = ["accuracy.csv", "figure1.png", "figure2.png", "knn.csv", "settings.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [*names, "tables.md", "times.png"]
    for name in ("figure1.png", "figure2.png", "times.png"):
        content = (tmp_path / name).read_bytes()
        assert content.startswith(b"\x89PNG")
        assert len(content) > 10_000

    settings = json.loads((tmp_path / "settings.json").read_text())
    assert settings["preset"] == "tiny"
    assert settings["settings"]["transforms"] == 64
    assert settings["versions"]["streamsvd"] == streamsvd.__version__

    accuracy = tables.read_csv(tmp_path / "accuracy.csv", figure1.AccuracyRow)
    assert {row.method for row in accuracy} == set(figure1.PATHS)
    assert {row.unit for row in accuracy} == {"transforms", "blocks"}
    assert max(row.accuracy_free for row in accuracy) <= 1
    ends = {r.method: r.accuracy for r in accuracy if (r.unit, r.steps) == ("transforms", 64)}
    assert ends["proposed"] > ends["Kogbetliantz"] > ends["random"]

    knn = tables.read_csv(tmp_path / "knn.csv", figure2.KnnRow)
    others = {"full PCA", "sparse JL, s = 10", "Hein and Buehler", "Zou et al.", "sparse_pca"}
    assert {row.method for row in knn} == others | set(figure2.LINES)
    assert {row.split for row in knn} == {0, 1}
    assert all(0.3 < row.accuracy < 1 for row in knn)

    text = (tmp_path / "tables.md").read_text()
    assert text in capsys.readouterr().out
    (tmp_path / "tables.md").unlink()
    run.main(["--tiny", "--redraw", "--out", str(tmp_path)])
    assert (tmp_path / "tables.md").read_text() == text


@pytest.mark.slow
def test_a_stopped_run_goes_on(tmp_path, monkeypatch):
    """With what it has, and to the same values as a run that was not stopped."""
    arguments = ["--tiny", "--parts", "figure2", "--out", str(tmp_path)]
    drawn = figure2.Split.draw

    def stop(task, number, *rest):
        if number == 1:
            raise KeyboardInterrupt
        return drawn(task, number, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(figure2.Split, "draw", stop)
        with pytest.raises(KeyboardInterrupt):
            run.main(arguments)
    before = tables.read_csv(tmp_path / "knn.csv", figure2.KnnRow)
    assert {row.split for row in before} == {0}
    run.main([*arguments, "--resume"])
    after = tables.read_csv(tmp_path / "knn.csv", figure2.KnnRow)
    assert repr(after[: len(before)]) == repr(before)  # NaN where a point was not timed
    assert {row.split for row in after} == {0, 1}
    assert list(json.loads((tmp_path / "settings.json").read_text())["seconds"]) == [
        "figure 2, digits, split 0",
        "figure 2, digits, split 1",
    ]
