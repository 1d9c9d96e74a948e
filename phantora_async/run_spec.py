"""What a run emulates, and where its files are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from emu.contract.folding import Folding
from emu.contract.policies import loading_policy
from emu.contract.policies.loading_policy import LoadingPolicy
from emu.contract.policies.routing_policy import BALANCED
from emu.contract.policies.shape_policy import MOST
from emu.contract.stated_values import StatedValue
from netsim import NcclSettings
from phantora_async.faults import Fault
from phantora_async.kernel_times import KernelTimes
from phantora_async.trace_request import TraceRequest
from phantora_async.virtual_time import ON_DEMAND
from profiles import Cluster, Gpu, HostModel


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What the coordinator needs to know of a run. Resolved and checked by ``config``."""

    socket: Path
    """Where ranks connect. The path must be short: it is a Unix socket's."""
    cost_table: Path
    run_dir: Path
    """Has the logs, rank<N>.log."""
    servers: tuple[int, ...]
    """GPUs in use on each server; the first server has the first ranks."""
    gpu: Gpu
    cluster: Cluster
    host: HostModel
    host_mode: str
    kernel_times: tuple[KernelTimes, ...] = ()
    measure: Callable[[str], bool] | None = None
    """Measures a signature on a GPU of this machine, and adds its time to one of `kernel_times` if it can."""
    clock: str = "exact"
    speculation: str = ON_DEMAND
    progress: bool = False
    """The status line is shown as it changes."""
    assumed_links: str = ""
    """What joins the GPUs, if the user did not say it of this GPU; else empty."""
    nccl: NcclSettings = field(default_factory=NcclSettings)
    """What NCCL's environment variables ask for."""
    faults: tuple[Fault, ...] = ()
    """What goes wrong on the machine."""
    steps: int = 0
    """The run ends when ranks have done so many; 0: when the script does."""
    until_ns: int = 0
    """The run ends at this instant of virtual time; 0: when the script does."""
    most_allocated_nbytes: int = 0
    """The run ends when tensors on any GPU are known to take more; 0: no limit."""
    most_reserved_nbytes: int = 0
    """The run ends when PyTorch's allocator is known to reserve more on any GPU; 0: no limit."""
    most_step_ns: int = 0
    """With `steps`: the run ends when the median step is certain to take longer; 0: no limit."""
    routing: str = BALANCED
    """The policy of `--moe`."""
    data_shapes: str = MOST
    """The policy of `--data-shapes`."""
    launcher: bool = False
    """The user's launcher starts the ranks, and may start them again when one fails."""
    restart_delay_ns: int = 0
    """How long it takes, in virtual time, from the end of a rank that fails to the start of the ranks after it."""
    loading: LoadingPolicy = field(default_factory=lambda: loading_policy.parse(loading_policy.FREE))
    """What `--loaders` says."""
    values: tuple[StatedValue, ...] = ()
    """What `--value` says."""
    stall_timeout_s: float | None = None
    """For how long, in real time, ranks may wait for one that makes no visible progress, or none may make any: see
    ``phantora_async.liveness.patience``."""
    loop_turns: int = 0
    """Of a loop that waits for a value that nobody computed: so many end the run; 0: no number does."""

    trace: TraceRequest | None = None
    reasons: bool = False
    """The report tells why a step takes as long as it does."""
    folding: Folding | None = None
    """Which ranks have processes; None: all."""
    share_timelines: bool = False
    """Ranks of a folded run to which the same happens are simulated once."""
    each_if_they_differ: bool = False
    """The run ends if not quite the same happens to them, and is done again with each of them simulated."""
    compile_locks: Path | None = None
    """Folder of the files that ranks lock while they compile a graph."""
    kernel_locks: Path | None = None
    """Folder of the folders that have these of Triton's kernels."""
    record: Path | None = None
    """Folder of the run's recording."""

    @property
    def world_size(self) -> int:
        return sum(self.servers)

    @property
    def server_of(self) -> list[int]:
        """Each rank's server."""
        return [server for server, gpus in enumerate(self.servers) for _ in range(gpus)]
