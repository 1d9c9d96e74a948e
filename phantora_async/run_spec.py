"""The resolved description of a run: the machine that it emulates, its limits, and where its files are."""

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
    """The facts that the coordinator needs of a run. They are resolved and checked by ``config``."""

    socket: Path
    """The Unix socket at which ranks connect. Its path must be short."""
    cost_table: Path
    run_dir: Path
    """The folder with the logs, rank<N>.log."""
    servers: tuple[int, ...]
    """The number of GPUs in use on each server; the first server has the first ranks."""
    gpu: Gpu
    cluster: Cluster
    host: HostModel
    host_mode: str
    kernel_times: tuple[KernelTimes, ...] = ()
    measure: Callable[[str], bool] | None = None
    """Measures a signature on a GPU of this machine, and adds its time to one of `kernel_times` if it can."""
    speculation: str = ON_DEMAND
    progress: bool = False
    """True if the status line is shown while it changes."""
    assumed_links: str = ""
    """The links between GPUs that were assumed because the user did not name them for this GPU; else empty."""
    nccl: NcclSettings = field(default_factory=NcclSettings)
    """The settings of NCCL's environment variables."""
    faults: tuple[Fault, ...] = ()
    """The faults of the emulated machine."""
    steps: int = 0
    """The steps of every rank after which the run ends; 0: the run ends with the script."""
    until_ns: int = 0
    """The instant of virtual time, in ns, at which the run ends; 0: the run ends with the script."""
    most_allocated_nbytes: int = 0
    """The run ends when tensors on any GPU are known to need more bytes than this; 0: no limit."""
    most_reserved_nbytes: int = 0
    """The run ends when PyTorch's allocator is known to reserve more bytes than this on any GPU; 0: no limit."""
    most_step_ns: int = 0
    """With `steps`: the run ends when the median step is certain to take longer; 0: no limit."""
    routing: str = BALANCED
    """The policy of `--moe`."""
    data_shapes: str = MOST
    """The policy of `--data-shapes`."""
    launcher: bool = False
    """The user's launcher starts the ranks, and may start them again when one fails."""
    restart_delay_ns: int = 0
    """The ns of virtual time from the end of a rank that fails to the start of the ranks after it."""
    loading: LoadingPolicy = field(default_factory=lambda: loading_policy.parse(loading_policy.FREE))
    """The policy of `--loaders`: the time that data loaders take."""
    values: tuple[StatedValue, ...] = ()
    """The values that `--value` states."""
    stall_timeout_s: float | None = None
    """The real seconds for which ranks may wait for one that makes no visible progress, or none may make any: see
    ``phantora_async.liveness.patience``.
    """
    loop_turns: int = 0
    """The turns after which a loop that waits for a value that nobody computed ends the run; 0: no number of turns
    does.
    """

    trace: TraceRequest | None = None
    reasons: bool = False
    """True if the report tells why a step takes as long as it does."""
    folding: Folding | None = None
    """Says which ranks have processes; None: all of them do."""
    share_timelines: bool = False
    """True if ranks of a folded run to which the same happens are simulated once."""
    each_if_they_differ: bool = False
    """True if the run ends when those ranks turn out to differ, and is then done again with each of them simulated."""
    compile_locks: Path | None = None
    """Folder of the files that ranks lock while they compile a graph."""
    kernel_locks: Path | None = None
    """The folder with Triton's folders in which ranks lock a file while they compile a kernel."""
    record: Path | None = None
    """Folder of the run's recording."""

    @property
    def world_size(self) -> int:
        return sum(self.servers)

    @property
    def server_of(self) -> list[int]:
        """The server of each rank, by rank."""
        return [server for server, gpus in enumerate(self.servers) for _ in range(gpus)]
