"""GPU, cluster and host descriptions, and what work costs on them.

Lives here: `descriptions` (GPUs and clusters from TOML), `host` (the modelled host), `signature` (what a GPU is asked
to do), `models` (analytic times), `measured` (measured times), `cost` (which of both answers), `kernel_names`, `tools`
(comparison with real traces), `titles` (signatures as people name them), `activity` (as traces show them), and the
shipped files in `gpus/`, `clusters/`, `hosts/` and `prices/`.
Comes in: names or paths of descriptions; signatures as the hook writes them.
Goes out: `Gpu`, `Cluster`, `HostModel`, `Cost`, titles.
May import: nothing of ours outside this folder. Others import this module alone, not what is below it.
"""

from profiles.activity import COPY, FILL, KERNEL, Activity, activity
from profiles.cost import Cost, CostModel, Source, TimesOn
from profiles.descriptions.catalog import base_of, cluster_names, gpu_names, host_names, path_of, price_names
from profiles.descriptions.cluster import DEFAULT as DEFAULT_CLUSTER
from profiles.descriptions.cluster import Cluster, EmulatedMachine, load_cluster, load_machine, load_network
from profiles.descriptions.gpu import Gpu, load_gpu
from profiles.descriptions.prices import LISTED, Price, load_prices
from profiles.descriptions.slowest import largest_of
from profiles.errors import ProfileError, UnknownProfile
from profiles.host import (
    CALL_KINDS,
    FINE_KINDS,
    WORK_KINDS,
    HostModel,
    Spread,
    device_file_value,
    host_toml,
    load_host,
)
from profiles.host_fit import AGAIN, Fit, fit, scale
from profiles.timings.from_trace import times_of
from profiles.timings.shipped import same_times, shipped_times
from profiles.timings.table import Measured, Origin, Table, load_table, merged, save_table
from profiles.titles import title

__all__ = [
    "AGAIN",
    "CALL_KINDS",
    "COPY",
    "DEFAULT_CLUSTER",
    "FILL",
    "FINE_KINDS",
    "KERNEL",
    "LISTED",
    "WORK_KINDS",
    "Activity",
    "Cluster",
    "Cost",
    "CostModel",
    "EmulatedMachine",
    "Fit",
    "Gpu",
    "HostModel",
    "Measured",
    "Origin",
    "Price",
    "ProfileError",
    "Source",
    "Spread",
    "Table",
    "TimesOn",
    "UnknownProfile",
    "activity",
    "base_of",
    "cluster_names",
    "device_file_value",
    "fit",
    "gpu_names",
    "host_names",
    "host_toml",
    "largest_of",
    "load_cluster",
    "load_gpu",
    "load_host",
    "load_machine",
    "load_network",
    "load_prices",
    "load_table",
    "merged",
    "path_of",
    "price_names",
    "same_times",
    "save_table",
    "scale",
    "shipped_times",
    "times_of",
    "title",
]
