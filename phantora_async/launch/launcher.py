"""Starts the forker, which starts all other processes of a run, and exchanges messages with it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import psutil

from emu.contract import installed, isolation, process_setup
from emu.contract.job import Job
from emu.contract.messages import ControlSocket
from phantora_async import compile_cache
from phantora_async.config import FLOAT_LIMIT_COUNT, Config
from phantora_async.errors import EnvironmentUnusable
from phantora_async.faults import Death, dead_gpus, paces_of, slow_loaders
from phantora_async.launch import warm_interpreters
from phantora_async.launch.forker_process import (
    KILLED_S,
    LIBRARIES,
    Forker,
    ForkerRequest,
    OwnForker,
    StartOwn,
    WarmForker,
    end,
)
from phantora_async.launch.runtime import HOOK, Runtime, free_port
from phantora_async.remote.wire import TOKEN_VARIABLE
from phantora_async.virtual_time import Timelines

GRACE_S = 3.0
"""The seconds that ranks may take between SIGTERM and SIGKILL."""
CLOSE_S = 15.0
"""The seconds that the forker may take to end everything before it is killed."""
MOST_THREADS = 1024
"""The largest number of threads that OMP_NUM_THREADS is taken for."""
NETWORK_BUILDER = """\
import sys
if sys.path[0] == "": del sys.path[0]
sys.path.append(sys.argv[1])
from phantora_async.launch.server_network import main
main(int(sys.argv[2]), list(map(int, sys.argv[3].split(","))))
"""


def forker_environment(libraries: Path, variables: dict[str, str]) -> dict[str, str]:
    """The user's environment with what must be set before the interpreter or torch starts. `libraries`: the folder in
    which the dynamic linker finds ours.
    """
    environment = dict(os.environ)
    for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):  # these are about GPUs of this machine
        environment.pop(name, None)
    environment.pop(TOKEN_VARIABLE, None)  # the script has no use for it
    folders = [str(libraries), *filter(None, [environment.get("LD_LIBRARY_PATH")])]
    environment |= {
        "LD_LIBRARY_PATH": ":".join(folders),
        # The library is named without its path, since LD_LIBRARY_PATH finds it: a path may have characters that
        # separate libraries here.
        installed.PRELOAD: ":".join(
            (installed.RECEIVE_LIBRARY.name, *filter(None, [environment.get(installed.PRELOAD)]))
        ),
        "TRITON_LIBCUDA_PATH": str(libraries),
        "NVTX_INJECTION64_PATH": str(HOOK),
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # after asking the driver, PyTorch would refuse to use CUDA in a fork
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    environment.setdefault("PYTHONHASHSEED", "0")  # the order of sets must be the same in every run
    # torch.compile's worker processes would be one more interpreter for every rank on the same few cores, and would
    # look for real GPUs.
    environment.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    # vLLM would report GPUs that do not exist, from a server that cannot send and a home folder that it cannot write.
    environment.setdefault("VLLM_NO_USAGE_STATS", "1")
    return environment | variables


def tensor_threads(environment: Mapping[str, str], ranks: int, cores: int) -> int:
    """The number of threads of PyTorch's operators on the CPU of the described server: OMP_NUM_THREADS, or what
    torchrun makes of it. It gives a rank among several one thread; a rank alone has one for each core.
    """
    told = environment.get("OMP_NUM_THREADS", "").partition(",")[0].strip()[:9]  # more digits are too many threads, too
    if told.isdecimal() and int(told):
        return min(int(told), MOST_THREADS)
    return 1 if ranks > 1 else cores


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """The description of the processes that are started on one machine."""

    job: Job
    python: Path
    device_file_lines: tuple[str, ...]
    variables: dict[str, str]
    """The environment variables that name the cache of compiled code."""
    log: str = "forker.log"
    """The name of the forker's log in the run directory."""
    interpreters: Path | None = None
    """The folder of the warm interpreters of which one is used; None: the run has an interpreter of its own."""


