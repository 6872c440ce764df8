"""Sparse PCA of sparse counts beside scikit-learn's PCA, and of a million features in a store.

    python examples/benchmarks/scale.py [counts] [planted] [words] [--folder FOLDER]

``counts``: log counts of 20,000 cells by 3,000 genes as a CSR matrix, programmes of genes planted,
each weaker than the one before, down into the noise as in real data;
seconds of `sparse_pca` over those of ``PCA(svd_solver="arpack")`` in the same run. ``planted``: a
Zarr store of 400 samples by 1,000,000 features (1.6 GB in FOLDER), ten blocks of 500 features that
move together, in noise; how many of the planted features are found, seconds, and the most memory
that the process had. ``words``: 300,000 documents by 100,000 words of which 0.1 % are there, as a
CSR matrix and as an AnnData in a Zarr store.
"""

import argparse
import resource
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import zarr
from scipy import sparse
from sklearn.decomposition import PCA

from streamsvd import sparse_pca

CELLS, GENES, PROGRAMMES = 20_000, 3_000, 15
DOCUMENTS, WORDS = 300_000, 100_000
FEATURES, SAMPLES, BLOCKS, SIZE = 1_000_000, 400, 10, 500


def counts() -> None:
    """Single-cell counts, sparse all the way."""
    rng = np.random.default_rng(0)
    base = rng.gamma(0.3, 0.4, GENES)
    genes = rng.permutation(GENES)[: PROGRAMMES * 40].reshape(PROGRAMMES, 40)
    parts = []
    for _ in range(CELLS // 1000):
        rates = np.tile(base, (1000, 1))
        for number, programme in enumerate(genes):
            on = rng.gamma(2.0, 0.5, (1000, 1)) * (rng.random((1000, 1)) < 0.1)
            rates[:, programme] += on / (1 + number)
        parts.append(sparse.csr_array(np.log1p(rng.poisson(rates)).astype(np.float32)))
    x = sparse.csr_array(sparse.vstack(parts))
    print(f"counts: {CELLS} x {GENES}, {x.nnz / CELLS / GENES:.1%} stored, p = {PROGRAMMES}, 5 %")
    sparse_pca(x[:500], 3, sample_axis=0, progress=False)  # compiles
    seconds = {}
    for repeat in range(3):
        began = time.perf_counter()
        result = sparse_pca(x, PROGRAMMES, max_fill=0.05, sample_axis=0, progress=False)
        seconds["sparse_pca"] = time.perf_counter() - began
        began = time.perf_counter()
        pca = PCA(PROGRAMMES, svd_solver="arpack", random_state=0).fit(x)
        seconds["PCA"] = time.perf_counter() - began
        share = result.explained_variance.sum() / pca.explained_variance_.sum()
        print(
            f"run {repeat}: sparse_pca {seconds['sparse_pca']:.2f} s, PCA {seconds['PCA']:.2f} s, "
            f"ratio {seconds['sparse_pca'] / seconds['PCA']:.2f}; {share:.1%} of PCA's variance "
            f"({result.settings['reduction']})",
            flush=True,
        )


def write_planted(store: Path) -> None:
    """A million features, samples as rows."""
    rng = np.random.default_rng(0)
    array = zarr.create_array(store, shape=(SAMPLES, FEATURES), chunks=(10, 200_000), dtype="f4")
    places = rng.permutation(FEATURES)[: BLOCKS * SIZE].reshape(BLOCKS, SIZE)
    array.attrs["places"] = places.ravel().tolist()
    factors = rng.standard_normal((SAMPLES, BLOCKS)).astype(np.float32)
    for start in range(0, SAMPLES, 50):
        strip = rng.standard_normal((50, FEATURES), dtype=np.float32)
        for block, features in enumerate(places):
            strip[:, features] += (2.0 - 0.1 * block) * factors[
                start : start + 50, block : block + 1
            ]
        array[start : start + 50] = strip


def planted(folder: Path) -> None:
    """Find what was planted; the store is written by another process, for its memory."""
    store = folder / "planted.zarr"
    writer = get_context("spawn").Process(target=write_planted, args=(store,))
    writer.start()
    writer.join()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    began = time.perf_counter()
    result = sparse_pca(
        store,
        BLOCKS,
        max_nonzeros=BLOCKS * SIZE,
        sample_axis=0,
        memory_limit="3GiB",
        progress=False,
    )
    seconds = time.perf_counter() - began
    places = np.array(zarr.open_array(store, mode="r").attrs["places"])
    found = np.isin(result.components.indices, places).sum()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"planted: {found} of {BLOCKS * SIZE} features found among {result.n_nonzeros} nonzeros, "
        f"{seconds:.0f} s, at most {most:.2f} GiB, {before:.2f} of them before the fit "
        f"({result.settings['reduction']})"
    )


def words(folder: Path) -> None:
    """Sparse in memory and in a store; words of a topic come together."""
    rng = np.random.default_rng(0)
    parts, per_part, each = [], 10_000, 85
    topics = rng.permutation(WORDS)[: 15 * 100].reshape(15, 100)
    for _ in range(DOCUMENTS // per_part):
        any_words = rng.integers(0, WORDS, (per_part, each))
        topic = topics[rng.integers(0, 15, per_part)]
        of_topic = np.take_along_axis(topic, rng.integers(0, 100, (per_part, 15)), axis=1)
        indices = np.concatenate([any_words, of_topic], axis=1).ravel()
        start = np.arange(0, indices.size + 1, each + 15)
        part = sparse.csr_array((np.ones(indices.size, "f4"), indices, start), (per_part, WORDS))
        part.sum_duplicates()
        parts.append(part)
    x = sparse.csr_array(sparse.vstack(parts))
    store = folder / "words.zarr"
    group = zarr.open_group(store, mode="w")
    group.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    matrix = group.create_group("X")
    kind = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0"}
    matrix.attrs.update(kind | {"shape": list(x.shape)})
    for name in ("data", "indices", "indptr"):
        matrix.create_array(name, data=getattr(x, name), chunks=(1_000_000,))
    for name, data in {"CSR in memory": x, "AnnData in Zarr": store}.items():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        began = time.perf_counter()
        result = sparse_pca(data, 15, max_nonzeros=1500, sample_axis=0, progress=False)
        seconds = time.perf_counter() - began
        found = np.isin(result.components.indices, topics).sum()
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(
            f"words, {name}: {found} of {topics.size} words found among {result.n_nonzeros}, "
            f"{seconds:.0f} s, at most {most:.2f} GiB, {before:.2f} of them before the fit "
            f"({result.settings['reduction']})",
            flush=True,
        )


def main() -> None:
    """Run what is asked for, or all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("parts", nargs="*", default=["counts", "planted", "words"])
    parser.add_argument("--folder", type=Path, help="of the store; a temporary one by default")
    options = parser.parse_args()
    if "counts" in options.parts:
        counts()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        if "planted" in options.parts:
            planted(Path(folder))
        if "words" in options.parts:
            words(Path(folder))


if __name__ == "__main__":
    main()
