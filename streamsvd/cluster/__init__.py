"""The same work on a Dask cluster. The only distributed."""
