"""Finds the warm interpreter that serves a run, and starts one if there is none.

A warm interpreter serves runs of the same user with the same interpreter, environment and process attributes: what a
process inherits from a long-lived one is then what it would have inherited from the command. Each has a socket in a
folder of the user's; its name is a hash of all that. Files are compared by the keeper (`warm_keeper`).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from emu.contract import installed, process_setup
from emu.contract.messages import ControlSocket
from phantora_async.launch import forker_process
from phantora_async.launch.forker_process import LIBRARIES

PLACE = Path("/tmp")
"""The folder of the users' folders of sockets: the same whatever TMPDIR says, so that all of them are found."""
MOST = 2
"""The most interpreters that are kept for a user. Another one takes the place of that which was used least recently."""
ASKING_S = 5.0
"""The seconds that a keeper may take to answer a question."""
_PROTOCOL = 1
_OF_NOW = re.compile(
    r"Name|State|N?S?[tT]gid|N?S?p?[pP]id|PPid|TracerPid|NSsid|NSpgid|FDSize|Kthread|Vm.*|Rss.*|HugetlbPages|CoreDumping|"
    r"Threads|SigQ|SigPnd|ShdPnd|SigCgt|.*ctxt_switches|untag_mask|Ngid"
)
"""The lines of /proc/self/status that describe the moment, or what a new program does not inherit."""
_ATTRIBUTES = (
    "attr/current",
    "cgroup",
    "coredump_filter",
    "limits",
    "loginuid",
    "oom_score_adj",
    "personality",
    "sessionid",
    "setgroups",
    "timerslack_ns",
    "uid_map",
    "gid_map",
)
"""Files in /proc/self that describe what a process passes on to its children."""
_FOLDERS = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PATH", "PYTHONHOME", "PYTHONPATH", "PYTHONUSERBASE")
"""Environment variables in which relative paths begin at the working directory."""
_KEEPER = """\
import sys
if sys.path[0] == "": del sys.path[0]
sys.path.append(sys.argv[1])
from phantora_async.launch.warm_keeper import main
main(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
"""
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Warm:
    """A warm interpreter, as its keeper describes it."""

    path: Path
    about: dict[str, Any] | None
    """The keeper's answer; None if it did not answer in time."""

    @property
    def memory_nbytes(self) -> int:
        """Returns the memory of its two processes that nobody else uses, and their share of what others use, too."""
        found = 0
        for pid in (self.about or {}).get("pids", ()):
            with contextlib.suppress(OSError, ValueError):
                for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                    if line.startswith("Pss:"):
                        found += 1024 * int(line.split()[1])
        return found

    @property
    def text(self) -> str:
        """Returns what users are told of it, in one line."""
        if self.about is None:
            return f"{self.path.name}: does not answer"
        pids = " and ".join(map(str, self.about["pids"]))
        state = (
            "imports PyTorch"
            if not self.about["imported"]
            else f"{self.about['active']} runs use it"
            if self.about["active"]
            else f"unused for {self.about['idle_s']:.0f} s"
        )
        return (
            f"processes {pids}: {self.memory_nbytes >> 20} MiB, {self.about['served']} runs, {state}, "
            f"{self.about['python']}"
        )


def folder() -> Path | None:
    """Returns the folder of this user's sockets, which it makes; None if nobody else must be able to use it, and that
    is impossible.
    """
    path = PLACE / f"phantora-warm-{os.geteuid()}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError:
        return None
    private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return path if private else None


def folder_of_session() -> Path | None:
    """Makes a folder for the sockets of one session, which removes it; None if that is impossible."""
    try:
        return Path(tempfile.mkdtemp(prefix="phantora-session-", dir=PLACE))
    except OSError:
        return None


def connect(place: Path, python: Path, environment: Mapping[str, str]) -> ControlSocket | None:
    """Returns a connection to the keeper of the interpreter that serves this run, which is started if there is none.
    None if that is impossible. `place`: the folder of sockets; `environment`: the environment of the run's
    interpreter, with `LIBRARIES` in the place of the folder of libraries.
    """
    if not hasattr(signal, "pidfd_send_signal") or not hasattr(os, "pidfd_open"):
        return None
    try:
        os.close(os.pidfd_open(os.getpid()))
        path = place / _name(python, environment)
        with _locked(place):
            found = _connected(path)
            if found is None:
                _make_room(place)
                _start(path, python, environment)
                found = _connected(path)
    except OSError:
        return None
    return found


