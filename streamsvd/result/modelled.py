"""A solution as a model of data: samples from their scores, and how likely samples are."""

import os
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from dask.utils import format_bytes

from streamsvd.arrays import Array
from streamsvd.data import Source, open_data
from streamsvd.data.source import turned
from streamsvd.data.weights import sample_weights_of
from streamsvd.errors import OptionError, ResourceError
from streamsvd.options import Ask, Reading
from streamsvd.options.rules import working_dtype
from streamsvd.passes.likelihood import Density
from streamsvd.passes.measure import write_samples
from streamsvd.passes.strips import StripReader
from streamsvd.progress import Progress, progress_bar
from streamsvd.result.measured import Measured
from streamsvd.sizes import strip_width
from streamsvd.storage.outputs import new_output, open_written
from streamsvd.system import free_memory


@dataclass(frozen=True, eq=False, repr=False)
class Modelled(Measured):
    """What the components say of data that they are not fitted to."""

    def inverse_transform(
        self,
        scores: Any,
        out: str | os.PathLike[str] | None = None,
        *,
        whiten: bool = False,
        dtype: Any = None,
        progress: Progress = None,
        **reading: Unpack[Reading],
    ) -> Any:
        """Samples from their scores, ``mean + patterns.T @ scores``, chunk by chunk.

        What `transform` takes away is put back: samples are in the units of the data. NaN in
        features that are left out. What centring or scaling of each sample by itself took away is
        not in the scores, and they are refused.

        Parameters
        ----------
        scores : path, zarr.Array or array
            As `transform` gives them: (p, N), or (N, p) where samples are rows.
        out : path, optional
            Write a new Zarr array here, as `transform` does, and return it.
        whiten : bool
            Whether `transform` was asked to whiten them.
        dtype : {None, "float32", "float64"}
            Of the samples, float64 by default.
        progress
            As in `sparse_svd`.
        **reading
            How scores are read. Of these samples are on `sample_axis`, by default as in the fit.

        Returns
        -------
        (n, N) array, or (N, n) when samples are rows
            Of `dtype`.
        """
        if "samples" in (self.preprocessing.center, self.preprocessing.normalize):
            raise OptionError(
                "inverse_transform cannot undo the centring or scaling of each sample by itself "
                '(center="samples", normalize="samples"): multiply by components instead'
            )
        number = working_dtype(np.dtype(np.float64), dtype)
        source = self._open_scores(scores, reading)
        rows = self.patterns
        if whiten:
            rows = rows.multiply(self._deviations[:, None]).tocsr()
        width = strip_width(self.n_features, source.n_samples, 1)
        made = (rows, self.mean, StripReader(source, np.dtype(np.float64)))
        shape, chunks = (self.n_features, source.n_samples), (self.n_features, width)
        if source.sample_axis == 0:
            shape, chunks = shape[::-1], chunks[::-1]
        with progress_bar(progress, "inverse", source.n_samples) as advance:
            if out is None:
                samples = np.empty(shape, number)
                write_samples(*made, samples, width, advance)
                return samples
            with new_output(out, shape, chunks, number) as array:
                write_samples(*made, array, width, advance)
        return open_written(out)

    def score_samples(
        self, X: Any, *, progress: Progress = None, **reading: Unpack[Reading]
    ) -> Array:
        """The logarithm of the likelihood of each sample, (N,), by the model of `get_covariance`.

        As `score_samples` of scikit-learn's PCA. One pass; `X` and the other parameters are as in
        `transform`. What is missing counts as the mean of its feature.
        """
        source = self._open(X, reading)
        found = np.empty(source.n_samples)
        with progress_bar(progress, "likelihood", source.n_samples) as advance:
            reader = StripReader(source, self.dtype)
            for start, some in self._density.of_samples(self.preprocessing, reader, advance):
                found[start : start + len(some)] = some
        return found

    def score(
        self,
        X: Any,
        *,
        sample_weights: Any = None,
        progress: Progress = None,
        **reading: Unpack[Reading],
    ) -> float:
        """The average of `score_samples`: how well the components and their variances fit `X`.

        As `score` of scikit-learn's PCA, to choose between components on samples left out: the
        larger the better, of no scale of its own. The share of the variance of `X` that the
        components hold is ``accuracy(X).captured_variance``.

        Parameters
        ----------
        X
            As in `transform`.
        sample_weights : (N,) array, optional
            How many times each sample counts; once by default.
        progress, **reading
            As in `transform`.

        Raises
        ------
        OptionError
            Where the model has no density: with ``min(n, N)`` components of more features, or
            components without any variance.
        """
        source = self._open(X, reading)
        weights = sample_weights_of(source, sample_weights)
        found = self.score_samples(source, progress=progress)
        return float(np.average(found, weights=weights))

    @property
    def noise_variance(self) -> float:
        """What is left of the variance beyond the components, over ``min(n, N) - p``; 0 if that is.

        Of the features of the fit, centred, scaled and weighted.
        """
        beyond = min(self.n_fitted, self.n_samples) - self.n_components
        left = self.total_energy / self.freedom - self.explained_variance.sum()
        return max(float(left), 0.0) / beyond if beyond else 0.0

    def get_covariance(self) -> Array:
        """(n, n) the covariance of the data by a model of the components and noise.

        ``patterns.T @ diag(v) @ patterns`` and the noise on the diagonal, with `v` what
        `explained_variance` is above `noise_variance`: probabilistic PCA with the components as
        axes, see `streamsvd.passes.likelihood`; with ``max_fill=1`` that of scikit-learn's PCA. In
        the units of the data (of samples that are each centred or scaled by themselves, of these);
        mean squares where features were not centred; NaN at features that are left out.
        """
        return self._of_pairs(self._density.covariance)

    def get_precision(self) -> Array:
        """(n, n) the inverse of `get_covariance`; refuses one that is singular, as `score`."""
        return self._of_pairs(self._density.precision)

    @property
    def _density(self) -> Density:
        variances, noise = self._variances, self.noise_variance
        return Density(self.fitted_components, variances, noise, self.preprocessing.divisor)

    def _of_pairs(self, make: Any) -> Array:
        """A matrix of the features of the fit in the places of all."""
        need, free = 16 * self.n_features**2, free_memory()
        if need > free:
            raise ResourceError(
                f"a matrix of {self.n_features} x {self.n_features} features takes "
                f"{format_bytes(need)} of memory to make, and {format_bytes(free)} are free; score "
                "and score_samples need none"
            )
        found: Array = make()
        if self._kept is None:
            return found
        whole = np.full((self.n_features, self.n_features), np.nan)
        whole[np.ix_(self._kept, self._kept)] = found
        return whole

    def _open_scores(self, scores: Any, reading: Reading) -> Source:
        was = Ask.as_recorded(self.settings)
        fitted = Ask(sample_axis=self.sample_axis, sample_dim=was.sample_dim)
        source = open_data(scores, Ask(**reading), fitted)
        if source.n_features != self.n_components:
            raise OptionError(
                f"scores are of {source.n_features} components, but there are "
                f"{self.n_components} components{turned(source, self.n_components)}"
            )
        return source
