"""What is emulated, and where its files are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from phantora_async.virtual_time import ON_DEMAND
from profiles import Cluster, Gpu, HostModel


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Resolved and checked by the command line."""

    socket: Path
    """Where ranks connect; short, as Unix sockets' paths must be."""
    cost_table: Path
    run_dir: Path
    """Has the logs, rank<N>.log; messages name them."""
    servers: tuple[int, ...]
    """GPUs in use on each server; ranks are numbered through."""
    gpu: Gpu
    cluster: Cluster
    host: HostModel
    host_mode: str
    clock: str = "exact"
    speculation: str = ON_DEMAND
    progress: bool = False
    """Somebody looks at the status line."""
    stall_timeout_s: float = 0.0
    """Real time for which ranks may wait for one that says nothing; 0: for ever."""

    @property
    def world_size(self) -> int:
        return sum(self.servers)

    @property
    def server_of(self) -> list[int]:
        return [server for server, gpus in enumerate(self.servers) for _ in range(gpus)]
