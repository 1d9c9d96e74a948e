"""One run as its options describe it: the result of ``resolve``."""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emu.contract.folding import Folding
from emu.contract.policies.loading_policy import LoadingPolicy
from emu.contract.policies.routing_policy import RoutingPolicy
from emu.contract.policies.shape_policy import ShapePolicy
from emu.contract.stated_values import StatedValue
from phantora_async.budget import Limits
from phantora_async.faults import Fault
from phantora_async.kernel_times import KernelTimes
from phantora_async.options import RunOptions
from phantora_async.run_dir import RunDir
from phantora_async.trace_request import TraceRequest
from profiles import Cluster, Gpu, HostModel

if TYPE_CHECKING:
    from netsim import NcclSettings

DATA_LIMIT_NBYTES = 1 << 20
"""Data of copies, collectives and control tensors that are larger is neither moved nor computed."""
FLOAT_LIMIT_COUNT = 4096
"""Floating-point control tensors and collectives (per rank) of more elements are not computed either."""
MONITOR_INTERVAL = ("--monitor-interval", "--monitor_interval")
MONITOR_INTERVAL_S = 0.1
"""torchrun's default."""


@dataclass(frozen=True, slots=True)
class Ray:
    """A cluster whose actors are the machines."""

    cluster: str
    """``ray://HOST:PORT``; "": the one that this machine is a part of."""
    environment: dict[str, Any]
    """Ray's runtime environment of the actors."""


@dataclass(frozen=True, slots=True)
class Listen:
    """Servers run on machines that join."""

    host: str
    port: int
    token: str
    token_file: Path | None
    """Where others find the token; None: in the environment."""
    machines: int | None
    """None: as many as there is room for."""
    ray: Ray | None
    """Actors of a cluster join."""


@dataclass(frozen=True, slots=True)
class Ui:
    """Where the live page is served."""

    listening: socket.socket
    token: str


@dataclass(frozen=True, slots=True)
class Config:
    """One run. Paths are absolute, defaults are filled in."""

    options: RunOptions
    """What the user asked for."""
    script: str
    """A path, or a module's name if ``module``."""
    module: bool
    arguments: tuple[str, ...]
    launcher: bool
    """``script`` and ``arguments`` are a command that starts the ranks of a server."""
    servers: tuple[int, ...]
    """GPUs in use on each server."""
    gpu: Gpu
    cluster: Cluster
    host: HostModel
    host_mode: str
    loading: LoadingPolicy
    """Does loading data take virtual time?"""
    faults: tuple[Fault, ...]
    """What goes wrong on the machine."""
    steps: int
    all_steps: int
    """With those that are played from the record of the others; 0: none are."""
    """The run ends when ranks have done so many; 0: when the script does."""
    until_ns: int
    """The run ends at this instant of virtual time; 0: when the script does."""
    kernel_times: tuple[KernelTimes, ...]
    """Measured ones; the first that knows a kernel is asked."""
    assumed_links: str
    """What joins the GPUs, if the user did not say it of this GPU; else empty."""
    measure: bool
    """Measure what they lack on this machine's GPU."""
    nccl: NcclSettings
    """From NCCL's environment variables."""
    remarks: tuple[str, ...]
    """What the user should know before the run starts."""
    clock: str
    speculation: str
    share_weights: bool
    isolation: str
    routing: RoutingPolicy
    data_shapes: ShapePolicy
    values: tuple[StatedValue, ...]
    """What the script reads at lines where the values are not computed."""
    network: str
    writable: tuple[str, ...]
    """Real paths that `--write` names."""
    python: Path
    preload: tuple[str, ...]
    auto_preload: bool
    compile_cache: Path | None
    """Where ranks keep what they compile; None: in a folder that ends with the run."""
    claimed: RunDir
    report: Path
    shown_ranks: frozenset[int]
    """Ranks whose output is shown on the terminal."""
    progress: bool
    stall_timeout_s: float | None
    """0: never."""
    listen: Listen | None
    """None: all servers are on this machine."""
    loop_turns: int
    """Of a loop that waits for a value that nobody computed; 0: any number."""
    trace: TraceRequest | None = None
    ui: Ui | None = None
    """None: no live page."""
    reasons: bool = False
    """The report tells why a step takes as long as it does."""
    record: Path | None = None
    """Folder of the run's recording."""
    budget: Limits = field(default_factory=lambda: Limits({}))
    """What the report is held against."""
    folding: Folding | None = None
    """Which ranks have processes; None: all."""
    share_timelines: bool = False
    """Ranks of a folded run to which the same happens are simulated once."""
    each_if_they_differ: bool = False
    """The run is done again with each of them simulated, if not quite the same happens to them."""

    @property
    def processes(self) -> int:
        """How many ranks have one."""
        return sum(self.servers) if self.folding is None else len(self.folding.live)

    @property
    def witnessed(self) -> bool:
        """Is what segments consist of compared between ranks?"""
        return self.folding is not None and bool(self.folding.apart - {0})

    @property
    def run_dir(self) -> Path:
        return self.claimed.path

    def log(self, rank: int) -> Path:
        return self.run_dir / f"rank{rank}.log"

    @property
    def restart_delay_ns(self) -> int:
        """How long a launcher takes to start ranks again after one has failed: torchrun's agent looks at its ranks
        once in every monitor interval. What else takes time on a cluster (ending the other ranks, starting Python)
        takes no virtual time, as at the run's start.
        """
        words = [part for word in self.arguments for part in word.split("=", 1)]
        given = [value for name, value in pairwise(words) if name in MONITOR_INTERVAL]
        for text in (*given, os.environ.get("PET_MONITOR_INTERVAL", "")):
            with contextlib.suppress(ValueError):
                return round(float(text) * 1e9)
        return round(MONITOR_INTERVAL_S * 1e9)

    def device_file_lines(self) -> list[str]:
        """The hook's device file: the GPU, the host model and this run's limits."""
        return [
            *self.gpu.device_file_lines(),
            f"device_count={max(self.servers)}",
            f"multicast={int(self.cluster.multicast)}",
            f"data_limit_nbytes={DATA_LIMIT_NBYTES}",
            f"float_limit_count={FLOAT_LIMIT_COUNT}",
            f"host_mode={self.host_mode}",
            *(self.trace.device_file_lines() if self.trace else ()),
            f"segment_contents={int(self.reasons or self.witnessed)}",
            f"history={int(self.record is not None)}",
            *self.host.device_file_lines(),
        ]
