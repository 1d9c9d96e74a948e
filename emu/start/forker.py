"""The forker: one warmed interpreter from which all emulated servers are forked.

It loads the hook library, then torch and what training scripts commonly import, freezes its heap and forks the servers.
Everything that it has read lives once in memory, whatever the number of ranks. It stays single-threaded: a fork copies
only the calling thread, and a locked lock for ever.

It ends when all servers have, or when the launcher's end of the control socket closes, for whatever reason; then it
kills every process below itself.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import re
import select
import shutil
import signal
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..clock import timeouts
from ..clock.virtual_clock import VirtualClock
from ..contract.job import Job
from ..contract.messages import ControlSocket
from ..contract.process_setup import adopt_orphans
from ..control import control_tensors
from ..interpreter import compile_once, heap, script, threads
from ..interpreter.hook_library import Hook, HookError
from ..interpreter.observe import Observer
from . import processes, server

# What training scripts import anyway; each costs a rank that imports it itself memory and time.
WARM_MODULES = (
    "torch.distributed",
    "torch.distributed.checkpoint",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper",
    "torch.nn.parallel",
    "torch.optim",
    "torch.profiler",
    "torch.utils.checkpoint",
    "torch.utils.data.distributed",
    "torch._dynamo",
    "multiprocessing.pool",
    "concurrent.futures.process",
    "concurrent.futures.thread",
    "logging.handlers",
    "argparse",
    "asyncio",
    "ssl",
)


class CannotWarm(Exception):
    """The environment cannot run emulated ranks: what is wrong, and what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def main(fileno: int) -> None:
    """The forker's process, from its first message to its end."""
    import socket

    control_socket = ControlSocket(socket.socket(fileno=fileno))
    message = control_socket.receive()
    if message is None:
        return
    message.pop("event")
    job = Job.parse(message)
    adopt_orphans()
    try:
        # Nothing is below it yet, and importing torch takes seconds in which it does not listen.
        processes.die_with_parent(os.getppid())
        if control_socket.closed():
            return
        warmed = warm(job)
        processes.outlive_parent()
    except CannotWarm as error:
        control_socket.send("failed", message=str(error), hint=error.hint)
        return
    import torch

    control_socket.send("ready", torch=torch.__version__, python=sys.version.partition(" ")[0])
    supervise(job, warmed, control_socket)


@dataclass(frozen=True, slots=True)
class Warm:
    """What the forker prepared and every rank inherits."""

    hook: Hook
    clock: VirtualClock
    observer: Observer
    kernels: Any
    """ControlSocket tensors' registrations, alive as long as this."""


def warm(job: Job) -> Warm:
    """Hook library first, then torch, then everything that all ranks share. Raises CannotWarm."""
    _check_torch()
    try:
        hook = Hook(job.hook)
        hook.load(job.device_file)
    except HookError as error:
        raise CannotWarm(
            str(error), "is the package complete? try: pip install --force-reinstall phantora-async"
        ) from None
    for name in WARM_MODULES:
        with contextlib.suppress(ModuleNotFoundError):  # an older or newer torch may lack some
            importlib.import_module(name)
    for name in job.preload:
        try:
            importlib.import_module(name)
        except Exception as error:
            raise CannotWarm(
                f"--preload {name}: {type(error).__name__}: {error}", "it must be importable there"
            ) from None
    hook.learn_versions()
    compile_once.install()
    timeouts.install()
    clock, observer = VirtualClock(hook), Observer()
    clock.install()
    kernels = control_tensors.install(hook, job.data_limit_nbytes, job.float_limit_count)
    observer.install()
    script.tell_sites(hook)
    threads.install()
    running = os.listdir("/proc/self/task")
    if len(running) > 1:
        names = sorted(Path(f"/proc/self/task/{thread}/comm").read_text().strip() for thread in running)
        raise CannotWarm(
            f"importing started threads ({', '.join(names)}), which a fork would lose",
            "leave out the --preload module that starts them",
        )
    gc.collect()
    heap.return_freed()
    gc.freeze()
    return Warm(hook, clock, observer, kernels)


def _check_torch() -> None:
    """Before it is imported: a CPU-only torch never calls CUDA, and nothing could be emulated."""
    install = f"install the CUDA build there (no GPU needed): {sys.executable} -m pip install torch"
    spec = find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise CannotWarm(f"PyTorch is not installed for {sys.executable}", install)
    version = Path(next(iter(spec.submodule_search_locations))) / "version.py"
    text = version.read_text() if version.is_file() else ""
    known = dict(re.findall(r"^(\w+)\s*(?::[^=\n]*)?=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE))
    if "cuda" not in known:
        what = "a ROCm build" if "hip" in known else "CPU-only"
        raise CannotWarm(
            f"the PyTorch of {sys.executable} ({known.get('__version__', 'unknown version')}) is {what}; "
            "emulation needs a CUDA build",
            install + " (not from a /whl/cpu or /whl/rocm index)",
        )


def supervise(job: Job, warmed: Warm, control_socket: ControlSocket) -> None:
    """Forks the servers and waits: for their ends, and for the launcher's word or end."""
    wakeup, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    servers: dict[int, int] = {}
    for index in range(len(job.servers)):
        parent, pid = os.getpid(), os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            os.close(wakeup)
            os.close(wake)
            server.main(job, index, warmed, control_socket, parent)
        servers[pid] = index
    poll = select.poll()
    poll.register(control_socket.fileno(), select.POLLIN)
    poll.register(wakeup, select.POLLIN)
    while servers:
        for descriptor, _ in poll.poll():
            if descriptor == wakeup:
                os.read(wakeup, 4096)
            elif not _obey(control_socket, servers):
                processes.kill_descendants()
                shutil.rmtree(job.runtime_dir, ignore_errors=True)  # the launcher cannot
                return
        for pid, status in processes.reap():
            if pid in servers:
                index = servers.pop(pid)
                if status != 0:
                    code, number = processes.exit_of(status)
                    control_socket.send("server_lost", server=index, code=code, signal=number)
    processes.kill_descendants()
    control_socket.send("done")


def _obey(control_socket: ControlSocket, servers: dict[int, int]) -> bool:
    """One message of the launcher's; False if it has gone."""
    message = control_socket.receive()
    if message is None:
        return False
    if message["event"] == "terminate":
        for pid in servers:
            os.kill(pid, signal.SIGTERM)
        return True
    raise ValueError(f"unknown message {message}")
