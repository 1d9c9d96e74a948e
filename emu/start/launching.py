"""The user's launcher (`torchrun`, `deepspeed`, `accelerate launch`, a script that starts its own ranks): started once
on each server, as on a cluster, with what launchers need to find each other.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import shutil
import socket
import sys
import traceback
from typing import NoReturn

from .. import smi
from ..contract import installed, isolation
from ..contract.job import Job, RunPlace
from . import interpreter_paths, processes, program, rank, warm_children
from .prepare import Prepared

CANNOT_START = 127
_STUBS = ("python", "python3", f"python3.{sys.version_info.minor}")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def make_interpreter_folder(job: RunPlace) -> None:
    """Makes a folder whose `python` is the stub, and so are `nvidia-smi` and every program installed beside the real
    interpreter that is a Python script. Called once, in the forker.
    """
    folder = _interpreter_folder(job)
    os.mkdir(folder)
    names = {*_STUBS, smi.PROGRAM}
    with contextlib.suppress(OSError):
        names |= {
            name
            for name in os.listdir(os.path.dirname(sys.executable))
            if program.installed_beside(sys.executable, name)
        }
    for name in names:
        os.symlink(installed.PYTHON_STUB, os.path.join(folder, name))


def write_scripts(job: RunPlace) -> None:
    """Writes copies of the Python scripts beside the interpreter that name the stub as their interpreter. Servers with
    files of their own have them in the originals' places, so that a program that starts a script by its path gets the
    emulated GPUs. All lines but the first are the same. Called once, in the forker.
    """
    stub = os.fsencode(os.path.join(_interpreter_folder(job), "python"))
    folder = isolation.scripts_folder(job.runtime_dir)
    os.mkdir(folder)
    for name in os.listdir(_interpreter_folder(job)):
        path = program.installed_beside(sys.executable, name)
        if path is None or name in _STUBS:
            continue
        with open(path, "rb") as script:
            _, _, rest = script.read().partition(b"\n")
        copy = os.path.join(folder, name)
        with open(copy, "wb") as script:
            script.write(b"#!" + stub + b"\n" + rest)
        os.chmod(copy, 0o555)


def _interpreter_folder(job: RunPlace) -> str:
    return f"{job.runtime_dir}/bin"


def listen(job: RunPlace, server: int) -> socket.socket:
    """Opens the socket on which stubs ask a server for processes."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(_path(job, server))
    listener.listen(socket.SOMAXCONN)
    return listener


def _path(job: RunPlace, server: int) -> str:
    return os.path.join(isolation.server_folder(job.runtime_dir, server), "stubs")


def offer_interpreter(job: RunPlace, server: int) -> None:
    """Lets processes that are forked from the server find the stub in the interpreter's place. Called in the server."""
    stub = f"{_interpreter_folder(job)}/python"
    os.environ[installed.SERVER_SOCKET] = _path(job, server)
    os.environ[warm_children.PYTHON] = sys.executable
    os.environ["PATH"] = f"{_interpreter_folder(job)}:{os.environ.get('PATH', os.defpath)}"
    interpreter_paths.install(sys.executable, _interpreter_folder(job))
    sys.executable = stub
    multiprocessing.set_executable(stub)


def environment_of_server(job: RunPlace, server: int) -> dict[str, str]:
    """Returns the variables by which a cluster's scheduler tells a launcher its place; torchrun reads those that begin
    with PET.
    """
    nodes, address, port = str(len(job.servers)), job.master_addr, str(job.master_port)
    return {
        "NNODES": nodes,
        "NODE_RANK": str(server),
        "GPUS_PER_NODE": str(job.servers[server]),
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "PET_NNODES": nodes,
        "PET_NODE_RANK": str(server),
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": port,
        "PET_RDZV_ID": job.run_id,
    }


def run_command(job: Job, server: int, prepared: Prepared, joined: int) -> NoReturn:
    """Runs the user's launcher. Called in a process that the server has forked."""
    try:
        rank.default_signals()
        rank.write_to_log(f"{job.run_dir}/server{server}.log")
        os.environ.update(environment_of_server(job, server))
        name, *arguments = (_expanded(word) for word in (job.script, *job.arguments))
        what = _python_program(name, arguments)
        if what is None:
            processes.die_with_parent(os.getppid())
            os.set_inheritable(joined, False)
            os.execvp(name, [name, *arguments])
    except OSError as error:
        print(f"phantora-async: cannot start {job.script}: {why_not(job.script, error)}", file=sys.stderr)
        rank.leave(CANNOT_START)
    except BaseException:
        traceback.print_exc()
        rank.leave(CANNOT_START)
    warm_children.run(job, server, prepared, what, None, 0, joined)


def why_not(command: str, error: OSError) -> str:
    """Explains why the user's launcher cannot be started."""
    if isinstance(error, FileNotFoundError) and "/" not in command:
        return f"it is neither beside {os.environ[warm_children.PYTHON]} (--python names another one) nor in PATH"
    return str(error.strerror)


def _expanded(word: str) -> str:
    """Expands `$NODE_RANK` and the like, for launchers that want them as arguments. Unknown variables stay as they
    are."""
    return _VARIABLE.sub(lambda found: os.environ.get(found[1] or found[2], found[0]), word)


def _python_program(name: str, arguments: list[str]) -> program.Program | None:
    """Returns the Python program that the command runs; None if the command is not Python's, or of another Python than
    the forker's.
    """
    real = os.environ[warm_children.PYTHON]
    if "/" not in name and name in _STUBS:
        return program.parse(arguments)
    path = program.installed_beside(real, name) if "/" not in name else shutil.which(name)
    if path is not None and os.path.dirname(os.path.abspath(path)) == os.path.dirname(real):
        if os.path.basename(path).startswith("python"):
            return program.parse(arguments)
        if program.is_python_script(path):
            return program.Program(program.ProgramKind.FILE, path, tuple(arguments))
    return None
