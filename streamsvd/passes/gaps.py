r"""The Gram matrix of batches in which values are missing: from one pass, as batches come once.

With z the values less a shift, 0 where one is missing, M the 0/1 matrix of what is missing, and
:math:`n_i` values of feature i that are there, of mean :math:`o_i`, the entries filled by the mean
and centred are :math:`y_{ij} = z_{ij} - o_i + m_{ij} o_i`, so

.. math::

    Y Y^T = Z Z^T - N o o^T + (Z M^T) D + D (Z M^T)^T + D (M M^T) D, \qquad D = \mathrm{diag}(o).

The two products more are made for those rows of a batch alone in which something is missing: up to
three times the work, and nothing more where nothing is. A feature without any value has z = 0 and
o = 0, and is left out in the end.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from streamsvd.arrays import Array
from streamsvd.data.missing import Missing
from streamsvd.data.present import ALL, Present
from streamsvd.errors import OptionError
from streamsvd.kernels.missing import add_present
from streamsvd.passes.centring import finish_gram
from streamsvd.passes.gram import GramSum
from streamsvd.passes.preprocessing import Preprocessing, refuse_constant
from streamsvd.passes.sum_tree import SumTree


class GappyGram(GramSum):
    """A `GramSum` of dense samples in which NaN is what is missing.

    Attributes
    ----------
    counts : (n,) array
        How many of the samples have no value.
    missing : Missing or None
        What was missing, once there is a `result`.
    """

    def __init__(
        self, n_features: int, center: str | None, normalize: str | None, n_threads: int = 1
    ) -> None:
        if "samples" in (center, normalize):
            raise OptionError(
                'center="samples" and normalize="samples" need the means of all samples first, and '
                'batches are read once: not with missing="mean" in partial_fit; use fit'
            )
        super().__init__(n_features, center, normalize, n_threads)
        self._changes_samples = self._of_features = True  # shifted when a batch is full
        self.counts = np.zeros(n_features, dtype=np.int64)
        self._there: Array | None = None  # what the samples with a value weigh
        self._gaps: Array | None = None  # of the leaf: Z M^T, and below it M M^T
        self._gap_tree, self._has_gaps = SumTree(), False
        self._now: tuple[Array, Array, Array] | None = None

    def options(self) -> dict[str, Any]:
        """The options that samples were added with, by name."""
        return super().options() | {"missing": "mean"}

    @property
    def n_kept(self) -> int:
        """Features that have a value."""
        return int(np.count_nonzero(self._present() > 0))

    def _present(self) -> Array:
        """How many samples have a value of each feature, or what these weigh."""
        return self.n_samples - self.counts if self._there is None else self._there

    def _add(self, samples: Array, weights: Array | None) -> None:
        lacks = np.isnan(samples)
        if weights is not None and self._there is None:
            self._there = float(self.n_samples) - self.counts
        if self._there is not None:
            self._there += ~lacks @ (np.ones(lacks.shape[1]) if weights is None else weights)
        self.counts += np.count_nonzero(lacks, axis=1)
        super()._add(samples, weights)

    def _prepare(self, samples: Array) -> None:
        if self.shift is None:
            n, width = samples.shape
            self.shift, present = np.zeros(n), np.zeros(n, dtype=np.int64)
            add_present(samples, 0, width, np.nan, self.shift, np.zeros(n), present)
        samples -= self.shift[:, None]
        lacks = np.isnan(samples)
        rows = np.flatnonzero(lacks.any(axis=1))
        samples[lacks] = 0.0
        self._now = (samples, rows, lacks[rows].astype(np.float64))

    def _weigh(self, batch: Array) -> None:
        super()._weigh(batch)
        assert self._now is not None  # noqa: S101  (made by `_prepare`)
        self._now[2][:] *= batch[-1]

    def _multiply(self) -> None:
        super()._multiply()
        assert self._now is not None  # noqa: S101  (made by `_prepare`)
        (samples, rows, lacks), self._now = self._now, None
        if not len(rows):
            return
        n, self._has_gaps = len(samples), True
        if self._gaps is None:
            self._gaps = np.zeros((2 * n, n))
        gaps = self._gaps

        def multiply(panel: slice) -> None:
            gaps[panel, rows] += samples[panel] @ lacks.T

        def count() -> None:
            gaps[n + rows[:, None], rows] += lacks @ lacks.T

        self._products += [self._threads.submit(multiply, panel) for panel in self._panels]
        self._products.append(self._threads.submit(count))

    def _close_leaf(self) -> None:
        super()._close_leaf()
        if self._gaps is not None:
            self._gap_tree.add(self._gaps)
        self._gaps = None

    def result(self, name: str = "the data", present: Present = ALL) -> tuple[Array, Preprocessing]:
        """``X X^T`` of the features that have a value, and what was learned of them."""
        node, n, n_samples = self.node(), len(self.counts), self.n_counted
        shift, kept = self.shift, np.flatnonzero(self._present() > 0)
        assert shift is not None  # noqa: S101  (there is a batch)
        there = np.where(self._present() > 0, self._present(), 1)
        offset = node[n] / there
        unlearned = Preprocessing.unlearned(None, None, n)
        gram, _ = finish_gram(node, unlearned, np.zeros(n), n_samples, name)
        crossed = shared = None
        if self._has_gaps:
            crossed, shared = np.split(self._gap_tree.total(), 2)
        for first in range(0, n, 64):  # temporaries of n x n would double the memory
            part = slice(first, first + 64)
            both = np.outer(offset[part], offset)
            gram[part] -= n_samples * both
            if crossed is not None and shared is not None:
                gram[part] += crossed[part] * offset + crossed[:, part].T * offset[part, None]
                gram[part] += both * shared[part]
        mean, variance = shift + offset, np.diag(gram) / there
        share = None if self._there is None else self._there / n_samples
        self.missing = Missing.of(mean, self.counts, self.n_samples, share)
        places = kept if present.places is None else present.places[kept]
        learned = self._learn(name, mean, variance, kept, places)
        if present.weights is not None:
            learned = replace(learned, weights=present.weights[kept])
        of_all = np.ones(n)
        if learned.divisor is not None:
            of_all[kept] = learned.divisor
        for first in range(0, n, 64):
            part = slice(first, first + 64)
            if learned.center != "features":
                gram[part] += n_samples * np.outer(mean[part], mean)
            gram[part] /= np.outer(of_all[part], of_all)
        return (gram if len(kept) == n else gram[np.ix_(kept, kept)]), learned

    def _learn(
        self, name: str, mean: Array, variance: Array, kept: Array, places: Array
    ) -> Preprocessing:
        """Mean and scale of the features that have a value, where they are asked for."""
        asked = self.preprocessing
        learned = Preprocessing.unlearned(asked.center, asked.normalize, len(kept))
        if asked.center == "features":
            learned.mean[:] = mean[kept]
        if asked.normalize == "features":
            refuse_constant(name, variance[kept], Present(places=places))
            learned.scale[:] = np.sqrt(variance[kept])
        return learned
