"""GPU, cluster and host descriptions, and what work costs on them. Imports no other room."""

from profiles.catalog import cluster_names, gpu_names, host_names, path_of
from profiles.cluster import Cluster, load_cluster
from profiles.cost import Cost, CostModel, Source
from profiles.errors import ProfileError, UnknownProfile
from profiles.gpu import Gpu, load_gpu
from profiles.host import CALL_KINDS, HostModel, load_host
from profiles.tables import Table, load_table

__all__ = [
    "CALL_KINDS",
    "Cluster",
    "Cost",
    "CostModel",
    "Gpu",
    "HostModel",
    "ProfileError",
    "Source",
    "Table",
    "UnknownProfile",
    "cluster_names",
    "gpu_names",
    "host_names",
    "load_cluster",
    "load_gpu",
    "load_host",
    "load_table",
    "path_of",
]
