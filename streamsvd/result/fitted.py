"""What a fit leaves: the log, what was learned of the data, and how they were read."""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from streamsvd.algorithm.block_log import Log
from streamsvd.arrays import Array
from streamsvd.data.labels import Axis
from streamsvd.data.missing import Missing
from streamsvd.passes.preprocessing import Preprocessing
from streamsvd.refinement import Covariance, Gram, Refined
from streamsvd.result.certificate import Certificate


@dataclass(frozen=True, eq=False, repr=False)
class Fitted:
    """What a fit leaves: the log of its transforms, and what was learned of the data.

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
        Why the fit ended: ``"n_transforms"``, all were made; ``"budget"``, no other was within the
        limits of nonzeros; or ``"converged"``, no other would have improved it.
    settings : dict
        The options of the fit and the version that made it, for the record.
    covariance : Covariance or None
        ``X X^T`` of a fit with a reduction, in its form; not saved.
    refined : Refined or None
        Components that `refine` made from those of the path. They replace them in `components`;
        `path_components` keeps the others.
    certified : Certificate or None
        How near the best they are, where `certificate` has been asked or the fit has proven it.
    stability : (p, n) csr_array or None
        How often each feature is chosen in each of `components` when they are fitted to parts of
        the samples, from 0 to 1; see `streamsvd.sparse_pca_cv`, which measures it.
    features, samples : Axis or None
        What they are called, where the data said.
    feature_mask : (n,) array of bool or None
        The features that were to take part, where that was asked for.
    missing : Missing or None
        What was missing of these, with ``missing="mean"``: how many values of each feature, and the
        means that stand for them. Features that were left out of the fit, see `left_out`, are not
        in the log, `refined` and `covariance`.
    weight : float or None
        `W`, what the samples weigh together; None where each counts once.
    sample_weights : (N,) array or None
        What each weighs; None where it is not known, after batches.
    seconds : float or None
        What the call that made it took, refinement included; None where it was not recorded.
    bytes_read : int or None
        Read from the source by that call, counted after decompression.
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
    covariance: Covariance | None = None
    refined: Refined | None = None
    certified: Certificate | None = None
    stability: sparse.csr_array | None = None
    features: Axis | None = None
    samples: Axis | None = None
    feature_mask: Array | None = None
    missing: Missing | None = None
    weight: float | None = None
    sample_weights: Array | None = None
    seconds: float | None = None
    bytes_read: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: as saved, without the Gram matrix and what is built on first use."""
        return {one.name: getattr(self, one.name) for one in fields(self)} | {"covariance": None}

    # ------------------------------------------------------------------------------ sizes

    @property
    def n_components(self) -> int:
        """`p`."""
        return self.log.n_components

    @property
    def n_features(self) -> int:
        """`n`, of the data."""
        if self.feature_mask is not None:
            return len(self.feature_mask)
        return self.n_fitted if self.missing is None else len(self.missing.mean)

    @property
    def n_fitted(self) -> int:
        """Features that the fit has: all but those that are left out."""
        return self.log.n_features

    @cached_property
    def _kept(self) -> Array | None:
        """The features that the fit has, ascending; None for all."""
        mask, missing = self.feature_mask, self.missing
        chosen = None if mask is None else np.flatnonzero(mask)
        if missing is None or not len(missing.left_out):
            return chosen
        return missing.kept if chosen is None else chosen[missing.kept]

    @property
    def feature_names(self) -> Array | None:
        """(n,) names of the features, None where the data had none."""
        return None if self.features is None else self.features.names

    @property
    def sample_names(self) -> Array | None:
        """(N,) names of the samples of the fit, None where the data had none in memory."""
        return None if self.samples is None else self.samples.names

    @property
    def is_reduced(self) -> bool:
        """Whether the fit worked on ``X X^T`` (any `reduction`)."""
        return self.settings["reduction"] is not None

    @property
    def gram(self) -> Array | None:
        """(n, n) ``X X^T``, where the fit made it (``reduction="gram"``)."""
        return self.covariance.matrix if isinstance(self.covariance, Gram) else None

    @property
    def mean(self) -> Array:
        """(n,) means of the features, zeros unless ``center="features"``."""
        return self._of_all(self.preprocessing.mean)

    @property
    def scale(self) -> Array:
        """(n,) scales of the features, ones unless ``normalize="features"``."""
        return self._of_all(self.preprocessing.scale)

    def _of_all(self, numbers: Array) -> Array:
        """Numbers of the features of the fit in the places of all, NaN between them."""
        if self._kept is None:
            return numbers
        whole = np.full(self.n_features, np.nan)
        whole[self._kept] = numbers
        return whole
