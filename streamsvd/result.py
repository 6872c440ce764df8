"""What the user gets: sparse orthonormal components, and the path that led to them."""

import os
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from streamsvd.blocklog import BlockLog, Log, new_log
from streamsvd.errors import OptionError, SourceError
from streamsvd.gram import gram_matrix
from streamsvd.ingest import Preprocessing, StripReader
from streamsvd.kernels import Array
from streamsvd.metrics import Accuracy, measure
from streamsvd.options import Options, Progress, check_axis, parse_size
from streamsvd.progress import progress_bar
from streamsvd.refine import Refined, refine_rows
from streamsvd.sources import Source, open_source
from streamsvd.store import new_output, open_written, read_group, write_group
from streamsvd.system import n_cpus

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
    log : TransformLog or BlockLog
        Pairs and 2x2 factors of all transforms of the fit, or indices and factors of its block
        steps (``algorithm="block"``), which count as transforms.
    n_transforms : int
        How many of them this result uses, see `at`.
    n_samples : int
        `N`.
    initial_diagonal : (p,) array
        Diagonal of the working matrix (`X`, or its Gram matrix) before the first transform.
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
    gram : (n, n) array or None
        ``X X^T`` of a fit with ``reduction="gram"``; not saved.
    refined : Refined or None
        Components that `refine` made from those of the path. They replace them in `components`;
        `path_components` keeps the others.
    """

    log: Log
    n_transforms: int
    n_samples: int
    initial_diagonal: Array
    total_energy: float
    final_energies: Array
    preprocessing: Preprocessing
    sample_axis: int
    dtype: np.dtype[Any]
    stopped: str
    settings: dict[str, Any]
    gram: Array | None = None
    refined: Refined | None = None

    def __repr__(self) -> str:
        explained = ""
        ratio = float(self.explained_variance_ratio.sum())
        if not np.isnan(ratio):
            explained = f", explained_variance={ratio:.4g}"
        if self.refined is not None:
            explained += ", refined"
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
    def is_reduced(self) -> bool:
        """Whether the fit worked on ``X X^T`` (``reduction="gram"``)."""
        return self.settings["reduction"] == "gram"

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
        rows = self._rows
        return _signed_rows(rows, self._order, _signs(rows))

    @cached_property
    def path_components(self) -> sparse.csr_array:
        """(p, n) components of the path at `n_transforms`: `components` before `refine`."""
        return replace(self, refined=None).components

    @cached_property
    def right(self) -> sparse.csr_array:
        """(p, N) right vectors as rows, orthonormal.

        ``components @ X @ right.T`` has `singular_values` on its diagonal. Not there after
        ``reduction="gram"`` or `refine`.
        """
        if self.is_reduced or self.refined is not None:
            raise OptionError(
                "there are no right vectors on X X^T or after refine(); use transform(X) for the "
                "scores, or fit without reduction"
            )
        signs = _signs(self._rows) * np.where(self._diagonal < 0, -1.0, 1.0)
        return _signed_rows(self.log.right_vectors(self.n_transforms), self._order, signs)

    @property
    def singular_values(self) -> Array:
        """(p,) diagonal of ``U_p^T X V_p``, descending; at most those of `X`, in sum.

        After ``reduction="gram"`` or `refine`: the norms of the rows of ``U_p^T X``.
        """
        if self.is_reduced or self.refined is not None:
            return np.sqrt(np.maximum(self._energies, 0.0))[self._order]
        return np.abs(self._diagonal)[self._order]

    @cached_property
    def _diagonal(self) -> Array:
        return self.log.diagonal(self.initial_diagonal, self.n_transforms)

    @cached_property
    def _energies(self) -> Array:
        """(p,) sums of squares of the rows of ``U_p^T X``, not sorted; NaN where not known."""
        if self.refined is not None:
            return self.refined.energies
        if self.is_reduced:
            return self._diagonal
        if self.n_transforms == len(self.log):
            return self.final_energies
        return np.full(self.n_components, np.nan)

    @cached_property
    def _order(self) -> Array:
        sizes = self._diagonal if self.refined is None else self._energies
        return np.argsort(-np.abs(sizes), kind="stable")

    @cached_property
    def _rows(self) -> sparse.csr_array:
        if self.refined is not None:
            return self.refined.components
        return self.log.components(self.n_transforms)

    # ------------------------------------------------------------------------------- path

    @property
    def pairs(self) -> Array:
        """(m, 2) the pairs (i, j) of the transforms, in order; rows of the working matrix.

        After a pivot, row r is feature ``log.order[r]``. Block steps have ``log.indices`` instead.
        """
        if isinstance(self.log, BlockLog):
            raise OptionError("block steps have no pairs: see log.indices")
        return self.log.pairs[: self.n_transforms]

    @property
    def n_nonzeros(self) -> int:
        """Nonzeros of the components."""
        return int(self._rows.nnz)

    @property
    def fill(self) -> float:
        """Nonzeros of the components as a share of ``p n``."""
        return self.n_nonzeros / (self.n_components * self.n_features)

    @cached_property
    def history(self) -> History:
        """Trace, nonzeros, fill and explained variance after each transform."""
        k = self.n_transforms
        nonzeros = self.log.n_nonzeros(k)
        trace = self.log.trace(self.initial_diagonal, k)
        explained = np.full(k, np.nan)
        if self.is_reduced and self.total_energy > 0:
            explained = trace / self.total_energy
        elif k and k == len(self.log):
            explained[-1] = replace(self, refined=None).explained_variance_ratio.sum()
        fill = nonzeros / (self.n_components * self.n_features)
        return History(trace, nonzeros, fill, explained)

    def path(self) -> Array:
        """The whole path as a table: a structured array of ``len(log) + 1`` rows.

        Fields ``transforms``, ``n_nonzeros``, ``fill``, ``explained_variance`` (a share of the
        total; NaN where not known). `at` gives the result of any row.
        """
        history = replace(self, n_transforms=len(self.log)).history
        fields = [("transforms", "i8"), ("n_nonzeros", "i8")]
        fields += [("fill", "f8"), ("explained_variance", "f8")]
        table = np.empty(len(self.log) + 1, dtype=fields)
        table["transforms"] = np.arange(len(table))
        table["n_nonzeros"] = np.append(self.n_components, history.n_nonzeros)
        table["fill"] = table["n_nonzeros"] / (self.n_components * self.n_features)
        start = np.nan
        if self.is_reduced and self.total_energy > 0:
            start = self.initial_diagonal.sum() / self.total_energy
        table["explained_variance"] = np.append(start, history.explained_variance)
        return table

    @property
    def explained_variance(self) -> Array:
        """(p,) variance of the scores of each component, divisor ``N - 1``; NaN where not known.

        The components are orthonormal, so these add up. They are variances proper when features
        were centred, mean squares otherwise. Known at the end of a fit; elsewhere on the path
        `accuracy` measures the sum in one pass.
        """
        return self._energies[self._order] / max(self.n_samples - 1, 1)

    @property
    def explained_variance_ratio(self) -> Array:
        """(p,) `explained_variance` over the total variance of all features."""
        total = self.total_energy / max(self.n_samples - 1, 1)
        return self.explained_variance / total if total > 0 else np.zeros(self.n_components)

    def at(
        self,
        k: int | None = None,
        *,
        fill: float | None = None,
        explained_variance: float | None = None,
    ) -> "SVDResult":
        """The result at another point of the path, not refined.

        Parameters
        ----------
        k : int
            After the first `k` transforms.
        fill : float
            The last point with at most this share of nonzeros.
        explained_variance : float
            The first point that explains at least this share of the total variance; where that is
            known along the path (``reduction="gram"``).
        """
        if sum(value is not None for value in (k, fill, explained_variance)) != 1:
            raise OptionError("at() takes one of k, fill and explained_variance")
        if fill is not None:
            k = self._last_within(fill)
        elif explained_variance is not None:
            k = self._first_explaining(explained_variance)
        last = len(self.log)
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 0 <= k <= last:
            raise OptionError(
                f"k must be an integer from 0 to the {last} transforms made; got {k!r}"
            )
        return replace(self, n_transforms=int(k), refined=None)

    def _last_within(self, fill: float) -> int:
        within = np.flatnonzero(self.path()["fill"] <= fill)
        if not len(within):
            least = 1 / self.n_features
            raise OptionError(f"fill={fill} is below the {least:.3g} that the path starts with")
        return int(within[-1])

    def _first_explaining(self, share: float) -> int:
        if not self.is_reduced:
            raise OptionError(
                'explained variance along the path is known after reduction="gram" only; use k or '
                "fill, and accuracy(X)"
            )
        explained = self.path()["explained_variance"]
        enough = np.flatnonzero(explained >= share)
        if not len(enough):
            raise OptionError(
                f"explained_variance={share} is not reached: the path ends at {explained[-1]:.4g}"
            )
        return int(enough[0])

    def refine(
        self,
        X: Any = None,
        *,
        max_fill: float | None = None,
        max_nonzeros: int | None = None,
        sample_axis: int | None = None,
        missing_chunks: str = "error",
        progress: Progress = None,
    ) -> "SVDResult":
        """Raise the explained variance of the components within a budget of nonzeros.

        All components move at once; they stay orthonormal to rounding and exactly sparse, and
        explain at least as much as before. They are no longer a product of the transforms of the
        log: `refined` says so, and `path_components` keeps those. See `streamsvd.refine` for the
        method.

        Parameters
        ----------
        X : path, zarr.Array or array, optional
            The data of the fit, for one more pass; not needed right after ``reduction="gram"``.
        max_fill, max_nonzeros : float, int, optional
            Budget of all components together, as a share of ``p n`` or a count; as many as there
            are now by default.
        sample_axis, missing_chunks, progress
            As in `transform`.

        Notes
        -----
        Needs the n x n Gram matrix in memory, and time that grows with the budget.
        """
        limits = Options(
            n_components=self.n_components, max_fill=max_fill, max_nonzeros=max_nonzeros
        )
        budget = limits.budget(self.n_features) or self.n_nonzeros
        if budget < self.n_nonzeros:
            raise OptionError(
                f"a budget of {budget} is less than the {self.n_nonzeros} nonzeros of the "
                "components to start from; start from an earlier point, see at(fill=...)"
            )
        gram = self.gram
        if gram is None:
            if X is None:
                raise OptionError("refine() needs the data of the fit: pass it as X")
            gram = self._gram_of(X, sample_axis, missing_chunks, progress)
        return replace(self, refined=refine_rows(gram, self._rows, budget))

    def _gram_of(
        self, X: Any, sample_axis: int | None, missing_chunks: str, progress: Progress
    ) -> Array:
        source = self._open(X, sample_axis, missing_chunks)
        if source.n_samples != self.n_samples:
            raise OptionError(
                f"{source.name} has {source.n_samples} samples, the fit had {self.n_samples}; "
                "refine with the data of the fit"
            )
        with progress_bar(progress, "gram", source.n_samples) as advance:
            return gram_matrix(
                source,
                self.preprocessing.center,
                self.preprocessing.normalize,
                n_threads=n_cpus(),
                on_samples=advance,
            )[0]

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
            Write a new Zarr array here, chunked like the strips that are read, and return it; it
            is there when it is complete.
        sample_axis : {0, 1}, optional
            Axis of the samples in `X`; that of the fit by default.
        missing_chunks, progress
            As in `sparse_svd`.

        Returns
        -------
        (p, N) array, or (N, p) when samples are rows
            Float64. Each sample's scores depend on that sample alone, bit for bit.
        """
        source = self._open(X, sample_axis, missing_chunks)
        shape = (self.n_components, source.n_samples)
        reader = StripReader(source, self.dtype)
        if out is None:
            scores = np.empty(shape if source.sample_axis else shape[::-1])
            self._write_scores(reader, scores, progress)
            return scores
        chunks = (shape[0], reader.step)
        if source.sample_axis == 0:
            shape, chunks = shape[::-1], chunks[::-1]
        with new_output(out, shape, chunks, np.dtype(np.float64)) as array:
            self._write_scores(reader, array, progress)
        return open_written(out)

    def _write_scores(self, reader: StripReader, target: Any, progress: Progress) -> None:
        source = reader.source
        with progress_bar(progress, "transform", source.n_samples) as advance:
            for start, strip in reader:
                self.preprocessing.apply(strip)
                scores = self.components @ strip.astype(np.float64, copy=False)
                where = slice(start, start + scores.shape[1])
                if source.sample_axis:
                    target[:, where] = scores
                else:
                    target[where, :] = scores.T
                advance(scores.shape[1])

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
        source = self._open(X, sample_axis, missing_chunks)
        with progress_bar(progress, "accuracy", source.n_samples) as advance:
            return measure(
                self.components,
                None if self.is_reduced or self.refined is not None else self.right,
                source,
                self.preprocessing,
                self.dtype,
                parse_size("gram_limit", gram_limit),
                advance,
            )

    def _open(self, X: Any, sample_axis: int | None, missing_chunks: str) -> Source:
        if isinstance(X, Source):
            return X
        axis = self.sample_axis if sample_axis is None else sample_axis
        check_axis(axis)
        source = open_source(X, axis, missing_chunks=missing_chunks)
        if source.n_features != self.n_features:
            raise OptionError(
                f"{source.name} has {source.n_features} features, the fit had {self.n_features}; "
                "pass the same features, and sample_axis if samples are on the other axis"
            )
        return source

    # -------------------------------------------------------------------------- on disk

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the result as a Zarr group, all or nothing.

        Other programs find ``components`` (and ``right``) as CSR triples (``data``, ``indices``,
        ``indptr``) and ``singular_values``; streamsvd itself reads back the log, which determines
        them.
        """
        k = self.n_transforms
        arrays = {
            **{f"log/{name}": array for name, array in self.log.arrays().items()},
            "log/order": self.log.order,
            "initial_diagonal": self.initial_diagonal,
            "final_energies": self.final_energies,
            "mean": self.mean,
            "scale": self.scale,
            "singular_values": self.singular_values,
        }
        matrices = {"components": self.components}
        if self.refined is not None:
            matrices["refined/rows"] = self.refined.components
            arrays["refined/energies"] = self.refined.energies
        elif not self.is_reduced:
            matrices["right"] = self.right
        for name, matrix in matrices.items():
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
        try:
            return cls._from_group(arrays, attributes)
        except KeyError as error:
            raise SourceError(f"{path} is not whole: {error.args[0]} is missing") from error

    @classmethod
    def _from_group(cls, arrays: dict[str, Array], attributes: dict[str, Any]) -> "SVDResult":
        p, n, n_samples = (attributes[key] for key in ("n_components", "n_features", "n_samples"))
        is_reduced = attributes["settings"]["reduction"] == "gram"
        algorithm = attributes["settings"].get("algorithm", "coordinate")
        log = new_log(algorithm, p, n, n if is_reduced else n_samples)
        log.order = arrays["log/order"]
        log.extend(*(arrays[f"log/{k}"] for k in log.NAMES))
        refined = None
        if "refined/energies" in arrays:
            parts = tuple(arrays[f"refined/rows/{key}"] for key in ("data", "indices", "indptr"))
            refined = Refined(sparse.csr_array(parts, shape=(p, n)), arrays["refined/energies"])
        return cls(
            log=log,
            n_transforms=attributes["n_transforms"],
            n_samples=n_samples,
            refined=refined,
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


def _signs(rows: sparse.csr_array) -> Array:
    """+-1 for each row, such that its largest entry by absolute value becomes positive."""
    bounds = pairwise(rows.indptr)
    largest = [rows.data[a:b][np.argmax(np.abs(rows.data[a:b]))] for a, b in bounds]
    return np.where(np.array(largest) < 0, -1.0, 1.0)


def _signed_rows(rows: sparse.csr_array, order: Array, signs: Array) -> sparse.csr_array:
    """Rows of a CSR matrix times +-1, in the given order."""
    lengths = np.diff(rows.indptr)
    signed = rows.data * np.repeat(signs, lengths)
    take = np.concatenate([np.arange(rows.indptr[i], rows.indptr[i + 1]) for i in order])
    indptr = np.concatenate([[0], np.cumsum(lengths[order])])
    return sparse.csr_array((signed[take], rows.indices[take], indptr), shape=rows.shape)
