"""The paper's four data sets, as features by samples, from a folder of .npz files or OpenML."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

OPENML = {
    "mnist": "mnist_784",
    "usps": "USPS",
    "isolet": "isolet",
    "fashion": "Fashion-MNIST",
}

Matrix = NDArray[np.float64]
Labels = NDArray[Any]


def load(name: str, folder: Path | None = None) -> Matrix:
    """Data set `name` as an (n, N) float64 array, without preprocessing.

    From ``folder / "<name>.npz"`` where that exists, else from OpenML (scikit-learn's
    `fetch_openml`, which needs the network once). MNIST are its first 60000 samples. ``"digits"``
    comes with scikit-learn.
    """
    return load_labelled(name, folder)[0]


def load_labelled(name: str, folder: Path | None = None) -> tuple[Matrix, Labels]:
    """The same with the (N,) classes."""
    x, y = _samples(name, folder)
    return np.ascontiguousarray(x.T, dtype=np.float64), y


def _samples(name: str, folder: Path | None) -> tuple[NDArray[Any], Labels]:
    if folder is not None and (folder / f"{name}.npz").exists():
        with np.load(folder / f"{name}.npz") as arrays:
            return _FROM_FILE[name](arrays)
    from sklearn.datasets import fetch_openml, load_digits

    if name == "digits":
        return load_digits(return_X_y=True)
    found = fetch_openml(OPENML[name], version=1, as_frame=False, parser="liac-arff")
    last = 60000 if name == "mnist" else None
    return found.data[:last], found.target[:last]


_FROM_FILE: dict[str, Callable[[Any], tuple[NDArray[Any], Labels]]] = {
    "mnist": lambda a: (a["x_train"], a["y_train"]),
    "usps": lambda a: (
        np.vstack([a["x_train"], a["x_test"]]),
        np.concatenate([a["y_train"], a["y_test"]]),
    ),
    "isolet": lambda a: (a["x"] / 10000, a["y"]),
    "fashion": lambda a: (a["x"], a["y"]),
}


def center_columns(x: Matrix) -> Matrix:
    """The paper's preprocessing: each sample minus its mean, over its norm. A new array."""
    x = x - x.mean(axis=0)
    norms = np.linalg.norm(x, axis=0)
    x /= np.where(norms > 0, norms, 1.0)
    return x
