"""Zarr on disk: chunks as they lie there, the working store, what is written."""
