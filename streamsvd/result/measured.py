"""A solution and data: scores of samples, and how good the components are on them."""

import os
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from streamsvd.arrays import Array
from streamsvd.cluster.tasks import cluster_scores, cluster_sums
from streamsvd.cluster.waiting import check_client
from streamsvd.data import Source, open_data
from streamsvd.data.missing import as_fitted
from streamsvd.data.source import turned
from streamsvd.data.weights import sample_weights_of
from streamsvd.errors import OptionError
from streamsvd.options import Ask, Reading
from streamsvd.options.rules import parse_size, working_dtype
from streamsvd.passes.measure import Accuracy, accuracy_of, sum_up, write_scores
from streamsvd.passes.strips import StripReader
from streamsvd.progress import Progress, progress_bar
from streamsvd.result.solution import Solution
from streamsvd.storage.outputs import new_output, open_written


@dataclass(frozen=True, eq=False, repr=False)
class Measured(Solution):
    """What is done with data."""

    def transform(
        self,
        X: Any,
        out: str | os.PathLike[str] | None = None,
        *,
        whiten: bool = False,
        dtype: Any = None,
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
        whiten : bool
            Divide the scores of each component by the root of its `explained_variance`, so that
            each has the variance 1 on the data of the fit. Scores of sparse components stay as
            correlated as they are, a little; those of PCA are not.
        dtype : {None, "float32", "float64"}
            Of the scores, float64 by default, also of float32 data. They are computed in float64 in
            any case; float32 rounds them once, for half of the memory, or of the disk.
        client : distributed.Client, optional
            Work on a Dask cluster, whose workers read `X` and write `out`: they must see both. Each
            chunk of `out` has one writer.
        progress
            As in `sparse_svd`.
        **reading
            How `X` is read, by the options of `sparse_svd`: `sample_axis`, `sample_dim`, `layer`,
            `decode`, `missing_chunks`, `storage_options`. What is left out is as it was in the fit,
            but for the two last.

        Returns
        -------
        (p, N) array, or (N, p) when samples are rows
            Of `dtype`. Each sample's scores depend on that sample alone, bit for bit: what is
            missing of it is filled by the means of the fit, where that was with ``missing="mean"``.
        """
        number = working_dtype(np.dtype(np.float64), dtype)
        source = self._open(X, reading)
        shape = (self.n_components, source.n_samples)
        reader = StripReader(source, self.dtype)
        rows = self.fitted_components
        if whiten:
            rows = rows.multiply(1 / self._deviations[:, None]).tocsr()
        fitted = (rows, self.preprocessing)
        if out is None:
            if client is not None:
                raise OptionError("transform(client=...) writes to a store: give out=")
            scores = np.empty(shape if source.sample_axis else shape[::-1], number)
            with progress_bar(progress, "transform", source.n_samples) as advance:
                write_scores(*fitted, reader, scores, advance)
            return scores
        chunks = (shape[0], reader.width)
        if source.sample_axis == 0:
            shape, chunks = shape[::-1], chunks[::-1]
        with (
            new_output(out, shape, chunks, number) as array,
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
        sample_weights: Any = None,
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
        sample_weights : (N,) array, optional
            How many times each sample counts, see `sparse_svd`; once by default, also after a fit
            with weights.
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
        with_gram = 8 * self.n_fitted**2 <= parse_size("gram_limit", gram_limit)
        source.sample_weights = sample_weights_of(source, sample_weights)
        right = None
        is_whole = source.n_samples == self.n_samples and sample_weights is None
        if not self.is_reduced and self.refined is None and is_whole:
            right = self.right.tocsc()
        rows, reader = self.fitted_components, StripReader(source, self.dtype)
        asked = (rows, self.preprocessing, reader, right)
        with progress_bar(progress, "accuracy", source.n_samples) as advance:
            if client is None:
                sums = sum_up(*asked, with_gram, advance)
            else:
                sums = cluster_sums(check_client(client), *asked, with_gram, advance)
        return accuracy_of(rows, sums, right is not None)

    @property
    def _variances(self) -> Array:
        """(p,) `explained_variance`; refuses where it is not known."""
        variances = self.explained_variance
        if np.isnan(variances).any():
            raise OptionError(
                "the explained variances are not known at this point of the path, as they are at "
                "the end of a fit: refine(X) it, or take the result of the fit"
            )
        return variances

    @property
    def _deviations(self) -> Array:
        """(p,) standard deviations of the scores; of those that have next to none, what has some.

        Rounding makes the variances of null components, which are not to be divided by.
        """
        found = np.sqrt(np.maximum(self._variances, 0.0))
        least = np.finfo(float).eps * found.max()
        return np.maximum(found, least) if least else np.ones_like(found)

    def _some_scores(self, source: Source, step: int, progress: Progress) -> Array:
        """Scores of every `step`-th sample, (p, ceil(N / step)), in one pass."""
        parts = []
        with progress_bar(progress, "scores", source.n_samples) as advance:
            for start, strip in StripReader(source, self.dtype):
                some = np.ascontiguousarray(strip[:, -start % step :: step])
                self.preprocessing.apply(some)
                parts.append(self.fitted_components @ some.astype(np.float64, copy=False))
                advance(strip.shape[1])
        return np.hstack(parts)

    def _open(self, X: Any, reading: Reading) -> Source:
        if isinstance(X, Source):
            return self._as_fitted(X)
        unknown = reading.keys() - set(Ask._fields)
        if unknown:
            raise TypeError(f"unexpected keyword argument(s): {', '.join(sorted(unknown))}")
        source = open_data(X, Ask(**reading), Ask.as_recorded(self.settings))
        self.check_features(source)
        return self._as_fitted(source)

    def _as_fitted(self, source: Source) -> Source:
        """As it was in the fit: the same features, what is missing filled by the same means."""
        if self.settings["normalize"] == "variables" and source.present.variables is None:
            source.scale_variables(self.features)
        if source.present.weights is None:  # else it is that of the fit, at its end
            source.weigh(self.feature_weights)
        code = self.settings.get("missing_value")
        return as_fitted(source, self.feature_mask, self.missing, code)

    def check_features(self, source: Source) -> None:
        """Refuse data with other features than those of the fit."""
        if source.n_features != self.n_features:
            raise OptionError(
                f"{source.name} has {source.n_features} features, the fit had {self.n_features}"
                + (turned(source, self.n_features) or "; pass the same features")
            )
        if self.features is not None:
            source.check_names(self.features)
