"""Topics in texts: sparse components of word counts, each a handful of words that go together.

    python examples/topics.py

The texts come with Python: the docstrings of some 1800 functions of NumPy and SciPy. Their words,
weighted by scikit-learn's `TfidfVectorizer`, are a sparse matrix of texts by words, which stays
sparse while it is read. Prints the words of each component and the functions that score highest on
it, and draws the words to ``topics.png`` (with the extra ``plot``).
"""

import inspect
import re
import warnings
from importlib import import_module

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

import streamsvd

MODULES = (
    "numpy", "numpy.fft", "numpy.linalg", "numpy.ma", "numpy.polynomial.chebyshev", "numpy.random",
    "scipy.cluster.hierarchy", "scipy.fft", "scipy.integrate", "scipy.interpolate", "scipy.io",
    "scipy.linalg", "scipy.ndimage", "scipy.optimize", "scipy.signal", "scipy.signal.windows",
    "scipy.sparse", "scipy.sparse.csgraph", "scipy.sparse.linalg", "scipy.spatial.distance",
    "scipy.special", "scipy.stats",
)  # fmt: skip

# ------------------------------------------------------------------------------ the texts

texts: dict[str, str] = {}
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what is deprecated
    for module in map(import_module, MODULES):
        for name, one in inspect.getmembers(module, callable):
            about = re.split(r"\n(Notes|References|See Also)\n---", inspect.getdoc(one) or "")[0]
            if not name.startswith("_") and len(about) > 400 and about not in texts.values():
                texts[f"{module.__name__}.{name}"] = about
words = TfidfVectorizer(
    stop_words="english", token_pattern=r"[a-z]{3,}", min_df=15, max_df=0.3, sublinear_tf=True
)
X = words.fit_transform(texts.values())  # scipy.sparse, texts x words
print(f"{X.shape[0]} texts x {X.shape[1]} words, {X.nnz / np.prod(X.shape):.1%} not zero")

# --------------------------------------------------------------------------------- use it

result = streamsvd.sparse_pca(X, 8, max_nonzeros=120, sample_axis=0)
print(result, "\n")
vocabulary, titles = words.get_feature_names_out(), np.array(list(texts))
scores = result.transform(X)
for k, loadings in enumerate(result.components.toarray()):
    top = np.argsort(-np.abs(loadings))[: min(9, np.count_nonzero(loadings))]
    best = np.argsort(-scores[:, k])[:3]
    print(f"component {k}: {', '.join(vocabulary[top])}")
    print(f"    {', '.join(titles[best])}")

try:
    result.plot("loadings", feature_names=vocabulary).savefig("topics.png")
    print("saved topics.png")
except streamsvd.OptionError as error:  # matplotlib is not installed
    print(error)
