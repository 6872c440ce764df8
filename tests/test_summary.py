"""What a result says of itself: text, HTML, what the fit took."""

import base64
import re
from dataclasses import replace
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from helpers import normal, write_zarr
from matplotlib.image import imread
from scipy import sparse

from streamsvd import SVDResult, sparse_pca, sparse_svd
from streamsvd.data.labels import Axis, named
from streamsvd.result.percent import percent

N, N_SAMPLES, P = 20, 300, 4
X = normal(N, N_SAMPLES) * np.linspace(1, 3, N)[:, None]


@pytest.fixture(scope="module")
def result() -> SVDResult:
    return sparse_pca(X, P, max_fill=0.2)


class Page(HTMLParser):
    """The rows of all tables as text; every tag must be closed in order."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.styles: list[str] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        self.styles += [value or "" for name, value in attrs if name == "style"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] in ("td", "th"):
            self.rows[-1].append(data)


def test_text_has_sizes_and_one_line_for_each_component(result: SVDResult) -> None:
    first, *lines = repr(result).splitlines()
    assert first.startswith(f"SVDResult(n_components={P}, n_features={N}, n_samples={N_SAMPLES}, ")
    assert first.endswith(", refined)")
    cells = [line.split() for line in lines]
    assert f"{N} features x {N_SAMPLES} samples" in " ".join(cells[0])
    assert ["read", f"{X.nbytes / 1024:.2f}", "kiB"] in cells
    for k, row in enumerate(result.components):
        share = f"{result.explained_variance_ratio[k]:.2%}"
        assert [str(k), f"{result.singular_values[k]:.6g}", str(row.nnz), share] in [
            line[:4] for line in cells
        ]
    assert max(map(len, lines)) <= 84


def test_text_of_many_components_is_short() -> None:
    text = repr(sparse_svd(X, 15, n_transforms=30))
    assert "... and 5 more" in text
    assert len(text.splitlines()) < 25


@pytest.mark.parametrize(
    ("options", "why", "words"),
    [
        ({"max_fill": 0.2}, "budget", "the budget of 16 nonzeros is spent"),
        (
            {"max_nonzeros_per_component": 3},
            "budget",
            "the budget of 12 nonzeros, at most 3 a component, is spent",
        ),
        ({"max_fill": 1.0, "n_transforms": 9}, "n_transforms", "as many as were to be made"),
        ({"max_fill": 0.9, "tol": 0.9}, "converged", r"no other would .* more than tol=0\.9"),
        ({"max_fill": 0.9, "tol": 0.0, "X": np.eye(20)}, "converged", "no other would improve"),
        ({"max_nonzeros": 4, "X": np.eye(20)}, "converged", "no other would improve the fit by"),
    ],
)
def test_why_the_fit_ended(options: dict[str, Any], why: str, words: str) -> None:
    """A budget ends it only where without that there were another transform to make."""
    data = options.pop("X", X)
    made = sparse_pca(data, P, refine=False, center=None, **options)
    assert made.stopped == why
    k = len(made.log)
    assert re.search(rf"\n  transforms +{k}; {words}", repr(made)), repr(made)
    if why == "budget":
        lifted = {"max_fill": 1.0, "n_transforms": k + 1}
        assert len(sparse_pca(data, P, refine=False, center=None, **lifted).log) == k + 1
    if k:
        assert re.search(rf"transforms +{k - 1}; of the {k} of the fit\n", repr(made.at(k - 1)))


def test_html_has_what_the_text_has(result: SVDResult) -> None:
    page = Page(result._repr_html_())
    text = [line.split() for line in repr(result).splitlines()[1:]]
    for row in page.rows[: -P - 1]:
        assert " ".join(row).split() in text
    head, *rows = page.rows[-P - 1 :]
    most = f"{result.explained_variance_ratio.max():.2%}"
    assert head[3] == f"explained variance (bars: 0 to {most})"
    for row in rows:
        assert row in text
    assert [row[0] for row in rows] == ["0", "1", "2", "3"]
    widths = [style for style in page.styles if "gradient" in style]
    assert len(widths) == P
    assert "100.0%" in widths[int(np.argmax(result.explained_variance_ratio))]


def test_html_of_unknown_variance_and_of_many_components() -> None:
    made = sparse_svd(X, 15, n_transforms=30)
    assert "<details>" in made._repr_html_()
    unknown = Page(made.at(3)._repr_html_())
    assert [row[3:] for row in unknown.rows[-15:]] == [["-", "-"]] * 15
    nothing = sparse_svd(np.zeros((5, 9)), 2)
    assert "<details open>" in nothing._repr_html_()
    assert Page(nothing._repr_html_()).rows[-1][3] == "0%"


def test_html_shows_components_as_images_where_they_are() -> None:
    lat, lon = np.array([50.0, 60, 70, 80]), np.arange(5.0) * 10 + 5
    made = sparse_pca(X, P, max_fill=0.2)
    grid = Axis(("lat", "lon"), (4, 5), {"lat": lat, "lon": lon})
    page = replace(made, features=grid)._repr_html_()
    Page(page)
    files = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert len(files) == P
    for row, file in zip(made.components.toarray(), files, strict=True):
        pixels = imread(BytesIO(base64.b64decode(file)))[..., :3]
        shown = row.reshape(4, 5)[::-1]  # north is up
        is_grey = np.ptp(pixels, axis=2) == 0
        np.testing.assert_array_equal(is_grey, shown == 0)
        is_red = pixels[..., 0] > pixels[..., 2]
        np.testing.assert_array_equal(is_red[~is_grey], shown[shown != 0] > 0)


def test_html_shows_components_as_bars_with_names(result: SVDResult) -> None:
    names = [f"<b>{k}</b> & co" for k in range(N)]
    page = replace(result, features=named("name", names))._repr_html_()
    assert "<b>" not in page
    Page(page)
    for c, (row, lines) in enumerate(zip(result.components, page.split("<tr>")[-P:], strict=True)):
        bars = {int(k): -int(v) for k, v in re.findall(r"M(\d+) 0v(-?\d+)", lines)}
        dense = row.toarray().ravel()
        expected = np.round(10 * dense / abs(dense).max()).astype(int)
        assert bars == {k: v for k, v in enumerate(expected.tolist()) if v}
        assert f"<title>component {c}</title>" in lines
        largest = int(abs(dense).argmax())
        assert f"&lt;b&gt;{largest}&lt;/b&gt; &amp; co {dense[largest]:.2f}" in lines


def test_html_of_many_features_is_small() -> None:
    made = sparse_svd(normal(500, 60), 50, n_transforms=600)
    assert len(made._repr_html_()) < 40_000


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.12345, "12.35%"),
        (1.0, "100.00%"),
        (0.0, "0%"),
        (0.00999, "1.00%"),
        (0.0003, "0.030%"),
        (-0.00012, "-0.012%"),
        (0.0000456, "0.0046%"),
        (1.5e-8, "1.5e-06%"),
        (np.nan, "-"),
    ],
)
def test_percent_says_something(share: float, text: str) -> None:
    assert percent(share) == text


def test_percent_in_few_digits() -> None:
    assert [percent(share, 1) for share in (0.123, 0.0099, 0.00996, 0.0003)] == [
        "12.3%",
        "0.99%",
        "1.0%",
        "0.030%",
    ]


# ------------------------------------------------------------------------------- what it took


def test_bytes_read_are_those_of_the_source(tmp_path: Path) -> None:
    single = X.astype("f4")
    path = write_zarr(tmp_path / "x.zarr", single, (7, 60))
    passes = {
        "in place": (sparse_svd(path, P, n_transforms=9), 1),
        "on disk": (sparse_svd(path, P, n_transforms=9, workspace=tmp_path / "w"), 1),
        "reduced": (sparse_pca(path, P), 1),
        "refined": (sparse_svd(path, P, n_transforms=9, refine=True), 2),
        "refined later": (sparse_svd(path, P, n_transforms=9).refine(path), 2),
        "dask": (sparse_pca(da.from_array(single, chunks=(20, 50)), P), 1),
        "array": (sparse_pca(single, P), 1),
    }
    found = {name: made.bytes_read for name, (made, _) in passes.items()}
    assert found == {name: n * single.nbytes for name, (_, n) in passes.items()}
    resumed = sparse_svd(path, P, n_transforms=12, workspace=tmp_path / "w", resume=True)
    assert resumed.bytes_read == 0  # the working store is taken up as it is


def test_bytes_read_of_a_sparse_source(tmp_path: Path) -> None:
    counts = sparse.random_array((N_SAMPLES, N), density=0.1, format="csr", rng=0)
    group = zarr.create_group(tmp_path / "x.zarr")
    group.attrs.update({"encoding-type": "csr_matrix", "shape": [N_SAMPLES, N]})
    parts = [counts.data, counts.indices, counts.indptr]
    for name, part in zip(("data", "indices", "indptr"), parts, strict=True):
        group.create_array(name, data=part)
    made = sparse_pca(tmp_path / "x.zarr", P, sample_axis=0)
    assert made.bytes_read == sum(part.nbytes for part in parts)


def test_seconds_grow_with_a_refinement_and_are_saved(tmp_path: Path) -> None:
    path = sparse_pca(X, P, max_fill=0.2, refine=False)
    assert path.seconds is not None
    assert path.seconds > 0
    assert path.at(2).seconds == path.seconds
    refined = path.refine()
    assert refined.seconds is not None
    assert refined.seconds > path.seconds
    refined.save(tmp_path / "r.zarr")
    again = SVDResult.load(tmp_path / "r.zarr")
    assert (again.seconds, again.bytes_read) == (refined.seconds, refined.bytes_read)
    assert repr(again) == repr(refined)


def test_results_saved_without_them_still_load(result: SVDResult, tmp_path: Path) -> None:
    replace(result, seconds=None, bytes_read=None).save(tmp_path / "r.zarr")
    again = SVDResult.load(tmp_path / "r.zarr")
    assert again.seconds is again.bytes_read is None
    assert not {"time", "read"} & {line.split()[0] for line in repr(again).splitlines() if line}
    refined = again.refine(X)
    assert refined.seconds is refined.bytes_read is None
