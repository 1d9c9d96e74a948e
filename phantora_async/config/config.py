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
"""Larger data of copies, collectives and control tensors is neither moved nor computed."""
FLOAT_LIMIT_COUNT = 4096
"""Floating-point control tensors and collectives (per rank) of more elements are not computed either."""
MONITOR_INTERVAL = ("--monitor-interval", "--monitor_interval")
MONITOR_INTERVAL_S = 0.1
"""The default of torchrun."""


@dataclass(frozen=True, slots=True)
class Ray:
    """A Ray cluster whose actors are the machines of the run."""

    cluster: str
    """``ray://HOST:PORT``; "" for the cluster that this machine belongs to."""
    environment: dict[str, Any]
    """Ray's runtime environment for the actors."""


@dataclass(frozen=True, slots=True)
class Listen:
    """The address at which machines join the run to run its servers."""

    host: str
    port: int
    token: str
    token_file: Path | None
    """The file in which the machines find the token; None: they find it in the environment."""
    machines: int | None
    """The number of machines that join; None: as many as there is room for."""
    ray: Ray | None
    """The Ray cluster whose actors join; None: machines join by themselves."""


@dataclass(frozen=True, slots=True)
class Ui:
    """The address of the live page."""

    listening: socket.socket
    token: str


@dataclass(frozen=True, slots=True)
class Config:
    """One run, resolved: paths are absolute and defaults are filled in."""

    options: RunOptions
    """The options as the user gave them."""
    script: str
    """A path, or the name of a module if ``module``."""
    module: bool
    arguments: tuple[str, ...]
    launcher: bool
    """True if ``script`` and ``arguments`` are a command that starts the ranks of a server."""
    servers: tuple[int, ...]
    """The number of GPUs in use on each server."""
    gpu: Gpu
    cluster: Cluster
    host: HostModel
    host_mode: str
    loading: LoadingPolicy
    """Says whether loading data takes virtual time."""
    faults: tuple[Fault, ...]
    """The faults of the emulated machine."""
    steps: int
    """The steps of every rank after which the run ends; 0: the run ends with the script."""
    all_steps: int
    """The steps of the run together with those that are played from the recording of the others; 0: none are played."""
    until_ns: int
    """The instant of virtual time, in ns, at which the run ends; 0: the run ends with the script."""
    kernel_times: tuple[KernelTimes, ...]
    """The tables of measured kernel times; the first one that knows a kernel gives its time."""
    assumed_links: str
    """The links between GPUs that were assumed because the user did not name them for this GPU; else empty."""
    measure: bool
    """True if kernels that the tables lack are measured on this machine's GPU."""
    nccl: NcclSettings
    """The settings of NCCL's environment variables."""
    remarks: tuple[str, ...]
    """Remarks that the user reads before the run starts."""
    speculation: str
    share_weights: bool
    isolation: str
    routing: RoutingPolicy
    data_shapes: ShapePolicy
    values: tuple[StatedValue, ...]
    """The values that `--value` states: what the script reads at lines where no value is computed."""
    network: str
    writable: tuple[str, ...]
    """The real paths that `--write` names."""
    python: Path
    preload: tuple[str, ...]
    auto_preload: bool
    compile_cache: Path | None
    """The folder in which ranks keep what they compile; None: a folder that is removed when the run ends."""
    claimed: RunDir
    report: Path
    shown_ranks: frozenset[int]
    """The ranks whose output is shown on the terminal."""
    progress: bool
    stall_timeout_s: float | None
    """The value of `--stall-timeout` in seconds; 0: ranks may wait for ever."""
    listen: Listen | None
    """The address at which machines join; None: all servers are on this machine."""
    loop_turns: int
    """The turns after which a loop that waits for a value that nobody computed ends the run; 0: no number of turns
    does.
    """
    trace: TraceRequest | None = None
    ui: Ui | None = None
    """The address of the live page; None: there is none."""
    reasons: bool = False
    """True if the report tells why a step takes as long as it does."""
    record: Path | None = None
    """The folder of the run's recording."""
    budget: Limits = field(default_factory=lambda: Limits({}))
    """The limits that the report is compared with."""
    folding: Folding | None = None
    """Says which ranks have processes; None: all of them do."""
    share_timelines: bool = False
    """True if ranks of a folded run to which the same happens are simulated once."""
    each_if_they_differ: bool = False
    """True if the run is done again with each of those ranks simulated when they turn out to differ."""

    @property
    def processes(self) -> int:
        """The number of ranks that have processes."""
        return sum(self.servers) if self.folding is None else len(self.folding.live)

    @property
    def witnessed(self) -> bool:
        """True if the content of segments is compared between ranks."""
        return self.folding is not None and bool(self.folding.apart - {0})

    @property
    def run_dir(self) -> Path:
        return self.claimed.path

    def log(self, rank: int) -> Path:
        return self.run_dir / f"rank{rank}.log"

    @property
    def restart_delay_ns(self) -> int:
        """The nanoseconds that a launcher takes to start ranks again after one has failed: torchrun's agent looks at
        its ranks once in every monitor interval. Other work on a cluster (ending the other ranks, starting Python)
        takes no virtual time, as at the run's start.
        """
        words = [part for word in self.arguments for part in word.split("=", 1)]
        given = [value for name, value in pairwise(words) if name in MONITOR_INTERVAL]
        for text in (*given, os.environ.get("PET_MONITOR_INTERVAL", "")):
            with contextlib.suppress(ValueError):
                return round(float(text) * 1e9)
        return round(MONITOR_INTERVAL_S * 1e9)

    def device_file_lines(self) -> list[str]:
        """The lines of the hook's device file: the GPU, the host model and this run's limits."""
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
