"""The interpreter that imports torch and then becomes the forker of a run.

Imports are the same for all runs with the same environment and installation. So an interpreter that is kept warm (see
`phantora_async.launch.warm_keeper`) does them once and forks a forker for each run. An interpreter that serves one run
does the same and becomes the forker itself. Both come to the job in the same way and in the same state, because the
order of addresses in memory decides the order of sets in the script.

Comes in: requests, each with the descriptors of `DESCRIPTORS`. Goes out: the forker of a run.
"""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import signal
import socket
import sys
from typing import Any, NamedTuple

from ..contract import installed
from ..contract.messages import ControlSocket
from . import forker, processes, rank
from .prepare import CannotPrepare, Preparation, import_torch

DESCRIPTORS = ("control", "network", "log", "folder", "environment")
"""The descriptors of a request: the forker's ends of the control socket and of the socket to the process that joins
networks; its log; its working directory; a file with the environment in JSON. A warm interpreter gets a sixth one, the
connection to the launcher.
"""
KEPT = "kept"
"""The argument that makes the interpreter a warm one."""
_FIRST = 3
"""The lowest number of the forker's descriptors: those below are the standard ones."""


class Request(NamedTuple):
    """A run that wants a forker."""

    control: int
    network: int


def main() -> None:
    """Runs the interpreter's process. The arguments are the number of its end of the socket of requests, this package's
    folder, a folder to remove if whoever started the process ends before a job has come, and perhaps `KEPT`.
    """
    fileno, remove, kept = int(sys.argv[1]), sys.argv[3], KEPT in sys.argv[4:]
    del sys.orig_argv[4:]  # the rest differs from run to run
    processes.close_others({0, 1, 2, fileno})
    added = _added_variables()
    _ignore_no_signals()
    forker.preload_no_more()
    requests = ControlSocket(socket.socket(fileno=fileno))
    made, failure = None, None
    with processes.ending_with_parent(remove):
        try:
            made = import_torch()
        except CannotPrepare as error:
            failure = error
        if kept:
            if made is None or len(os.listdir("/proc/self/task")) > 1:
                return  # the launcher starts an interpreter for its run alone, which says what is wrong
            os.chdir("/")
            requests.send("imported")
            request = _serve(requests, added)
        else:
            request = _take(*requests.receive_with(), added)
    requests.close()
    if request is not None:
        _become_forker(request, made, failure, f"{remove}/lib")
    # The exit handlers remove temporary folders. The rest of an interpreter's end would only free memory.
    rank.end_interpreter()
    rank.leave(0)


def _ignore_no_signals() -> None:
    """Gives signals that whoever started this process ignores, such as SIGHUP under nohup, their default. Whether they
    are inherited depends on who starts the process.
    """
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:  # Python ignores these two itself
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def _become_forker(request: Request, made: Preparation | None, failure: CannotPrepare | None, libraries: str) -> None:
    control = ControlSocket(socket.socket(fileno=request.control))
    if made is not None:
        forker.main(control, socket.socket(fileno=request.network), made, libraries)
    elif control.receive() is not None:
        control.send("failed", message=str(failure), hint=failure.hint if failure is not None else "")


def _added_variables() -> dict[str, str]:
    """Returns the environment variables that the start of this interpreter has set or changed: files of the environment
    (`.pth`, sitecustomize) may.
    """
    with open("/proc/self/environ", "rb") as file:
        given = dict(one.partition(b"=")[::2] for one in file.read().split(b"\0"))
    return {name: value for name, value in os.environ.items() if given.get(os.fsencode(name)) != os.fsencode(value)}


def _take(message: dict[str, Any] | None, descriptors: list[int], added: dict[str, str]) -> Request | None:
    """Gives this process what a request says of it: its output, working directory and environment. `added`: variables
    that the start of the interpreter has set. Returns None if nobody asks any more.
    """
    if message is None:
        return None
    control, network, log, folder, environment = descriptors
    for number in (1, 2):
        os.dup2(log, number)
    os.fchdir(folder)
    os.lseek(environment, 0, os.SEEK_SET)
    with open(environment, encoding="utf-8") as file:
        variables = json.load(file)
    os.environ.clear()
    os.environ.update(variables | added)
    for descriptor in (log, folder):
        os.close(descriptor)
    # Whoever knows the key may talk to the processes that multiprocessing starts: it is the run's own.
    multiprocessing.current_process().authkey = os.urandom(32)
    return Request(*_lowest((control, network)))


def _lowest(descriptors: tuple[int, ...]) -> list[int]:
    """Returns the descriptors under the lowest numbers, which do not depend on how they have come."""
    moved = [_moved(descriptor, _FIRST + 64) for descriptor in descriptors]
    return [_moved(descriptor, _FIRST) for descriptor in moved]


def _moved(descriptor: int, least: int) -> int:
    number = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, least)
    os.close(descriptor)
    return number


# ---- a warm interpreter ----------------------------------------------------------------------------------------------


def _serve(requests: ControlSocket, added: dict[str, str]) -> Request | None:
    """Forks a process for each request, and returns the request there. This process ends with the keeper.

    The process is forked by a child that ends at once: so it becomes the keeper's child, which waits for it. This
    process does nothing else, so that its memory is the same whatever the number of runs.
    """
    while True:
        message, descriptors = requests.receive_with()
        if message is None:
            os._exit(0)
        if message["event"] == "look":
            _tell_files(requests)
            continue
        try:
            child = os.fork()
            if child == 0:
                try:
                    if os.fork():
                        os._exit(0)
                except BlockingIOError:
                    os._exit(1)
                return _take(message, _leave_keeper(requests, descriptors), added)
            _, status = os.waitpid(child, 0)
        except BlockingIOError:  # fork(2)
            status = 1
        for descriptor in descriptors:
            os.close(descriptor)
        if status:
            requests.send("refused")


def _leave_keeper(requests: ControlSocket, descriptors: list[int]) -> list[int]:
    """Makes the process one of its own session, and tells the keeper and the launcher that it is there. Returns the
    descriptors of the run.
    """
    os.setsid()
    *own, launcher = descriptors
    with socket.socket(fileno=launcher) as end:
        process = os.pidfd_open(os.getpid())
        requests.send("forked", pid=os.getpid())
        ControlSocket(end).send_with([process], "forked", pid=os.getpid())
        os.close(process)
    return own


def _tell_files(requests: ControlSocket) -> None:
    """Tells the keeper which files and folders the imports came from. A child does it: the list takes memory."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            file = os.memfd_create("files")
            with open(os.dup(file), "w", encoding="utf-8") as text:
                json.dump(sorted(_files()), text)
            requests.send_with([file], "files")
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if status:
        requests.send("refused")


def _files() -> set[str]:
    """Returns the paths on which the imports depended: of modules, libraries and folders where modules are found."""
    found = {sys.executable, "/etc/ld.so.cache", "/etc/localtime", os.path.join(sys.prefix, "pyvenv.cfg")}
    found |= {path for path in sys.path if path}
    for module in list(sys.modules.values()):
        path = vars(module).get("__file__") if hasattr(module, "__dict__") else None
        if isinstance(path, str):
            found.add(path)
        try:
            found |= {path for path in getattr(module, "__path__", ()) if isinstance(path, str)}
        except Exception:  # a module that makes its attributes up; its file is above
            continue
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")[2]
            if path and not path.startswith("memfd:"):
                found.add(f"/{path}")
    for parent, _, names in os.walk(installed.EMU, followlinks=True):  # this package also reads its definitions
        found |= {os.path.join(parent, name) for name in names if name.endswith((".py", ".def"))}
    return {os.path.abspath(path) for path in found}
