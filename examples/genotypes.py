"""Population structure from genotypes in which calls are missing, and the few SNPs that show it.

    python examples/genotypes.py

Writes ``genotypes.zarr``: 2000 SNPs of 600 individuals as int8 (0, 1 or 2 copies, -1 not called,
2 % of all), of three populations that drifted apart (Balding and Nichols), samples as columns. A
missing call stands for the mean of its SNP, and the numbers stay int8 on disk. Prints how well the
scores tell the populations apart, beside those of all 2000 SNPs by PCA of data filled by hand, and
draws them to ``genotypes.png`` (with the extra ``plot``).
"""

import numpy as np
import zarr

import streamsvd

N_SNPS, POPULATIONS, EACH, FST = 2000, ("north", "coast", "island"), 200, 0.05
N = EACH * len(POPULATIONS)
rng = np.random.default_rng(0)
population = np.repeat(np.arange(len(POPULATIONS)), EACH)

# ------------------------------------------------------------------------- write the store

ancestral = rng.uniform(0.05, 0.95, N_SNPS)
spread = (1 - FST) / FST
drifted = rng.beta(ancestral * spread, (1 - ancestral) * spread, (len(POPULATIONS), N_SNPS))
store = zarr.create_array(
    "genotypes.zarr", shape=(N_SNPS, N), chunks=(N_SNPS, 100), dtype="int8", overwrite=True
)
for first in range(0, N, 100):  # some individuals at a time, as they are sequenced
    frequency = drifted[population[first : first + 100]].T
    calls = rng.binomial(2, frequency).astype(np.int8)
    calls[rng.random(calls.shape) < 0.02] = -1
    store[:, first : first + 100] = calls

# --------------------------------------------------------------------------------- use it

result = streamsvd.sparse_pca(
    "genotypes.zarr", 2, max_nonzeros=200, missing="mean", missing_value=-1, sample_axis=1
)
print(result, "\n")
scores = result.transform("genotypes.zarr")  # missing calls are filled by the means of the fit


def told_apart(points: np.ndarray) -> float:
    """Share of individuals that are nearest to the centre of their own population."""
    centres = [points[:, population == k].mean(axis=1) for k in range(len(POPULATIONS))]
    distances = [((points - centre[:, None]) ** 2).sum(axis=0) for centre in centres]
    return float((np.argmin(distances, axis=0) == population).mean())


# what it stands for: the same data in memory, filled by hand, and PCA with every SNP
genotypes = np.asarray(store[...], dtype=float)
genotypes[genotypes == -1] = np.nan
mean = np.nanmean(genotypes, axis=1, keepdims=True)
filled = np.where(np.isnan(genotypes), 0.0, genotypes - mean)
dense = np.linalg.svd(filled, full_matrices=False)[0][:, :2]
used = len(np.unique(result.components.indices))
missing = np.isnan(genotypes).mean()
print(f"missing calls: {result.n_missing}, {missing:.1%} of all")
same = np.allclose(scores, result.components @ filled)
print(f"scores equal those of data filled by hand: {same}")
print(f"told apart by {used} SNPs: {told_apart(scores):.1%} of individuals")
print(f"told apart by PCA with all {N_SNPS}: {told_apart(dense.T @ filled):.1%}")
by_drift = np.argsort(-np.ptp(drifted, axis=0))[:used]
common = len(np.intersect1d(by_drift, result.components.indices))
print(f"of these SNPs {common} are among the {used} that drifted most")

try:
    labels = [POPULATIONS[k] for k in population]
    result.plot(kind="scores", X="genotypes.zarr", labels=labels).savefig("genotypes.png")
    print("saved genotypes.png")
except streamsvd.OptionError as error:  # matplotlib is not installed
    print(error)
