"""The specification of a run for the coordinator: the options that it needs, resolved by ``config``, and the run's
files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from emu.contract.job import LiveView, SharedView
from netsim import NcclSettings
from phantora_async.faults import Fault
from phantora_async.kernel_times import KernelTimes
from phantora_async.trace_request import TraceRequest
from phantora_async.virtual_time import ON_DEMAND
from profiles import Cluster, Gpu, HostModel


@dataclass(frozen=True, kw_only=True)
class MachineView(SharedView):
    """The options that a recording keeps of its run: the emulated machine, and how the ranks were simulated."""

    gpu: Gpu
    cluster: Cluster
    host: HostModel
    host_mode: str
    assumed_links: str = ""
    """The links between GPUs that were assumed because the user did not name them for this GPU; else empty."""
    nccl: NcclSettings = field(default_factory=NcclSettings)
    """The settings of NCCL's environment variables."""
    until_ns: int = 0
    """The instant of virtual time, in ns, at which the run ends; 0: the run ends with the script."""
    share_timelines: bool = False
    """True if ranks of a folded run to which the same happens are simulated once."""


@dataclass(frozen=True, kw_only=True)
class CoordinatorView(MachineView, LiveView):
    """The options that the coordinator needs."""

    kernel_times: tuple[KernelTimes, ...] = ()
    """The tables of measured kernel times; the first one that knows a kernel gives its time."""
    speculation: str = ON_DEMAND
    faults: tuple[Fault, ...] = ()
    """The faults of the emulated machine."""
    most_allocated_nbytes: int = 0
    """The run ends when tensors on any GPU are known to need more bytes than this; 0: no limit."""
    most_reserved_nbytes: int = 0
    """The run ends when PyTorch's allocator is known to reserve more bytes than this on any GPU; 0: no limit."""
    most_step_ns: int = 0
    """The run ends when the median step is certain to take longer; 0: no limit. It needs `steps`."""
    restart_delay_ns: int = 0
    """The ns of virtual time from the end of a rank that fails to the start of the ranks after it."""
    stall_timeout_s: float | None = None
    """The real seconds for which ranks may wait for one that makes no visible progress, or none may make any; 0: they
    may for ever. See ``phantora_async.liveness.patience``.
    """
    trace: TraceRequest | None = None
    reasons: bool = False
    """True if the report tells why a step takes as long as it does."""
    each_if_they_differ: bool = False
    """True if the run ends when ranks that share timelines turn out to differ, and is then done again with each of them
    simulated.
    """
    record: Path | None = None
    """The folder of the run's recording."""


@dataclass(frozen=True, kw_only=True)
class RunSpec(CoordinatorView):
    """The facts that the coordinator needs of a run."""

    socket: Path
    """The Unix socket at which ranks connect. Its path must be short."""
    cost_table: Path
    run_dir: Path
    """The folder with the logs, rank<N>.log."""
    measure: Callable[[str], bool] | None = None
    """Measures a signature on a GPU of this machine, and adds its time to one of `kernel_times` if it can."""
    progress: bool = False
    """True if the status line is shown while it changes."""
    compile_locks: Path | None = None
    """The folder of the files that ranks lock while they compile a graph."""
    kernel_locks: Path | None = None
    """The folder with Triton's folders in which ranks lock a file while they compile a kernel."""
