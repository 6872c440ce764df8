"""The paper's four data sets, as features by samples, from a folder of .npz files or OpenML."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

OPENML = {
    "mnist": "mnist_784",
    "usps": "USPS",
    "isolet": "isolet",
    "fashion": "Fashion-MNIST",
}

Matrix = NDArray[np.float64]


def load(name: str, folder: Path | None = None) -> Matrix:
    """Data set `name` as an (n, N) float64 array, without preprocessing.

    From ``folder / "<name>.npz"`` where that exists, else from OpenML (scikit-learn's
    `fetch_openml`, which needs the network once). MNIST are its first 60000 samples.
    """
    if folder is not None and (folder / f"{name}.npz").exists():
        with np.load(folder / f"{name}.npz") as arrays:
            return np.ascontiguousarray(_FROM_FILE[name](arrays).T, dtype=np.float64)
    from sklearn.datasets import fetch_openml

    x = fetch_openml(OPENML[name], version=1, as_frame=False, parser="liac-arff").data
    if name == "mnist":
        x = x[:60000]
    return np.ascontiguousarray(x.T, dtype=np.float64)


_FROM_FILE: dict[str, Callable[..., NDArray[np.generic]]] = {
    "mnist": lambda a: a["x_train"],
    "usps": lambda a: np.vstack([a["x_train"], a["x_test"]]),
    "isolet": lambda a: a["x"] / 10000,
    "fashion": lambda a: a["x"],
}


def center_columns(x: Matrix) -> Matrix:
    """The paper's preprocessing: each sample minus its mean, over its norm. A new array."""
    x = x - x.mean(axis=0)
    norms = np.linalg.norm(x, axis=0)
    x /= np.where(norms > 0, norms, 1.0)
    return x
