"""Passes over all samples: into the working matrix, to the Gram matrix, to measure."""
