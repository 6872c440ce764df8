"""Gene programmes from single-cell counts in an AnnData store, without making it dense.

    python examples/single_cell.py

Writes ``cells.zarr`` the way AnnData lays it out (``X`` as CSR, names of cells and genes), a batch
of cells at a time, with four programmes of 15 genes planted in 500; finds them as sparse
components of ``X``, read in strips; prints the genes of each component and how many were planted
together, and draws the loadings to ``single_cell.png`` (with the extra ``plot``).

A store of your own (``adata.write_zarr``) is read the same way; ``result.to_anndata(adata)`` puts
scores and loadings where Scanpy looks for them.
"""

import numpy as np
import zarr
from scipy import sparse

import streamsvd

N_CELLS, N_GENES, N_PROGRAMMES, SIZE, BATCH = 6000, 500, 4, 15, 1000
rng = np.random.default_rng(0)
planted = rng.permutation(N_GENES)[: N_PROGRAMMES * SIZE].reshape(N_PROGRAMMES, SIZE)
base = rng.gamma(0.3, 1.0, N_GENES)


def batch_of_cells() -> sparse.csr_array:
    """Counts of `BATCH` cells, each programme on in some of them; scaled and logged as usual."""
    rates = np.tile(base, (BATCH, 1))
    for genes in planted:
        rates[:, genes] += 4 * rng.gamma(2.0, 1.0, (BATCH, 1)) * (rng.random((BATCH, 1)) < 0.3)
    counts = rng.poisson(rates)
    depth = np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return sparse.csr_array(np.log1p(1e3 * counts / depth).astype(np.float32))


# ------------------------------------------------------------------------- write the store

group = zarr.create_group("cells.zarr", overwrite=True)
group.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
for dim, names in (
    ("obs", [f"cell{k}" for k in range(N_CELLS)]),
    ("var", [f"gene{k}" for k in range(N_GENES)]),
):
    table = group.create_group(dim)
    about = {"encoding-type": "dataframe", "encoding-version": "0.2.0"}
    table.attrs.update(about | {"_index": "_index", "column-order": []})
    index = table.create_array("_index", data=np.array(names, dtype=np.dtypes.StringDType()))
    index.attrs.update({"encoding-type": "string-array", "encoding-version": "0.2.0"})
X = group.create_group("X")
X.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0"})
X.attrs["shape"] = [N_CELLS, N_GENES]
data = X.create_array("data", shape=(0,), chunks=(2**16,), dtype="float32")
indices = X.create_array("indices", shape=(0,), chunks=(2**16,), dtype="int32")
lengths = []
for _ in range(0, N_CELLS, BATCH):
    cells = batch_of_cells()
    data.append(cells.data)
    indices.append(cells.indices.astype(np.int32))
    lengths.append(np.diff(cells.indptr))
indptr = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
X.create_array("indptr", data=indptr.astype(np.int64))
print(
    f"cells.zarr: {N_CELLS} cells x {N_GENES} genes, {indptr[-1] / N_CELLS / N_GENES:.0%} nonzero"
)

# --------------------------------------------------------------------------------- use it

result = streamsvd.sparse_pca("cells.zarr", N_PROGRAMMES, max_nonzeros=planted.size)
print(result, "\n")
labels = result.feature_names
assert labels is not None
for k, loadings in enumerate(result.components.toarray()):
    genes = np.argsort(-np.abs(loadings))[: np.count_nonzero(loadings)]
    together = max(len(np.intersect1d(genes, programme)) for programme in planted)
    print(f"component {k}: {', '.join(labels[genes[:6]])}, ...")
    print(f"    {together} of its {len(genes)} genes were planted together")

try:
    result.plot().savefig("single_cell.png")
    print("saved single_cell.png")
except streamsvd.OptionError as error:  # matplotlib is not installed
    print(error)
