"""The estimators behave as scikit-learn's, and fit whatever the functions read."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from streamsvd import SparseSVD, StreamingSparsePCA


@parametrize_with_checks([SparseSVD(), StreamingSparsePCA()])
def test_scikit_learns_own_checks(estimator, check) -> None:
    check(estimator)
