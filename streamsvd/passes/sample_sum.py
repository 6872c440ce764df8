"""A sum over samples that come in order, in pieces of any size, with the same bits for all of them.

Batches of samples are added up to leaves and the leaves in a tree; the sizes of both depend on `n`
alone. What is added up is said by `streamsvd.passes.gram.GramSum`,
`streamsvd.passes.products.ProductSum` and `streamsvd.passes.factor.FactorSum`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Self

from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.data.missing import Missing
from streamsvd.data.present import ALL, Present
from streamsvd.data.source import Source
from streamsvd.errors import OptionError
from streamsvd.passes.preprocessing import Preprocessing
from streamsvd.passes.sum_tree import SumTree
from streamsvd.system import one_blas_thread


class SampleSum(ABC):
    """A context manager, which ends the threads that multiply.

    Parameters
    ----------
    n_features : int
        `n`.
    center, normalize : {None, "features", "samples"}
    n_threads : int
        That multiply.
    shift : (n,) array, optional
        What is subtracted from features that are centred or scaled; the first sample (centred and
        scaled itself, if samples are) by default.
    leaf_size : int
        Samples of a leaf: a function of `n` alone.

    Attributes
    ----------
    n_samples : int
        That were added.
    missing : Missing or None
        What was missing of them, where that is asked for, once there is a `result`.
    weights : (n,) array or None
        May be set, of batches: those of the features, which are for `result` to be given.
    weight : float or None
        What the samples weigh, see `streamsvd.passes.weighted`; None where each counts once.
    """

    missing: Missing | None = None
    weights: Array | None = None
    weight: float | None = None

    WHAT: ClassVar[str]
    """Names the threads; where the sum is a form of ``X X^T``, that form."""

    REFUSAL: ClassVar[str]
    """Why means of features cannot come before norms of samples, and what to do."""

    def __init__(
        self,
        n_features: int,
        center: str | None,
        normalize: str | None,
        n_threads: int = 1,
        shift: Array | None = None,
        *,
        leaf_size: int,
    ) -> None:
        self.check(center, normalize)
        n = n_features
        self.preprocessing = Preprocessing.unlearned(center, normalize, n)
        self._of_samples = self.preprocessing.before()
        self._of_features = "features" in (center, normalize)
        self.shift = shift
        self.n_samples = 0
        self._is_sparse: bool | None = None
        self._filled = 0  # of the batch
        self._leaf: Any = None
        self._leaf_samples, self._leaf_size = 0, leaf_size
        self._tree = SumTree()
        self._n_threads = n_threads
        self._start_threads()

    @classmethod
    def check(cls, center: str | None, normalize: str | None) -> None:
        """Refuse what cannot be done in one pass."""
        if center == "features" and normalize == "samples":
            raise OptionError(
                'center="features" with normalize="samples" needs the means before the norms, '
                + cls.REFUSAL
            )

    def options(self) -> dict[str, Any]:
        """The options that samples were added with, by name."""
        asked = self.preprocessing
        centring = {"center": asked.center, "normalize": asked.normalize}
        return {"reduction": self.WHAT, "rank": None, "missing": "error"} | centring

    @property
    def n_kept(self) -> int:
        """Features that the result will have."""
        return len(self.preprocessing.mean)

    def takes_sparse(self, source: Source) -> bool:
        """Whether the samples of a batch are added as they are stored."""
        return False

    def _start_threads(self) -> None:
        self._threads = ThreadPoolExecutor(
            self._n_threads, thread_name_prefix=f"streamsvd-{self.WHAT}"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._threads.shutdown()

    @property
    def n_counted(self) -> float:
        """Samples, each as often as it counts."""
        return self.n_samples if self.weight is None else self.weight

    def extend(
        self,
        strips: Iterable[Any],
        on_samples: Callable[[int], None] = lambda n: None,
        weights: Array | None = None,
    ) -> None:
        """Add samples that come in pieces; `on_samples` is told the number of each.

        Arrays (n, c), or CSR matrices (c, n), which may be changed. All are taken as the first is.
        `weights` are those of all samples of these pieces.
        """
        done = 0
        if weights is not None:
            self.weight = self.n_counted + float(weights.sum())
        with one_blas_thread:
            try:
                for strip in strips:
                    is_csr = sparse.issparse(strip)
                    count = strip.shape[0 if is_csr else 1]
                    own = None if weights is None else weights[done : done + count]
                    if self._is_sparse is None:
                        self._is_sparse = is_csr and self.preprocessing.center != "samples"
                    if self._is_sparse:
                        self._add_sparse(
                            strip if is_csr else sparse.csr_array(strip.T, dtype=float), own
                        )
                    else:
                        self._add(strip.toarray().T if is_csr else strip, own)
                    done, self.n_samples = done + count, self.n_samples + count
                    if weights is None and self.weight is not None:
                        self.weight += count
                    on_samples(count)
            finally:
                self._wait()

    @abstractmethod
    def _add(self, samples: Array, weights: Array | None) -> None:
        """Samples (n, c), and how often each counts."""

    @abstractmethod
    def _add_sparse(self, samples: sparse.csr_array, weights: Array | None) -> None:
        """Samples (c, n)."""

    @abstractmethod
    def _multiply(self) -> None:
        """Add the batch, as far as it is filled, to the leaf; to be done after `_wait`."""

    def _wait(self) -> None:
        """For what was begun; a leaf that is full is closed."""
        if self._leaf_samples == self._leaf_size:
            self._close_leaf()

    def _close_leaf(self) -> None:
        if self._leaf is not None:
            self._tree.add(self._leaf)
        self._leaf, self._leaf_samples = None, 0

    @abstractmethod
    def result(self, name: str = "the data", present: Present = ALL) -> Any:
        """What the sum is for; the last call to make.

        `name` is that of the samples in errors, `present` their `Source.present`.
        """

    def node(self) -> Any:
        """The sum so far."""
        if self._filled:
            with one_blas_thread:
                self._multiply()
                self._wait()
        self._close_leaf()
        return self._tree.total()
