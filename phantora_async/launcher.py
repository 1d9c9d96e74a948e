"""Starts the forker and speaks with it: the processes of a run, as the coordinator sees them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import emu
from emu.contract.job import Job
from emu.contract.messages import ControlSocket
from emu.start import isolation, processes
from phantora_async.config import DATA_LIMIT_NBYTES, FLOAT_LIMIT_COUNT, Config
from phantora_async.errors import EnvironmentUnusable

EMU = Path(emu.__file__).parent
HOOK = EMU / "lib" / "libcuda.so.1"
GRACE_S = 3.0
# `emu` is found by location: nothing of this environment's packages is put on the path of the one that runs the
# ranks, and a script's own package of that name is not hidden.
BOOTSTRAP = """\
import sys
if sys.path[0] == "": del sys.path[0]
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("_phantora_emu", sys.argv[2] + "/__init__.py", submodule_search_locations=[sys.argv[2]])
sys.modules[spec.name] = module_from_spec(spec)
spec.loader.exec_module(sys.modules[spec.name])
from _phantora_emu.start.forker import main
main(int(sys.argv[1]))
"""


@dataclass(frozen=True, slots=True)
class Runtime:
    """The run's short-lived folder: the socket (its path must be short), the cost table, libraries by their names."""

    folder: Path
    epoch_s: int

    @property
    def socket(self) -> Path:
        return self.folder / "coordinator"

    @property
    def cost_table(self) -> Path:
        return self.folder / "costs"

    @property
    def libraries(self) -> Path:
        return self.folder / "lib"


def make_runtime(hook: Path = HOOK) -> Runtime:
    """Raises EnvironmentUnusable if the hook library was not built."""
    if not hook.is_file():
        raise EnvironmentUnusable(
            f"the hook library {hook} is missing", f"in a source checkout: {sys.executable} emu/hook/build.py"
        )
    runtime = Runtime(Path(tempfile.mkdtemp(prefix="phantora-")), int(time.time()))
    runtime.libraries.mkdir()
    for library in hook.parent.glob("*.so.1"):
        (runtime.libraries / library.name).symlink_to(library)
    (runtime.libraries / "libcuda.so").symlink_to(hook)
    return runtime


def free_port() -> int:
    """A port that nobody listens on, outside the range that the kernel hands out meanwhile."""
    for port in random.sample(range(20_000, 32_000), 200):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise EnvironmentUnusable("no free TCP port between 20000 and 32000 for MASTER_PORT")


def forker_environment(runtime: Runtime, hook: Path) -> dict[str, str]:
    """The user's environment, and what must be set before the interpreter or torch starts."""
    environment = dict(os.environ)
    for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):  # they speak of the machine's own GPUs
        environment.pop(name, None)
    folders = [str(runtime.libraries), *filter(None, [environment.get("LD_LIBRARY_PATH")])]
    environment |= {
        "LD_LIBRARY_PATH": ":".join(folders),
        "TRITON_LIBCUDA_PATH": str(runtime.libraries),
        "NVTX_INJECTION64_PATH": str(hook),
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # asking the driver would forbid to fork
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    environment.setdefault("PYTHONHASHSEED", "0")  # the order of sets is part of what a run repeats
    # torch.compile. Its pool of workers would be one interpreter more for every rank, on the same few cores, and would
    # look for real GPUs. What Inductor keeps includes the winners of its benchmarks: those of emulated ones are not
    # for real GPUs, nor for a run with other costs. Triton's binaries depend on nothing but their source.
    environment.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    environment.setdefault("TORCHINDUCTOR_CACHE_DIR", str(runtime.folder / "inductor"))
    environment.setdefault("TRITON_CACHE_DIR", str(cache_folder() / "triton"))
    return environment


def cache_folder() -> Path:
    """What outlives runs, and can be deleted at any time."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "phantora-async"


class Launcher:
    """The forker's process and its control socket.

    `async for event in launcher.events()` gives its messages: ready, started, exited, server_lost, failed, done; and
    at last `lost` if it ended without saying done or failed.
    """

    def __init__(self, config: Config, runtime: Runtime, hook: Path = HOOK) -> None:
        self._config = config
        self._runtime = runtime
        self._hook = hook
        self._control: ControlSocket | None = None
        self._process: asyncio.subprocess.Process | None = None

    def _job(self) -> Job:
        config = self._config
        return Job(
            run_id=uuid.uuid4().hex[:12],
            run_dir=str(config.run_dir),
            runtime_dir=str(self._runtime.folder),
            hook=str(self._hook),
            device_file=str(config.run_dir / "device.txt"),
            socket=str(self._runtime.socket),
            cost_table=str(self._runtime.cost_table),
            servers=config.servers,
            script=config.script,
            module=config.module,
            arguments=config.arguments,
            preload=config.preload,
            master_addr=isolation.host_name(config.isolation, 0),
            master_port=free_port(),
            epoch_s=self._runtime.epoch_s,
            isolation=config.isolation,
            data_limit_nbytes=DATA_LIMIT_NBYTES,
            float_limit_count=FLOAT_LIMIT_COUNT,
            grace_s=GRACE_S,
        )

    async def start(self) -> None:
        """Starts the forker and tells it the job; the coordinator must listen already."""
        processes.adopt_orphans()
        device_file = self._config.run_dir / "device.txt"
        device_file.write_text("\n".join(self._config.device_file_lines()) + "\n")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, (self._config.run_dir / "forker.log").open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                self._config.python,
                "-u",
                "-c",
                BOOTSTRAP,
                str(theirs.fileno()),
                str(EMU),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=forker_environment(self._runtime, self._hook),
                pass_fds=[theirs.fileno()],
                preexec_fn=processes.fix_addresses,
                start_new_session=True,  # Ctrl-C is ours alone: we end the others in order
            )
        self._control = ControlSocket(ours)
        with contextlib.suppress(BrokenPipeError):  # then events() tells
            self._control.send("job", **asdict(self._job()))

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
                            yield {"event": "lost"}
                        return
                    ended = ended or message["event"] in ("failed", "done")
                    yield message
        finally:
            loop.remove_reader(descriptor)

    def terminate(self) -> None:
        """SIGTERM to every rank, SIGKILL to those that stay."""
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.send("terminate")

    async def close(self) -> None:
        """Ends every process of the run that is left. Takes a moment; never fails."""
        if self._control is not None:
            self._control.close()  # which the forker notices
        if self._process is not None:
            try:
                await asyncio.wait_for(self._process.wait(), timeout=15.0)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
            _kill_marked(self._runtime.folder)
        shutil.rmtree(self._runtime.folder, ignore_errors=True)


def _kill_marked(folder: Path) -> None:
    """What the forker left behind (it was killed itself): now below us, known by its environment."""
    mark = f"TRITON_LIBCUDA_PATH={folder}/".encode()
    while True:
        marked = [pid for pid in processes.descendants(os.getpid()) if mark in _environment(pid)]
        if not marked:
            return
        for pid in marked:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in marked:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
