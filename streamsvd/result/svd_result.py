"""What the user gets: a solution, and what can be done with it."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from streamsvd.errors import OptionError
from streamsvd.options import Reading
from streamsvd.progress import Progress
from streamsvd.result import notebook, pictures
from streamsvd.result import text as summary
from streamsvd.result.exports import to_anndata, to_dataframe, to_xarray, top_features
from streamsvd.result.files import read_solution, write_solution
from streamsvd.result.refined import Refinable


@dataclass(frozen=True, eq=False, repr=False)
class SVDResult(Refinable):
    """Sparse orthonormal components of a matrix `X` of n features by N samples.

    Made by `streamsvd.sparse_svd`, `streamsvd.sparse_pca` or `SVDResult.load`. What it holds and
    what follows from that is in `Solution`.
    """

    def __repr__(self) -> str:
        return summary.text(self)

    def _repr_html_(self) -> str:
        return notebook.html(self)

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
        kind : str
            ``"components"``: all loadings; as images or maps where features lie on a grid, which
            `image_shape` says or the data did (two dimensions such as latitude and longitude), as
            bars where they are 20 or fewer and have names, else as a heat map. ``"loadings"``: the
            largest of each component as bars with the names of their features. ``"stability"``:
            how often each feature is chosen, see `streamsvd.sparse_pca_cv`. ``"scree"``: explained
            variance of each component and in sum. ``"variance"``, ``"accuracy"``: along the path,
            against transforms and against fill; accuracy is the objective over its bound, as in the
            paper. ``"scores"``: the samples on two of the components. ``"biplot"``: these, and the
            largest loadings as arrows.
        X : path, zarr.Array or array, optional
            The data of the fit, for one more pass: ``"scores"`` and ``"biplot"`` need them (any
            samples will do), so do ``"accuracy"``, and ``"variance"`` after a fit in place, unless
            the fit was with ``reduction="gram"`` and was not loaded; others compare with PCA when
            they have them.
        image_shape : (int, int), optional
            Rows and columns of pixels, when features are the pixels of an image, row by row.
        feature_names : sequence, optional
            Written at bars and arrows, and at a heat map of 60 or fewer; those of the data by
            default.
        labels : (N,) array, optional
            Colours of the samples: up to 40 classes, or floats on a scale.
        pair : (int, int)
            Components of the scores, counted from 0, as in every picture and table.
        progress, **reading
            As in `transform`.

        Returns
        -------
        matplotlib.figure.Figure
            Save it with ``savefig("x.png")``; notebooks show it once ``matplotlib.pyplot`` is
            imported.

        Notes
        -----
        More than 10,000 samples are shown as density, or with a line around the densest half of
        each class; of more than 200,000, evenly spaced ones are. Memory: an n x n matrix where `X`
        is given for other kinds than samples.
        """
        pictures.check(self, kind, image_shape, feature_names, pair)
        if kind in ("components", "stability", "loadings"):
            return pictures.draw_features(self, kind, image_shape, feature_names)
        source = None if X is None else self._open(X, reading)
        if kind in pictures.OF_SAMPLES:
            if source is None:
                raise OptionError("scores are of samples: pass X=..., some with these features")
            return pictures.draw_samples(self, kind, source, labels, pair, feature_names, progress)
        gram = self.gram
        if gram is None and source is not None:
            gram = self._gram_of(source, progress)
        return pictures.draw_path(self, kind, gram)

    # ----------------------------------------------------------------- for other libraries

    def top_features(self, k: int = 10) -> list[list[tuple[str | int, float]]]:
        """The features that each component is made of, by the size of their loadings.

        Parameters
        ----------
        k : int
            The most of each component; fewer where it has fewer nonzeros.

        Returns
        -------
        list of p lists of (feature, loading)
            Components from 0 in their order; the largest loadings first, of equals the first. A
            feature is its name where the data had names, else its number.

        Examples
        --------
        >>> import pandas
        >>> import streamsvd
        >>> meal = {"salt": [1, 5, 2, 8], "fat": [2, 9, 4, 17], "sugar": [3, 4, 3, 4]}
        >>> result = streamsvd.sparse_pca(pandas.DataFrame(meal), 1, max_nonzeros=2)
        >>> [name for name, loading in result.top_features(5)[0]]
        ['fat', 'salt']
        """
        return top_features(self, k)

    def to_dataframe(self) -> Any:
        """The loadings as a `pandas.DataFrame`, a row for each feature; needs pandas.

        Returns
        -------
        (n, p) pandas.DataFrame
            Dense. The index has the names of the features where the data had names, else their
            numbers; a level for each dimension where they have several, such as pixels. Columns are
            the components, counted from 0. Features that are left out (`left_out`) are NaN.
        """
        return to_dataframe(self)

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
            dense. Features of several dimensions, such as pixels, have their shape again, and
            dimensions that were stacked their levels, for `unstack`; features that are left out
            (`left_out`) are NaN. Dimensions and levels keep the names that the data have: where one
            is called as one of these variables, or ``component``, ours has an underscore more,
            ``components_``. Of several variables there are `components_sst`, `mean_sst` and
            `scale_sst` for one that is called sst; a dimension that is another one in an earlier
            variable has the name of the variable added, ``lat_sst``. With
            `feature_weights` also these (*features) and `patterns` (component, *features), maps in
            the units of the data.
        """
        source = None if X is None else self._open(X, reading)
        return to_xarray(self, source)

    def to_anndata(self, adata: Any, *, key: str = "pca") -> Any:
        """Write scores and loadings into an AnnData, where Scanpy looks for PCA; one pass.

        ``scanpy.pl.pca_loadings``, ``pca_variance_ratio`` and ``pca``, ``scanpy.pp.neighbors`` and
        all else then use them. (Scanpy's pictures count components from 1.)

        Parameters
        ----------
        adata : AnnData or path
            With the features of the fit among its variables. Of a fit on a layer, that layer is
            read again. Changed in place. A path is that of an AnnData in a local Zarr group, with
            the very features of the fit; the three elements are added to it (needs anndata).
        key : str
            Scores go to ``obsm["X_" + key]`` (N, p), loadings to ``varm[key]`` (n, p; sparse, zero
            for variables that were not in the fit), variances and options to ``uns[key]``. With
            ``"pca"`` loadings go to ``varm["PCs"]``, dense, as Scanpy's pictures need them. Those
            of another result of streamsvd are replaced; others, such as those of Scanpy, are
            refused before the pass.

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
