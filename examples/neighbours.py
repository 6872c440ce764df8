"""Nearest neighbours on sparse scores, in a scikit-learn pipeline; the fill by grid search.

    python examples/neighbours.py

Classifies scikit-learn's digits by their five nearest neighbours among the scores of 16
components. Prints the accuracy in cross-validation for each fill, and on samples held out beside
those of PCA and of all pixels.
"""

from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from streamsvd import StreamingSparsePCA

X, y = load_digits(return_X_y=True)
train, test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=0, stratify=y)

sparse = make_pipeline(StreamingSparsePCA(16), KNeighborsClassifier(5))
search = GridSearchCV(sparse, {"streamingsparsepca__max_fill": [0.03, 0.06, 0.12]}, cv=3)
search.fit(train, y_train)
for options, score in zip(
    search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True
):
    print(f"fill {options['streamingsparsepca__max_fill']:4.0%}: {score:.1%} in cross-validation")

best = search.best_estimator_[0]
dense = make_pipeline(PCA(16), KNeighborsClassifier(5)).fit(train, y_train)
pixels = KNeighborsClassifier(5).fit(train, y_train)
print(f"\nchosen: {best}")
print(f"{len(y_test)} samples held out:")
print(f"  {search.score(test, y_test):.1%} with {best.result_.n_nonzeros} loadings")
print(f"  {dense.score(test, y_test):.1%} with PCA's {dense[0].components_.size}")
print(f"  {pixels.score(test, y_test):.1%} with all {X.shape[1]} pixels")
