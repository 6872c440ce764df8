"""Handwritten digits as sparse parts: each component is a few pen strokes, not a whole ghost image.

    python examples/digits_parts.py

Reads scikit-learn's digits (1797 images of 8 x 8 pixels, no download), fits PCA and sparse
components, prints what each explains and how many pixels it uses, and draws the parts to
``digits_parts.png`` (with the extra ``plot``).
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

import streamsvd

X = load_digits().data  # samples x features
p = 16

parts = streamsvd.sparse_pca(X, p, max_fill=0.15, sample_axis=0)
pca = PCA(p).fit(X)

print(parts)
print()
sparse, dense = parts.explained_variance_ratio.sum(), pca.explained_variance_ratio_.sum()
print(f"pixels in use, of {p * X.shape[1]}: {parts.n_nonzeros}, PCA {np.sum(pca.components_ != 0)}")
print(f"variance explained: {sparse:.1%}, PCA {dense:.1%}; that is {sparse / dense:.1%} of it")
off = parts.components @ parts.components.T - np.eye(p)
print(f"largest deviation from orthonormality: {np.abs(off).max():.0e}")

try:
    parts.plot(image_shape=(8, 8)).savefig("digits_parts.png")
    print("saved digits_parts.png")
except streamsvd.OptionError as error:  # matplotlib is not installed
    print(error)