def plan_of(config: Config, runtime: Runtime, interpreters: Path | None = None) -> LaunchPlan:
    """The plan for a run with all of its servers on this machine. `interpreters`: see ``LaunchPlan``."""
    cache = config.compile_cache
    job = config.view(
        Job,
        run_id=uuid.uuid4().hex[:12],
        run_dir=str(config.run_dir),
        runtime_dir=str(runtime.folder),
        hook=str(HOOK),
        device_file=str(config.run_dir / "device.txt"),
        socket=str(runtime.socket),
        cost_table=str(runtime.cost_table),
        simulated=simulated(config),
        cpus=config.cluster.cpus_per_server,
        tensor_threads=tensor_threads(os.environ, max(config.servers), config.cluster.cores_per_server),
        slow_loaders=slow_loaders(config.faults),
        dead_gpus=dead_gpus(config.faults),
        mortal=any(isinstance(fault, Death) for fault in config.faults),
        host_scale=config.host.scale,
        hosted=hosted(config),
        preload_cache=str(cache / "imports") if cache else "",
        master_addr=isolation.LOOPBACK,
        master_port=free_port(),
        epoch_s=runtime.epoch_s,
        writable=(*config.writable, *([str(cache)] if cache else [])),
        float_limit_count=FLOAT_LIMIT_COUNT,
        grace_s=GRACE_S,
        inputs=str(runtime.inputs) if config.known else "",
    )
    variables = compile_cache.environment(cache or runtime.ranks / "compiled", config.gpu)
    return LaunchPlan(job, config.python, tuple(config.device_file_lines()), variables, interpreters=interpreters)


def hosted(config: Config) -> tuple[int, ...]:
    """The servers that have ranks with processes."""
    if config.folding is None:
        return tuple(range(len(config.servers)))
    return tuple(sorted({config.server_of[rank] for rank in config.folding.live}))


def simulated(config: Config) -> tuple[int, ...] | None:
    """The ranks of a folded run that have timelines of their own; None: all have."""
    if config.folding is None or not config.share_timelines:
        return None
    slowed = paces_of(config.faults, config.servers).ranks
    return Timelines(config.folding.mesh.world_size, config.folding, config.servers, slowed).own


