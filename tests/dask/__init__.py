"""Clusters of Dask, on this host."""
