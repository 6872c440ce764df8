"""From an ``.h5ad`` file to a UMAP in Scanpy, with sparse gene programmes in the place of PCA.

    python examples/cells_to_umap.py

Needs Scanpy (``pip install scanpy h5py``). Writes ``cells.h5ad``: 1000 cells of five types by 600
genes, counts as droplets give them, logged, with Scanpy's mark of the highly variable genes. The
file is read in strips of cells, and only the marked genes take part, as with ``mask_var`` in
``scanpy.pp.pca``, which is run beside it. Prints how many genes each uses and how well neighbours
agree with the types, and draws the UMAP to ``cells_to_umap.png``.
"""

import warnings

import anndata  # type: ignore[import-untyped]
import numpy as np
import scanpy  # type: ignore[import-untyped]
from scipy import sparse
from threadpoolctl import threadpool_limits

import streamsvd

N_CELLS, N_GENES, TYPES = 1000, 600, ("T", "B", "NK", "monocyte", "platelet")
rng = np.random.default_rng(0)
warnings.simplefilter("ignore")  # Scanpy and AnnData have theirs

# -------------------------------------------------------------------------- write the file

kind = rng.integers(len(TYPES), size=N_CELLS)
rates = np.tile(rng.gamma(0.3, 1.0, N_GENES), (len(TYPES), 1))
markers = rng.permutation(N_GENES)[: 20 * len(TYPES)].reshape(len(TYPES), 20)
for rate, genes in zip(rates, markers, strict=True):
    rate[genes] += rng.gamma(2.0, 0.5, len(genes))
depth = rng.lognormal(0.0, 0.3, N_CELLS)
counts = rng.poisson(rates[kind] * depth[:, None]).astype(np.float32)
cells = anndata.AnnData(sparse.csr_matrix(counts))
cells.obs_names = [f"cell{k}" for k in range(N_CELLS)]
cells.var_names = [f"gene{k}" for k in range(N_GENES)]
cells.obs["type"] = [TYPES[k] for k in kind]
scanpy.pp.normalize_total(cells, target_sum=1e4)
scanpy.pp.log1p(cells)
scanpy.pp.highly_variable_genes(cells, n_top_genes=200)
cells.write_h5ad("cells.h5ad")

# --------------------------------------------------------------------------------- use it

result = streamsvd.sparse_pca("cells.h5ad", 10, feature_mask="highly_variable", max_fill=0.1)
print(result, "\n")
result.to_anndata(cells, key="sparse_pca")  # X_sparse_pca in obsm, loadings in varm
scanpy.pp.pca(cells, n_comps=10, mask_var="highly_variable")


def agreement(key: str) -> float:
    """How many of the ten neighbours of a cell are of its type."""
    scanpy.pp.neighbors(cells, n_neighbors=11, use_rep=key, key_added=key)
    near = cells.obsp[f"{key}_connectivities"].tocoo()
    return float((kind[near.row] == kind[near.col]).mean())


for key, loadings in (("X_sparse_pca", "sparse_pca"), ("X_pca", "PCs")):
    used = np.count_nonzero(np.asarray(abs(cells.varm[loadings]).sum(axis=1)))
    print(f"{key}: {used} genes, {agreement(key):.1%} of neighbours are of the same type")
for k, row in enumerate(result.components[: len(TYPES) - 1].toarray()):
    names = cells.var_names[np.argsort(-np.abs(row))[:4]]
    print(f"component {k}: {', '.join(names)}, ...")

with threadpool_limits(1):
    scanpy.tl.umap(cells, neighbors_key="X_sparse_pca", random_state=0)
scanpy.pl.umap(cells, color="type", show=False).figure.savefig(
    "cells_to_umap.png", bbox_inches="tight"
)
print("saved cells_to_umap.png")
