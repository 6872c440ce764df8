"""What the user gets: a solution, and what can be done with it."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np
from dask.utils import format_bytes

from streamsvd.arrays import Array
from streamsvd.cluster.tasks import cluster_scores, cluster_sums
from streamsvd.cluster.waiting import check_client
from streamsvd.data import Source, open_data
from streamsvd.errors import OptionError, ResourceError
from streamsvd.options import Ask, Options, Reading, parse_size
from streamsvd.passes.gram import gram_matrix
from streamsvd.passes.measure import Accuracy, accuracy_of, sum_up, write_scores
from streamsvd.passes.strips import StripReader
from streamsvd.progress import Progress, progress_bar
from streamsvd.refinement import Gram, refine
from streamsvd.result import curves
from streamsvd.result import loadings as plot
from streamsvd.result import text as summary
from streamsvd.result.exports import to_anndata, to_xarray
from streamsvd.result.files import read_solution, write_solution
from streamsvd.result.solution import Solution
from streamsvd.storage.outputs import new_output, open_written
from streamsvd.system import free_memory, n_cpus


@dataclass(frozen=True, eq=False, repr=False)
class SVDResult(Solution):
    """Sparse orthonormal components of a matrix `X` of n features by N samples.

    Made by `streamsvd.sparse_svd`, `streamsvd.sparse_pca` or `SVDResult.load`. What it holds and
    what follows from that is in `Solution`.
    """

    def __repr__(self) -> str:
        return summary.text(self)

    def _repr_html_(self) -> str:
        return summary.html(self)

    def refine(
        self,
        X: Any = None,
        *,
        max_fill: float | None = None,
        max_nonzeros: int | None = None,
        max_nonzeros_per_component: int | None = None,
        progress: Progress = None,
        **reading: Unpack[Reading],
    ) -> "SVDResult":
        """Raise the explained variance of the components within a budget of nonzeros.

        All components move at once; they stay orthonormal to rounding and exactly sparse, and
        explain at least as much as before. They are no longer a product of the transforms of the
        log: `refined` says so, and `path_components` keeps those. The method is described in
        `streamsvd.refinement`.

        Parameters
        ----------
        X : path, zarr.Array or array, optional
            The data of the fit, for one more pass; not needed right after ``reduction="gram"``.
        max_fill, max_nonzeros : float, int, optional
            Budget of all components together, as a share of ``p n`` or a count; as many as there
            are now by default.
        max_nonzeros_per_component : int, optional
            The most that each of them may have.
        progress, **reading
            As in `transform`.

        Notes
        -----
        Needs the n x n Gram matrix in memory, and time that grows with the budget.
        """
        limits = Options(
            n_components=self.n_components,
            max_fill=max_fill,
            max_nonzeros=max_nonzeros,
            max_nonzeros_per_component=max_nonzeros_per_component,
        )
        cap = max_nonzeros_per_component
        most = int(np.diff(self._rows.indptr).max())
        if cap is not None and cap < most:
            raise OptionError(
                f"max_nonzeros_per_component={cap} is less than the {most} nonzeros of a component "
                "to start from; start from an earlier point, see at(fill=...)"
            )
        budget = limits.budget(self.n_features) or self.n_nonzeros
        if budget < self.n_nonzeros:
            raise OptionError(
                f"a budget of {budget} is less than the {self.n_nonzeros} nonzeros of the "
                "components to start from; start from an earlier point, see at(fill=...)"
            )
        began, gram, bytes_read = time.monotonic(), self.gram, self.bytes_read
        if gram is None:
            if X is None:
                raise OptionError("refine() needs the data of the fit: pass it as X")
            source = self._open(X, reading)
            gram = self._gram_of(source, progress)
            bytes_read = None if bytes_read is None else bytes_read + source.bytes_read
        refined = refine(Gram(gram), self.n_components, budget, cap, [self._rows])
        seconds = None
        if self.seconds is not None:
            seconds = self.seconds + time.monotonic() - began
        return replace(self, refined=refined, seconds=seconds, bytes_read=bytes_read)

    def adjusted_variance(
        self,
        X: Any = None,
        *,
        progress: Progress = None,
        **reading: Unpack[Reading],
    ) -> Array:
        """Variance of the scores of each component beyond those of the components before it.

        That of Zou, Hastie and Tibshirani ("Sparse principal component analysis", 2006, section
        3.4), for correlated scores. As the components are orthonormal, `explained_variance` is the
        variance that they reconstruct, and the sum of this one is never larger.

        Parameters
        ----------
        X : path, zarr.Array or array, optional
            The data of the fit, for one more pass; not needed right after ``reduction="gram"``.
        progress, **reading
            As in `transform`.

        Returns
        -------
        (p,) array
            Divisor ``N - 1``.
        """
        gram = self.gram
        if gram is None:
            if X is None:
                raise OptionError("adjusted_variance() needs the data of the fit: pass it as X")
            gram = self._gram_of(self._open(X, reading), progress)
        products = self.components @ (self.components @ gram).T  # S S^T, of the scores S
        values, vectors = np.linalg.eigh(products)
        root = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
        triangle = np.linalg.qr(root, mode="r")  # that of S^T = Q R
        return np.diag(triangle) ** 2 / max(self.n_samples - 1, 1)

    def _gram_of(self, source: Source, progress: Progress) -> Array:
        if source.n_samples != self.n_samples:
            raise OptionError(
                f"{source.name} has {source.n_samples} samples, the fit had {self.n_samples}; "
                "refine with the data of the fit"
            )
        need, free = 8 * self.n_features**2, free_memory()
        if need > free:
            raise ResourceError(
                f"X X^T of {self.n_features} features takes {format_bytes(need)} of memory, and "
                f"{format_bytes(free)} are free; use fewer features or a larger machine"
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
        client: Any = None,
        progress: Progress = None,
        **reading: Unpack[Reading],
    ) -> Any:
        """Scores ``components @ X``, after the centring and scaling of the fit, chunk by chunk.

        Parameters
        ----------
        X : path, zarr.Array or array
            Samples with the features of the fit.
        out : path, optional
            Write a new Zarr array here, chunked like the strips that are read, and return it; it
            is there when it is complete.
        client : distributed.Client, optional
            Work on a Dask cluster, whose workers read `X` and write `out`: they must see both. Each
            chunk of `out` has one writer.
        progress
            As in `sparse_svd`.
        **reading
            How `X` is read, by the options of `sparse_svd`: `sample_axis`, `sample_dim`, `layer`,
            `missing_chunks`, `storage_options`. What is left out is as it was in the fit, but for
            the two last.

        Returns
        -------
        (p, N) array, or (N, p) when samples are rows
            Float64. Each sample's scores depend on that sample alone, bit for bit.
        """
        source = self._open(X, reading)
        shape = (self.n_components, source.n_samples)
        reader = StripReader(source, self.dtype)
        fitted = (self.components, self.preprocessing)
        if out is None:
            if client is not None:
                raise OptionError("transform(client=...) writes to a store: give out=")
            scores = np.empty(shape if source.sample_axis else shape[::-1])
            with progress_bar(progress, "transform", source.n_samples) as advance:
                write_scores(*fitted, reader, scores, advance)
            return scores
        chunks = (shape[0], reader.width)
        if source.sample_axis == 0:
            shape, chunks = shape[::-1], chunks[::-1]
        with (
            new_output(out, shape, chunks, np.dtype(np.float64)) as array,
            progress_bar(progress, "transform", source.n_samples) as advance,
        ):
            if client is None:
                write_scores(*fitted, reader, array, advance)
            else:
                cluster_scores(check_client(client), *fitted, reader, array, advance)
        return open_written(out)

    def accuracy(
        self,
        X: Any,
        *,
        gram_limit: int | str = "2GiB",
        client: Any = None,
        progress: Progress = None,
        **reading: Unpack[Reading],
    ) -> Accuracy:
        """Measure the components against data in one pass, see `Accuracy`.

        Parameters
        ----------
        X : path, zarr.Array or array
            The data of the fit, or other samples with the same features.
        gram_limit : int or str
            The true singular values come from the n x n Gram matrix; they are left out when it
            would be larger.
        client : distributed.Client, optional
            Work on a Dask cluster, whose workers read `X`; the same to rounding.
        progress, **reading
            As in `transform`.

        Notes
        -----
        Cost: a read of the data, and ``n^2 N`` operations for the singular values.
        """
        source = self._open(X, reading)
        with_gram = 8 * self.n_features**2 <= parse_size("gram_limit", gram_limit)
        right = None
        if not self.is_reduced and self.refined is None and source.n_samples == self.n_samples:
            right = self.right.tocsc()
        asked = (self.components, self.preprocessing, StripReader(source, self.dtype), right)
        with progress_bar(progress, "accuracy", source.n_samples) as advance:
            if client is None:
                sums = sum_up(*asked, with_gram, advance)
            else:
                sums = cluster_sums(check_client(client), *asked, with_gram, advance)
        return accuracy_of(self.components, sums, right is not None)

    def plot(
        self,
        kind: str = "components",
        X: Any = None,
        *,
        image_shape: tuple[int, int] | None = None,
        feature_names: Sequence[Any] | None = None,
        labels: Any = None,
        pair: tuple[int, int] = (0, 1),
        progress: Progress = None,
        **reading: Unpack[Reading],
    ) -> Any:
        """Draw the result, with matplotlib (``pip install "streamsvd[plot]"``).

        Parameters
        ----------
        kind : {"components", "scree", "variance", "accuracy", "scores"}
            ``"components"``: the loadings, as a heat map or as images. ``"scree"``: explained
            variance of each component and in sum. ``"variance"``, ``"accuracy"``: along the path,
            against transforms and against fill; accuracy is the objective over its bound, as in
            the paper. ``"scores"``: the samples on two of the components.
        X : path, zarr.Array or array, optional
            The data of the fit, for one more pass: ``"scores"`` needs them (any samples will do),
            so do ``"accuracy"``, and ``"variance"`` after a fit in place, unless the fit was with
            ``reduction="gram"`` and was not loaded; others compare with PCA when they have them.
        image_shape : (int, int), optional
            Rows and columns of pixels, when features are the pixels of an image, row by row.
        feature_names : sequence, optional
            Written at the heat map where there are 60 or fewer; those of the data by default.
        labels : (N,) array, optional
            Colours of the scores: classes, or floats on a scale.
        pair : (int, int)
            Components of the scores, counted from 0.
        progress, **reading
            As in `transform`.

        Returns
        -------
        matplotlib.figure.Figure
            Save it with ``savefig("x.png")``; notebooks show it once ``matplotlib.pyplot`` is
            imported.

        Notes
        -----
        Of more than 20,000 samples, as many are drawn, evenly spaced. Memory: an n x n matrix
        where `X` is given for other kinds than scores.
        """
        plot.check(self, kind, image_shape, feature_names, pair)
        if kind == "components" and image_shape is not None:
            return plot.draw_images(self, image_shape)
        if kind == "components":
            names = self.feature_names if feature_names is None else feature_names
            return plot.draw_heat_map(self, names)
        source = None if X is None else self._open(X, reading)
        if kind == "scores":
            if source is None:
                raise OptionError("scores are of samples: pass X=..., some with these features")
            labels = plot.check_labels(labels, source.n_samples)
            step = -(-source.n_samples // plot.MOST_POINTS)
            scores = self._some_scores(source, step, progress)
            labels = None if labels is None else labels[::step]
            return plot.draw_scores(self, scores, labels, pair, source.n_samples)
        gram = self.gram
        if gram is None and source is not None:
            gram = self._gram_of(source, progress)
        if kind == "scree":
            return curves.draw_scree(self, gram)
        curve = curves.variance_curve if kind == "variance" else curves.accuracy_curve
        return curves.draw_curve(self, curve(self, gram))

    def _some_scores(self, source: Source, step: int, progress: Progress) -> Array:
        """Scores of every `step`-th sample, (p, ceil(N / step)), in one pass."""
        parts = []
        with progress_bar(progress, "scores", source.n_samples) as advance:
            for start, strip in StripReader(source, self.dtype):
                some = np.ascontiguousarray(strip[:, -start % step :: step])
                self.preprocessing.apply(some)
                parts.append(self.components @ some.astype(np.float64, copy=False))
                advance(strip.shape[1])
        return np.hstack(parts)

    def _open(self, X: Any, reading: Reading) -> Source:
        if isinstance(X, Source):
            return X
        unknown = reading.keys() - set(Ask._fields)
        if unknown:
            raise TypeError(f"unexpected keyword argument(s): {', '.join(sorted(unknown))}")
        settings = self.settings
        fitted = Ask(self.sample_axis, settings.get("sample_dim"), settings.get("layer"))
        source = open_data(X, Ask(**reading), fitted)
        self.check_features(source)
        return source

    def check_features(self, source: Source) -> None:
        """Refuse data with other features than those of the fit."""
        if source.n_features != self.n_features:
            raise OptionError(
                f"{source.name} has {source.n_features} features, the fit had {self.n_features}; "
                "pass the same features, and sample_axis if samples are on the other axis"
            )
        if self.features is not None and source.features is not None:
            difference = self.features.difference(source.features)
            if difference is not None:
                raise OptionError(
                    f"{source.name} has other features than the fit, or in another order: "
                    f"{difference}"
                )

    # ----------------------------------------------------------------- for other libraries

    def to_xarray(self, X: Any = None, **reading: Unpack[Reading]) -> Any:
        """Components and variances as an `xarray.Dataset`, with the coordinates of the features.

        Parameters
        ----------
        X : DataArray or other data, optional
            Adds the `scores` of these samples, with their coordinates: one pass.
        **reading
            As in `transform`.

        Returns
        -------
        xarray.Dataset
            `components` (component, *features), `mean` and `scale` (*features),
            `explained_variance`, `explained_variance_ratio` and `singular_values` (component,);
            dense. Features of several dimensions, such as pixels, have their shape again.
        """
        source = None if X is None else self._open(X, reading)
        return to_xarray(self, source)

    def to_anndata(self, adata: Any, *, key: str = "sparse_pca") -> Any:
        """Write scores and loadings into an AnnData, as Scanpy does for PCA; one pass.

        Parameters
        ----------
        adata : AnnData or path
            With the features of the fit among its variables. Of a fit on a layer, that layer is
            read again. Changed in place. A path is that of an AnnData in a local Zarr group, with
            the very features of the fit; the three elements are added to it (needs anndata).
        key : str
            Scores go to ``obsm["X_" + key]`` (N, p), loadings to ``varm[key]`` (n, p; sparse, zero
            for variables that were not in the fit), variances and options to ``uns[key]``.

        Returns
        -------
        AnnData or path
            `adata`.
        """
        return to_anndata(self, adata, key)

    # -------------------------------------------------------------------------- on disk
    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the result as a Zarr group, all or nothing.

        Other programs find ``components`` (and ``right``) as CSR triples (``data``, ``indices``,
        ``indptr``) and ``singular_values``; streamsvd itself reads back the log, which determines
        them.
        """
        write_solution(path, self, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "SVDResult":
        """Read a result that `save` wrote; refuses one that is damaged, or of another format.

        Each file is compared with its checksum, and what it says with what a result can be; nothing
        is decoded by a codec that the file chooses.
        """
        return cls(**read_solution(path))
