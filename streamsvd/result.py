"""What the user gets: sparse orthonormal components, and the path that led to them."""

import os
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from streamsvd.errors import OptionError
from streamsvd.ingest import Preprocessing, StripReader
from streamsvd.kernels import Array
from streamsvd.metrics import Accuracy, measure
from streamsvd.options import Progress, parse_size
from streamsvd.progress import progress_bar
from streamsvd.store import open_output, open_source, read_group, write_group
from streamsvd.transforms import TransformLog

FORMAT, VERSION = "streamsvd-result", 1


class History(NamedTuple):
    """The path of a fit, one entry after each transform."""

    trace: Array
    """(m,) the objective: sum of the first p diagonal entries; never decreases."""
    n_nonzeros: Array
    """(m,) nonzeros of the components, counted from the supports."""
    fill: Array
    """(m,) the same as a share of ``p n``."""
    explained_variance: Array
    """(m,) share of the total variance captured; NaN where it is not known."""


@dataclass(frozen=True, eq=False)
class SVDResult:
    """Sparse orthonormal components of a matrix `X` of n features by N samples.

    Made by `streamsvd.sparse_svd` or `SVDResult.load`. Everything follows from the transform log;
    sparse matrices are built on first use and kept.

    Attributes
    ----------
    log : TransformLog
        Pairs and 2x2 factors of all transforms of the fit.
    n_transforms : int
        How many of them this result uses, see `at`.
    initial_diagonal : (p,) array
        ``X[i, i]`` before the first transform.
    total_energy : float
        Sum of squares of `X` after centring and scaling.
    final_energies : (p,) array
        Sum of squares of the first p rows of ``U^T X`` at the end of the fit.
    preprocessing : Preprocessing
        How samples are centred and scaled.
    sample_axis : int
        Axis of the samples in the source.
    dtype : numpy.dtype
        Precision of the working matrix.
    stopped : str
        Why the fit ended: ``"n_transforms"`` or ``"converged"``.
    settings : dict
        The options of the fit and the version that made it, for the record.
    """

    log: TransformLog
    n_transforms: int
    initial_diagonal: Array
    total_energy: float
    final_energies: Array
    preprocessing: Preprocessing
    sample_axis: int
    dtype: np.dtype[Any]
    stopped: str
    settings: dict[str, Any]

    def __repr__(self) -> str:
        explained = ""
        if self.n_transforms == len(self.log):
            explained = f", explained_variance={float(self.explained_variance_ratio.sum()):.4g}"
        return (
            f"SVDResult(n_components={self.n_components}, n_features={self.n_features}, "
            f"n_samples={self.n_samples}, n_transforms={self.n_transforms}, "
            f"fill={self.fill:.4g}{explained})"
        )

    # ------------------------------------------------------------------------------ sizes

    @property
    def n_components(self) -> int:
        """`p`."""
        return self.log.n_components

    @property
    def n_features(self) -> int:
        """`n`."""
        return self.log.n_features

    @property
    def n_samples(self) -> int:
        """`N`."""
        return self.log.n_samples

    @property
    def mean(self) -> Array:
        """(n,) means of the features, zeros unless ``center="features"``."""
        return self.preprocessing.mean

    @property
    def scale(self) -> Array:
        """(n,) scales of the features, ones unless ``normalize="features"``."""
        return self.preprocessing.scale

    # ------------------------------------------------------------------------- components

    @cached_property
    def components(self) -> sparse.csr_array:
        """(p, n) components as rows, by decreasing singular value.

        Orthonormal to rounding and exactly zero off their supports. The loading of largest
        absolute value is positive (the first on ties).
        """
        return _signed_rows(self._components, self._order, self._left_signs)

    @cached_property
    def right(self) -> sparse.csr_array:
        """(p, N) right vectors as rows, orthonormal.

        ``components @ X @ right.T`` has `singular_values` on its diagonal.
        """
        diagonal_signs = np.where(self._diagonal < 0, -1.0, 1.0)
        signs = self._left_signs * diagonal_signs
        return _signed_rows(self.log.right_vectors(self.n_transforms), self._order, signs)

    @property
    def singular_values(self) -> Array:
        """(p,) diagonal of ``U_p^T X V_p``, descending; at most those of `X`, in sum."""
        return np.abs(self._diagonal)[self._order]

    @cached_property
    def _diagonal(self) -> Array:
        return self.log.diagonal(self.initial_diagonal, self.n_transforms)

    @cached_property
    def _order(self) -> Array:
        return np.argsort(-np.abs(self._diagonal), kind="stable")

    @cached_property
    def _components(self) -> sparse.csr_array:
        return self.log.components(self.n_transforms)

    @cached_property
    def _left_signs(self) -> Array:
        rows = self._components
        largest = [
            rows.data[a:b][np.argmax(np.abs(rows.data[a:b]))]
            for a, b in zip(rows.indptr[:-1], rows.indptr[1:], strict=True)
        ]
        return np.where(np.array(largest) < 0, -1.0, 1.0)

    # ------------------------------------------------------------------------------- path

    @property
    def pairs(self) -> Array:
        """(m, 2) the pairs (i, j) of the transforms, in order."""
        return self.log.pairs[: self.n_transforms]

    @property
    def n_nonzeros(self) -> int:
        """Nonzeros of the components."""
        return int(self._components.nnz)

    @property
    def fill(self) -> float:
        """Nonzeros of the components as a share of ``p n``."""
        return self.n_nonzeros / (self.n_components * self.n_features)

    @cached_property
    def history(self) -> History:
        """Trace, nonzeros, fill and explained variance after each transform."""
        k = self.n_transforms
        nonzeros = self.log.n_nonzeros(k)
        explained = np.full(k, np.nan)
        if k and k == len(self.log):
            explained[-1] = self.explained_variance_ratio.sum()
        return History(
            self.log.trace(self.initial_diagonal, k),
            nonzeros,
            nonzeros / (self.n_components * self.n_features),
            explained,
        )

    @property
    def explained_variance(self) -> Array:
        """(p,) variance of the scores of each component, divisor ``N - 1``; NaN where not known.

        The components are orthonormal, so these add up. They are variances proper when features
        were centred, mean squares otherwise. Known at the end of a fit; elsewhere on the path
        `accuracy` measures the sum in one pass.
        """
        if self.n_transforms != len(self.log):
            return np.full(self.n_components, np.nan)
        return self.final_energies[self._order] / max(self.n_samples - 1, 1)

    @property
    def explained_variance_ratio(self) -> Array:
        """(p,) `explained_variance` over the total variance of all features."""
        total = self.total_energy / max(self.n_samples - 1, 1)
        return self.explained_variance / total if total > 0 else np.zeros(self.n_components)

    def at(self, k: int) -> "SVDResult":
        """The result after the first `k` transforms."""
        if (
            isinstance(k, bool)
            or not isinstance(k, int | np.integer)
            or not 0 <= k <= len(self.log)
        ):
            raise OptionError(
                f"k must be an integer from 0 to the {len(self.log)} transforms made; got {k!r}"
            )
        return replace(self, n_transforms=int(k))

    # --------------------------------------------------------------------------- the data

    def transform(
        self,
        X: Any,
        out: str | os.PathLike[str] | None = None,
        *,
        sample_axis: int | None = None,
        missing_chunks: str = "error",
        progress: Progress = None,
    ) -> Any:
        """Scores ``components @ X``, after the centring and scaling of the fit, chunk by chunk.

        Parameters
        ----------
        X : path, zarr.Array or array
            Samples with the features of the fit.
        out : path, optional
            Write a new Zarr array here, chunked like the strips that are read, and return it.
        sample_axis : {0, 1}, optional
            Axis of the samples in `X`; that of the fit by default.
        missing_chunks, progress
            As in `sparse_svd`.

        Returns
        -------
        (p, N) array, or (N, p) when samples are rows
            Float64. Each sample's scores depend on that sample alone, bit for bit.
        """
        axis = self.sample_axis if sample_axis is None else sample_axis
        source = open_source(X, axis, missing_chunks=missing_chunks)
        self._check_features(source.n_features, source.name)
        shape = (self.n_components, source.n_samples)
        reader = StripReader(source, self.dtype)
        target = open_output(out, shape, axis, reader.step)
        with progress_bar(progress, "transform", source.n_samples) as advance:
            for start, strip in reader:
                self.preprocessing.apply(strip)
                scores = self.components @ strip.astype(np.float64, copy=False)
                where = slice(start, start + scores.shape[1])
                if axis == 1:
                    target[:, where] = scores
                else:
                    target[where, :] = scores.T
                advance(scores.shape[1])
        return target

    def accuracy(
        self,
        X: Any,
        *,
        sample_axis: int | None = None,
        missing_chunks: str = "error",
        gram_limit: int | str = "2GiB",
        progress: Progress = None,
    ) -> Accuracy:
        """Measure the components against data in one pass, see `Accuracy`.

        Parameters
        ----------
        X : path, zarr.Array or array
            The data of the fit, or other samples with the same features.
        gram_limit : int or str
            The true singular values come from the n x n Gram matrix; they are left out when it
            would be larger.
        sample_axis, missing_chunks, progress
            As in `transform`.
        """
        axis = self.sample_axis if sample_axis is None else sample_axis
        source = open_source(X, axis, missing_chunks=missing_chunks)
        self._check_features(source.n_features, source.name)
        with progress_bar(progress, "accuracy", source.n_samples) as advance:
            return measure(
                self.components,
                self.right,
                source,
                self.preprocessing,
                self.dtype,
                parse_size("gram_limit", gram_limit),
                advance,
            )

    def _check_features(self, n: int, name: str) -> None:
        if n != self.n_features:
            raise OptionError(
                f"{name} has {n} features, the fit had {self.n_features}; "
                "pass the same features, and sample_axis if samples are on the other axis"
            )

    # -------------------------------------------------------------------------- on disk

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the result as a Zarr group, all or nothing.

        Other programs find ``components`` and ``right`` as CSR triples (``data``, ``indices``,
        ``indptr``) and ``singular_values``; streamsvd itself reads back the log, which determines
        them.
        """
        k = self.n_transforms
        arrays = {
            "log/pairs": self.log.pairs,
            "log/left": self.log.left[: len(self.log)],
            "log/right": self.log.right[: len(self.log)],
            "log/values": self.log.values,
            "initial_diagonal": self.initial_diagonal,
            "final_energies": self.final_energies,
            "mean": self.mean,
            "scale": self.scale,
            "singular_values": self.singular_values,
        }
        for name, matrix in (("components", self.components), ("right", self.right)):
            arrays[f"{name}/data"] = matrix.data
            arrays[f"{name}/indices"] = matrix.indices
            arrays[f"{name}/indptr"] = matrix.indptr
        attributes = {
            "format": FORMAT,
            "version": VERSION,
            "n_components": self.n_components,
            "n_features": self.n_features,
            "n_samples": self.n_samples,
            "n_transforms": k,
            "total_energy": self.total_energy,
            "center": self.preprocessing.center,
            "normalize": self.preprocessing.normalize,
            "sample_axis": self.sample_axis,
            "dtype": self.dtype.name,
            "stopped": self.stopped,
            "settings": self.settings,
        }
        write_group(path, arrays, attributes, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "SVDResult":
        """Read a result that `save` wrote."""
        arrays, attributes = read_group(path)
        found = attributes.get("format"), attributes.get("version")
        if found != (FORMAT, VERSION):
            raise OptionError(
                f"{path} is not a result of this version: format and version are {found}, "
                f"need {(FORMAT, VERSION)}"
            )
        sizes = (attributes[k] for k in ("n_components", "n_features", "n_samples"))
        log = TransformLog(*sizes)
        log.extend(*(arrays[f"log/{k}"] for k in ("pairs", "left", "right", "values")))
        return cls(
            log=log,
            n_transforms=attributes["n_transforms"],
            initial_diagonal=arrays["initial_diagonal"],
            total_energy=attributes["total_energy"],
            final_energies=arrays["final_energies"],
            preprocessing=Preprocessing(
                attributes["center"], attributes["normalize"], arrays["mean"], arrays["scale"]
            ),
            sample_axis=attributes["sample_axis"],
            dtype=np.dtype(attributes["dtype"]),
            stopped=attributes["stopped"],
            settings=attributes["settings"],
        )


def _signed_rows(rows: sparse.csr_array, order: Array, signs: Array) -> sparse.csr_array:
    """Rows of a CSR matrix times +-1, in the given order."""
    lengths = np.diff(rows.indptr)
    signed = rows.data * np.repeat(signs, lengths)
    take = np.concatenate([np.arange(rows.indptr[i], rows.indptr[i + 1]) for i in order])
    indptr = np.concatenate([[0], np.cumsum(lengths[order])])
    return sparse.csr_array((signed[take], rows.indices[take], indptr), shape=rows.shape)
