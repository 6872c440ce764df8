"""Passes over all samples: into the working matrix, to the Gram matrix or a factor, to measure."""

from streamsvd.passes.exact import exact_of
from streamsvd.passes.factor import data_of, factor_of
from streamsvd.passes.gram import gram_matrix
from streamsvd.passes.ingest import ingest
from streamsvd.passes.measure import Accuracy

__all__ = ["Accuracy", "data_of", "exact_of", "factor_of", "gram_matrix", "ingest"]
