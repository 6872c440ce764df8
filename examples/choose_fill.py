"""How sparse? One fit gives the whole path, from which the fill is chosen afterwards.

    python examples/choose_fill.py

The greedy fit starts with one feature for each component and adds the rotation that explains most
for the nonzeros it costs; every step of it is a solution (`SVDResult.at`). Prints fill against
variance on scikit-learn's digits, takes the sparsest step that explains 80 % of what PCA does,
refines it with no more nonzeros, and draws the path to ``choose_fill.png`` (with the extra
``plot``).

How much sparsity costs is one question; how much of it new samples bear out is another.
`sparse_pca_cv` asks that: fills scored on images left out, from one more read, and how often each
loading is chosen again. See also ``examples/benchmarks/cross_validation.py``.
"""

from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

import streamsvd

X = load_digits().data  # samples x features
p = 10
fit = streamsvd.sparse_pca(X, p, max_fill=0.5, sample_axis=0, refine=False)
best = PCA(p).fit(X).explained_variance_ratio_.sum()

print(f"{len(fit.log)} transforms; PCA with {p} components explains {best:.1%}\n")
print("  fill  nonzeros  explained  of PCA's  refined")
for fill in (0.02, 0.05, 0.1, 0.2, 0.3):
    step = fit.at(fill=fill)
    share, refined = (r.explained_variance_ratio.sum() for r in (step, step.refine()))
    print(
        f"{fill:6.0%} {step.n_nonzeros:9d} {share:10.1%} {share / best:9.1%} {refined / best:8.1%}"
    )

chosen = fit.at(explained_variance=0.8 * best)
result = chosen.refine()
print(f"\nthe first step with 80 % of PCA's variance has {chosen.fill:.1%} nonzeros; refined:\n")
print(result)

cv = streamsvd.sparse_pca_cv(X, [5, 10], max_fill=[0.05, 0.1], folds=3, sample_axis=0)
print(f"\n{cv}\n")
stability = cv.result.mean_stability
assert stability is not None  # it is measured there
print(f"loadings chosen again: {stability.min():.0%} to {stability.max():.0%} of a component")

try:
    result.plot("variance").savefig("choose_fill.png")
    print("saved choose_fill.png")
except streamsvd.OptionError as error:  # matplotlib is not installed
    print(error)
