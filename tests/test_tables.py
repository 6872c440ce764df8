"""What a result hands on as names and tables; and that its components are counted from 0."""

import re
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from helpers import normal
from matplotlib.text import Text

from streamsvd import OptionError, SVDResult, sparse_pca
from streamsvd.cli.commands import main
from streamsvd.data.labels import Axis, named

N, SAMPLES, P = 12, 80, 3
NAMES = np.array([f"f{k}" for k in range(N)], dtype=object)
MASK = np.arange(N) != 4
X = normal(N, SAMPLES) * np.linspace(1, 3, N)[:, None]


@pytest.fixture(scope="module")
def made() -> SVDResult:
    """Without names."""
    return sparse_pca(X, P, max_fill=0.3, feature_mask=MASK)


def called(made: SVDResult, features: Axis | None) -> SVDResult:
    return replace(made, features=features)


@pytest.mark.parametrize("features", [None, named("feature", NAMES)])
def test_top_features(made: SVDResult, features: Axis | None) -> None:
    dense = made.components.toarray()
    for k in (1, 2, 100):
        found = called(made, features).top_features(k)
        assert len(found) == P
        for row, top in zip(dense, found, strict=True):
            order = np.argsort(-np.abs(row), kind="stable")[: min(k, np.count_nonzero(row))]
            keys = [place if features is None else f"f{place}" for place in order.tolist()]
            assert top == list(zip(keys, row[order].tolist(), strict=True))
            assert all(type(loading) is float for _, loading in top)
    for bad in (0, 1.5, True):
        with pytest.raises(OptionError, match="k must be an integer of at least 1; got"):
            made.top_features(bad)  # type: ignore[arg-type]


def test_as_a_table(made: SVDResult) -> None:
    pandas = pytest.importorskip("pandas")
    dense = made.components.toarray().T
    dense[~MASK] = np.nan
    lat, lon = np.array([10.0, 0.0, -10.0]), np.arange(4)
    for features, index in (
        (None, pandas.RangeIndex(N, name="feature")),
        (named("feature", NAMES), pandas.Index(NAMES, name="feature")),
        (
            Axis(("lat", "lon"), (3, 4), {"lat": lat, "lon": lon}),
            pandas.MultiIndex.from_product([lat, lon], names=["lat", "lon"]),
        ),
    ):
        found = called(made, features).to_dataframe()
        columns = pandas.RangeIndex(P, name="component")
        pandas.testing.assert_frame_equal(found, pandas.DataFrame(dense, index, columns))


def test_pandas_is_optional(made: SVDResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(OptionError, match="this needs pandas: pip install pandas"):
        made.to_dataframe()


# ----------------------------------------------------------------------------------- counted


def numbers_in(texts: Any) -> set[int]:
    """Of components: ``component 2``, or ``2: 5.3%`` above an image."""
    found = (re.findall(r"component (\d+)|^(\d+): ", text) for text in texts)
    return {int(one or other) for some in found for one, other in some}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("loadings", {}),
        ("components", {"feature_names": NAMES}),
        ("components", {"image_shape": (3, 4)}),
        ("scores", {"X": X, "pair": (0, P - 1)}),
        ("biplot", {"X": X, "pair": (P - 1, 0)}),
    ],
)
def test_pictures_count_from_0(made: SVDResult, kind: str, options: dict[str, Any]) -> None:
    figure = made.plot(kind, **options)
    found = numbers_in(one.get_text() for one in figure.findobj(Text))
    assert found == ({0, P - 1} if "X" in options else set(range(P)))


def test_axes_count_from_0(made: SVDResult) -> None:
    ticks = made.plot("components").axes[0].get_yticklabels()
    assert [tick.get_text() for tick in ticks] == [str(c) for c in range(P)]
    each = made.plot("scree").axes[0]
    assert each.get_xlabel() == "component"
    assert [bar.get_center()[0] for bar in each.containers[0]] == list(range(P))


def test_tables_count_from_0(made: SVDResult, tmp_path: Any) -> None:
    """Text, the shell, HTML, and what other packages get."""
    made.save(tmp_path / "r")
    shell = CliRunner().invoke(main, ["info", str(tmp_path / "r")]).stdout
    for text in (repr(made), shell):
        table = text[text.index("component  singular") :].splitlines()[1 : P + 1]
        assert [line.split()[0] for line in table] == [str(c) for c in range(P)]
    page = made._repr_html_()
    assert re.findall(r"<tr><td[^>]*>(\d+)</td>", page) == [str(c) for c in range(P)]
    assert numbers_in(re.findall(r"component \d+", page)) == set(range(P))
    pytest.importorskip("xarray")
    assert made.to_xarray().component.values.tolist() == list(range(P))
