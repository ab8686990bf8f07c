"""dmlvk on a Dask cluster: a device for each worker, and maps over batches. Extra: `dask`.

The cluster is a plain one: `LocalCluster`, ssh, Kubernetes, Slurm, or `dask scheduler` and `dask worker` by hand.
"""

try:
    import distributed as _distributed  # noqa: F401
except ModuleNotFoundError as error:
    if error.name not in ("dask", "distributed"):  # Dask is there, and lacks a library of its own
        raise
    raise ImportError(
        "dmlvk.dask needs Dask, which is not installed: pip install 'dmlvk[dask]'", name=error.name
    ) from None

from dmlvk.dask.cluster import ClusterWorker, connect, prepare
from dmlvk.dask.errors import BatchError, ClusterError, ClusterWarning, DifferenceError
from dmlvk.dask.holding import device
from dmlvk.dask.mapping import map

__all__ = [
    "BatchError",
    "ClusterError",
    "ClusterWarning",
    "ClusterWorker",
    "DifferenceError",
    "connect",
    "device",
    "map",
    "prepare",
]
