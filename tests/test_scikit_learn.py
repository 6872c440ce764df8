"""scikit-learn's own tests of `IncrementalPCA`, run on ours with ``max_fill=1``."""

import warnings
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest

from streamsvd import StreamingSparsePCA

theirs = pytest.importorskip("sklearn.decomposition.tests.test_incremental_pca")


class IncrementalPCA(StreamingSparsePCA):
    """Ours by their name, with all entries allowed, and with their parameters, which say how."""

    def __init__(
        self,
        n_components: int | None = None,
        *,
        whiten: bool = False,
        copy: bool = True,
        batch_size: int | None = None,
    ) -> None:
        super().__init__(n_components, whiten=whiten, max_fill=1.0)
        self.copy = copy
        self.batch_size = batch_size


DIFFER: dict[str, tuple[type[BaseException], str]] = {
    # their last lines ask for an error: our partial_fit takes sparse batches
    "test_incremental_pca_sparse": (pytest.fail.Exception, "DID NOT RAISE <?.*TypeError"),
    # the words of the same ValueError; a first batch may have fewer samples than components
    "test_incremental_pca_validation": (AssertionError, r"n_components=4 exceeds min\(n_features"),
}
"""The tests that do not pass, all but for names and words, and how they end."""


def cases() -> Iterator[Any]:
    """Each of their functions, as often as its parameters say."""
    for name, function in vars(theirs).items():
        if not name.startswith("test_"):
            continue
        marks = [mark for mark in getattr(function, "pytestmark", []) if mark.name == "parametrize"]
        given = [[(mark.args[0], value) for value in mark.args[1]] for mark in marks]
        for chosen in product(*given):
            words = [getattr(value, "__name__", str(value)) for _, value in chosen]
            yield pytest.param(function, dict(chosen), id="-".join([name, *words]))


CASES = list(cases())


@pytest.mark.parametrize(("function", "arguments"), CASES)
def test_theirs(
    function: Callable[..., None], arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(theirs, "IncrementalPCA", IncrementalPCA)
    if "global_random_seed" in function.__code__.co_varnames:
        arguments = arguments | {"global_random_seed": 42}
    with warnings.catch_warnings():
        if function.__name__ not in DIFFER:
            function(**arguments)
            return
        kind, words = DIFFER[function.__name__]
        with pytest.raises(kind, match=words):
            function(**arguments)


def test_all_of_them_are_there() -> None:
    names = {case.id.partition("-")[0] for case in CASES}
    assert set(DIFFER) < names
    assert len(CASES) >= 27