def find() -> list[Warm]:
    """Returns the warm interpreters of this user that `--warm` has left."""
    return _ask(folder(), "about")


def stop(place: Path | None = None) -> list[Warm]:
    """Ends all warm interpreters of a folder, each with the last run that uses it. Returns those that there were.
    `place`: the folder of a session; None: that of this user.
    """
    return _ask(place or folder(), "stop")


def _ask(place: Path | None, event: str) -> list[Warm]:
    found = []
    for path in sorted(place.iterdir()) if place is not None and place.is_dir() else ():
        if path.is_socket() and (connection := _connected(path)) is not None:
            found.append(Warm(path, _answer(connection, event)))
    return found


def _answer(connection: ControlSocket, event: str) -> dict[str, Any] | None:
    try:
        connection.send(event)
        return connection.receive()
    except OSError:
        return None
    finally:
        connection.close()


@contextlib.contextmanager
def _locked(place: Path) -> Iterator[None]:
    """A context in which no other command looks for interpreters or starts one."""
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _connected(path: Path) -> ControlSocket | None:
    """Connects to a keeper; returns None if there is none, and removes what a killed one has left."""
    end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        end.settimeout(ASKING_S)
        end.connect(str(path))
        _, user, _ = _CREDENTIALS.unpack(end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        if user == os.geteuid():
            return ControlSocket(end)
    except ConnectionRefusedError:
        path.unlink(missing_ok=True)
    except OSError:
        pass
    end.close()
    return None


def _make_room(place: Path) -> None:
    """Ends the interpreters that were used least recently, if there are as many as may be."""
    sockets = sorted((path for path in place.iterdir() if path.is_socket()), key=lambda path: path.stat().st_mtime_ns)
    for path in sockets[: max(0, len(sockets) - MOST + 1)]:
        if (connection := _connected(path)) is not None:
            _answer(connection, "stop")


def _start(path: Path, python: Path, environment: Mapping[str, str]) -> None:
    """Starts a keeper and its interpreter, which outlive this command."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    variables = forker_process.in_memory(json.dumps(dict(environment)))
    try:
        listener.bind(str(path))
        listener.listen(socket.SOMAXCONN)
        # A process between this one and the keeper ends at once: this command has no child that it never waits for.
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _KEEPER,
                str(Path(__file__).parents[2]),
                str(path),
                str(listener.fileno()),
                str(variables),
                str(python),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[listener.fileno(), variables],
            start_new_session=True,
            preexec_fn=_leave,
        )
        process.wait()
    finally:
        listener.close()
        os.close(variables)


def _leave() -> None:
    if os.fork():
        os._exit(0)


# ---- what runs must have in common -----------------------------------------------------------------------------------


def _name(python: Path, environment: Mapping[str, str]) -> str:
    content = json.dumps(
        [
            _PROTOCOL,
            str(python),
            str(python.resolve()),
            str(installed.EMU),
            sorted((name, value) for name, value in environment.items() if name not in process_setup.CHANGING),
            _working_directory(environment),
            attributes(),
        ]
    )
    return hashlib.sha256(content.encode()).hexdigest()[:20]


def _working_directory(environment: Mapping[str, str]) -> str:
    """Returns the working directory if a relative path in the environment begins there."""
    for name in _FOLDERS:
        for folder in environment.get(name, "/").replace(" ", ":").split(":"):
            is_name = name == "LD_PRELOAD" and "/" not in folder  # the linker looks for it in its folders
            if not folder.startswith(("/", LIBRARIES)) and not is_name:
                return os.getcwd()
    return ""


def attributes() -> dict[str, Any]:
    """Returns what this process passes on to the programs that it starts, apart from files, environment and working
    directory.
    """
    found: dict[str, Any] = {name: _read(f"/proc/self/{name}") for name in _ATTRIBUTES}
    lines = (line.partition(":") for line in _read("/proc/self/status").splitlines())
    found["status"] = {name: value.strip() for name, _, value in lines if not _OF_NOW.fullmatch(name)}
    with contextlib.suppress(OSError):
        found["namespaces"] = {name: os.readlink(f"/proc/self/ns/{name}") for name in os.listdir("/proc/self/ns")}
    root = os.stat("/")
    found["root"] = root.st_dev, root.st_ino
    found["schedule"] = os.sched_getscheduler(0), os.sched_getparam(0).sched_priority, os.nice(0)
    found["io"] = [*psutil.Process().ionice()]
    found["machine"] = [*os.uname()]
    return found


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="surrogateescape")
    except OSError:
        return ""
