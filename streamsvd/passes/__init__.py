"""Passes over all samples: into the working matrix, to the Gram matrix, to measure."""

from streamsvd.passes.gram import gram_matrix
from streamsvd.passes.ingest import ingest
from streamsvd.passes.measure import Accuracy

__all__ = ["Accuracy", "gram_matrix", "ingest"]
