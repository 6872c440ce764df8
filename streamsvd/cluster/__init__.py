"""The same work on a Dask cluster. The only distributed, which is imported when it is used."""

from streamsvd.cluster.engine import ClusterColumns
from streamsvd.cluster.waiting import check_client, client_of

__all__ = ["ClusterColumns", "check_client", "client_of"]