class Launcher:
    """The forker's process and its control socket.

    `async for event in launcher.events()` gives its messages: ready, started, exited, server_lost, failed, done; and
    at last `lost` if the forker ended without done or failed.
    """

    def __init__(self, plan: LaunchPlan, runtime: Runtime) -> None:
        self._plan = plan
        self._runtime = runtime
        self._control: ControlSocket | None = None
        self._forker: Forker | None = None
        self._network_builder: asyncio.subprocess.Process | None = None
        self._ready = False
        """The forker has prepared itself and reads the control socket."""

    async def start(self) -> None:
        """Starts the forker and sends it the job. The coordinator must be listening. Raises EnvironmentUnusable if no
        process can be started.
        """
        if installed.SERVER_SOCKET in os.environ:
            raise EnvironmentUnusable(
                "a rank of a run, or its launcher, has started this command: there is no emulation within an emulation",
                "start it outside of the run",
            )
        try:
            await self._start()
        except BlockingIOError:  # fork(2)
            raise EnvironmentUnusable(process_setup.NO_PROCESS, process_setup.NO_PROCESS_HINT) from None

    async def _start(self) -> None:
        process_setup.adopt_orphans()
        job = self._plan.job
        Path(job.device_file).write_text("\n".join(self._plan.device_file_lines) + "\n")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        networks, for_builder = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = ControlSocket(ours)
        self._runtime.job.write_text(json.dumps(job.to_json()))
        self._control.send("job", file=str(self._runtime.job))
        with for_builder:
            if job.isolation != "none" and job.network == "private":
                await self._start_network_builder(for_builder, job.hosted)
        log = os.open(Path(job.run_dir, self._plan.log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        environment = forker_environment(self._runtime.libraries, self._plan.variables)
        request = ForkerRequest(theirs.detach(), networks.detach(), log, environment)

        async def start_own() -> OwnForker:
            return await OwnForker.start(self._plan.python, request, environment, self._runtime.folder)

        if self._plan.interpreters is not None:
            self._forker = self._ask_warm(self._plan.interpreters, request, start_own)
        if self._forker is None:
            self._forker = await start_own()
            request.close()

    def _ask_warm(self, interpreters: Path, request: ForkerRequest, start_own: StartOwn) -> WarmForker | None:
        """Asks the warm interpreter for the forker, and starts one if there is none. Returns None if that is
        impossible.
        """
        variables = self._plan.variables
        if any(Path(folder).is_relative_to(self._runtime.folder) for folder in variables.values()):
            return None  # without a cache of compiled code, torch keeps a path that is this run's
        template = forker_environment(Path(LIBRARIES), variables)
        connection = warm_interpreters.connect(interpreters, self._plan.python, template)
        if connection is None:
            return None
        try:
            return WarmForker(connection, request, start_own)
        except OSError:
            connection.close()
            return None

    async def _start_network_builder(self, end: socket.socket, servers: Sequence[int]) -> None:
        """Starts the process that joins the servers' networks. It ends when it has done so, or when the forker has
        gone.
        """
        self._network_builder = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            NETWORK_BUILDER,
            str(Path(__file__).parents[2]),
            str(end.fileno()),
            ",".join(map(str, servers)),
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=[end.fileno()],
            start_new_session=True,
        )

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        assert self._control is not None, "start comes first"
        loop, readable, control = asyncio.get_running_loop(), asyncio.Event(), self._control
        ended, descriptor = False, control.fileno()
        loop.add_reader(descriptor, readable.set)
        try:
            while True:
                await readable.wait()
                readable.clear()
                while not control.idle():
                    try:
                        message = control.receive()
                    except ConnectionResetError:
                        message = None
                    if message is None:
                        if not ended:
                            signal = 0 if self._forker is None else await self._forker.ended_by()
                            yield {"event": "lost", "signal": signal}
                        return
                    ended = ended or message["event"] in ("failed", "done")
                    self._ready = self._ready or message["event"] == "ready"
                    yield message
        finally:
            loop.remove_reader(descriptor)

    def terminate(self) -> None:
        """Sends SIGTERM to every rank, and after GRACE_S SIGKILL to those that still run."""
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.send("terminate")

    def tell_end(self, rank: int) -> None:
        """Tells the launcher that has started this rank that the rank has ended."""
        self._order("tell_end", rank)

    def ask_memory(self, rank: int) -> None:
        """Asks what memory the rank's processes have had until now: an event "took" answers."""
        self._order("ask_memory", rank)

    def _order(self, order: str, rank: int) -> None:
        server = next(server for server, first in enumerate(accumulate(self._plan.job.servers)) if rank < first)
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.send(order, server=server, rank=rank)

    def kill(self) -> None:
        """Sends SIGKILL to the forker, with which all other processes of the run end."""
        if self._forker is not None:
            self._forker.kill()

    async def close(self) -> list[int]:
        """Ends every process of the run that is left, and removes the runtime folder. Returns the numbers of processes
        that were killed and have not ended within KILLED_S.
        """
        left: list[int] = []
        if self._control is not None:
            self._control.close()  # which the forker notices
        if self._forker is not None:
            if not self._ready:
                self.kill()
            left += await self._forker.end(CLOSE_S)
            left += kill_marked(self._runtime.folder)
        if self._network_builder is not None:
            left += await end(self._network_builder, CLOSE_S)
        self._runtime.remove()
        return sorted(set(left))


def kill_marked(folder: Path, killed_s: float = KILLED_S) -> list[int]:
    """Kills what the forker left behind because it was killed itself. These processes are now descendants of this one;
    their environment names the run's folder. Returns the numbers of those that have not ended within `killed_s`.
    """
    until_s = time.monotonic() + killed_s
    while marked := [process for process in psutil.Process().children(recursive=True) if _marked(process, folder)]:
        for process in marked:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        _, left = psutil.wait_procs(marked, timeout=max(0.0, until_s - time.monotonic()))
        if left:
            return [process.pid for process in left]
    return []


def not_ended(processes: list[int]) -> str:
    """The message for users about processes that cannot be ended."""
    numbers = ", ".join(map(str, processes))
    return (
        f"killed, but still there: process {numbers}. The kernel waits, perhaps for a device or a file server: "
        f"`ps -o pid,stat,wchan,cmd -p {numbers.replace(' ', '')}` says for what"
    )


def _marked(process: psutil.Process, folder: Path) -> bool:
    try:
        libraries: str = process.environ().get("TRITON_LIBCUDA_PATH", "")
    except psutil.Error:  # it has ended, or has ended and nobody has waited for it
        return False
    return libraries.startswith(f"{folder}/")
