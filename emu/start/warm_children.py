"""Programs of a server that start Python: the server forks its warm interpreter for them.

A program finds `emu/stub/python.c` where it looks for Python. The stub sends a request, waits, and ends as the forked
process ends. Such a process has torch and the emulated GPUs. It is a rank from its start if a launcher has given it a
rank (RANK, LOCAL_RANK and WORLD_SIZE), else from the moment at which it first uses a GPU: then it is that GPU's rank.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import socket
import struct
import sys
import traceback
from collections.abc import Mapping, Set
from dataclasses import dataclass
from enum import IntEnum
from typing import NoReturn

from .. import smi
from ..contract.job import Job, RunPlace, Seat
from ..contract.records import ExitKind
from ..interpreter import seeds
from . import chosen_gpu, inputs, processes, program, rank, script, streams
from .prepare import Prepared

PYTHON = "PHANTORA_PYTHON"
"""Environment variable: the path of the real interpreter."""
_NUMBER = struct.Struct("I")
_ANSWER = struct.Struct("II")
_MAX_DESCRIPTORS = 253
PATIENCE_S = 30.0
"""The seconds that a stub may take to say what it wants, which it does at once."""
MOST_NBYTES = 1 << 26


class _Answer(IntEnum):
    NOT_TAKEN = 0
    EXITED = 1
    KILLED = 2
    FORKED = 3
    NO_FILES = 4
    """The server cannot open as many files as its children need."""


@dataclass(frozen=True, slots=True)
class Request:
    """The request of a stub."""

    descriptors: Mapping[int, int]
    """For each descriptor: its number in the stub, and its number here."""
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    folder: str

    def program(self) -> program.Program | None:
        """Returns the program to run; None if the real interpreter has to run it."""
        name = os.path.basename(self.arguments[0])
        if name.startswith("python"):
            return program.parse(self.arguments[1:])
        if name == smi.PROGRAM:
            return program.Program(program.ProgramKind.MODULE, smi.__name__, self.arguments[1:])
        path = program.installed_beside(self.environment[PYTHON], name)
        return program.Program(program.ProgramKind.FILE, path, self.arguments[1:]) if path else None

    def seat(self, job: RunPlace, server: int) -> Seat | None:
        """Returns the rank that a launcher has given the process; None if it has not, or if the process only asks for
        the GPUs, before or beside the rank.
        """
        if os.path.basename(self.arguments[0]) == smi.PROGRAM:
            return None
        return seat_of(job, server, self.environment)

    def close(self) -> None:
        for descriptor in self.descriptors.values():
            os.close(descriptor)


def seat_of(job: RunPlace, server: int, environment: Mapping[str, str]) -> Seat | None:
    """Returns the rank that a launcher's variables name; None if they name none."""
    local = environment.get("LOCAL_RANK", "")
    given = all(environment.get(name, "").isdigit() for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    if not given or rank.OF_RANK in environment:
        return None
    gpus = visible_gpus(environment)
    return rank.gpu_seat(job, server, int(local) if gpus is None or int(local) >= len(gpus) else gpus[int(local)])


def visible_gpus(environment: Mapping[str, str]) -> list[int] | None:
    """Returns the GPUs that CUDA_VISIBLE_DEVICES numbers; None if it is not set, or names GPUs in another way."""
    given = [part.strip() for part in environment.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    return [int(part) for part in given] if all(part.isdigit() for part in given) else None


def receive(connection: socket.socket) -> Request | None:
    """Returns the request of a stub that has connected; None if it ended meanwhile, or is no stub: the server waits for
    it.
    """
    descriptors: list[int] = []
    connection.settimeout(PATIENCE_S)
    try:
        head, descriptors, flags, _ = socket.recv_fds(connection, _NUMBER.size, _MAX_DESCRIPTORS)
        if flags & socket.MSG_CTRUNC:
            answer_no_files(connection)
            raise ValueError("its descriptors have not come")
        left = _NUMBER.unpack(head)[0]
        if left > MOST_NBYTES:
            raise ValueError("longer than arguments and environment can be")
        parts = []
        while left:
            part = connection.recv(min(left, 1 << 20))
            if not part:
                raise ValueError("it ends too early")
            parts.append(part)
            left -= len(part)
        request = _decode(b"".join(parts), list(descriptors))
        connection.settimeout(None)
        return request
    except (OSError, struct.error, ValueError):
        for descriptor in descriptors:
            os.close(descriptor)
        return None


def _decode(data: bytes, descriptors: list[int]) -> Request:
    at = 0

    def number() -> int:
        nonlocal at
        at += _NUMBER.size
        return int(_NUMBER.unpack_from(data, at - _NUMBER.size)[0])

    def texts() -> list[str]:
        nonlocal at
        found = []
        for _ in range(number()):
            end = data.index(b"\0", at)
            found.append(os.fsdecode(data[at:end]))
            at = end + 1
        return found

    numbers = [number() for _ in range(number())]
    arguments, environment, (folder,) = texts(), texts(), texts()
    pairs = (text.partition("=") for text in environment)
    return Request(
        dict(zip(numbers, descriptors, strict=True)),
        tuple(arguments),
        {name: value for name, equals, value in pairs if equals},
        folder,
    )


def answer_not_taken(connection: socket.socket) -> None:
    _send(connection, _Answer.NOT_TAKEN, 0)


def answer_no_files(connection: socket.socket) -> None:
    """Answers that there are no files. Whatever the stub says besides is not read."""
    _send(connection, _Answer.NO_FILES, 0)


def answer_forked(connection: socket.socket, pid: int) -> None:
    _send(connection, _Answer.FORKED, pid)


def answer_end(connection: socket.socket, ended: processes.Ended) -> None:
    if ended.signal:
        _send(connection, _Answer.KILLED, ended.signal)
    else:
        _send(connection, _Answer.EXITED, ended.code)


def _send(connection: socket.socket, kind: _Answer, value: int) -> None:
    with contextlib.suppress(OSError):  # the stub was killed
        connection.send(_ANSWER.pack(kind, value), socket.MSG_NOSIGNAL)


# ---- in the forked process -------------------------------------------------------------------------------------------


def main(
    job: Job,
    server: int,
    prepared: Prepared,
    request: Request,
    what: program.Program,
    seat: Seat | None,
    number: int,
    joined: socket.socket,
) -> NoReturn:
    """Runs the process; never returns to the server's code. `number` tells it from the server's other processes; on
    `joined` it tells the server which rank it has become.
    """
    try:
        joined_at = _take_descriptors(request.descriptors, joined.detach())
        closed = frozenset(range(3)) - request.descriptors.keys()
        os.chdir(request.folder)
        os.environ.clear()
        os.environ.update(request.environment)
        _find_packages(request.environment)
    except BaseException:
        traceback.print_exc()
        rank.leave(ExitKind.INTERNAL)
    run(job, server, prepared, what, seat, number, joined_at, closed)


def run(
    job: Job,
    server: int,
    prepared: Prepared,
    what: program.Program,
    seat: Seat | None,
    number: int,
    joined: int,
    closed: Set[int] = frozenset(),
) -> NoReturn:
    """Runs a Python program in this process, to its end. `seat`: the rank that it is from its start; `closed`: the
    standard descriptors that whoever started it had closed.
    """
    code: int = ExitKind.INTERNAL
    try:
        processes.die_with_parent(os.getppid())
        rank.default_signals()
        os.setpgid(0, 0)
        # All ranks draw the same numbers; a process that is not a rank from its start has a seed of its own.
        seeds.seed(0 if seat is not None else 1 + number)
        rank.leave_folders(prepared)
        rank.place_folder_of_multiprocessing(job)
        _make_streams(job, server, what, closed)
        connection = rank.Connection(prepared)
        join = _Join(job, server, connection, joined)
        if seat is not None:
            join(seat)
        else:
            prepared.hook.join_later(server, join.by_device)
            chosen_gpu.install(prepared.hook.use_gpu)
        inputs.program_begins()
        end = script.run(what)
        rank.end_interpreter()
        if not streams.flush_at_end():
            end = dataclasses.replace(end, code=streams.FAILED_TO_FLUSH)
        code = end.code
        connection.close(end)
    except BaseException:
        traceback.print_exc()  # an error of ours
    finally:
        rank.leave(code)


def _make_streams(job: RunPlace, server: int, what: program.Program, closed: Set[int]) -> None:
    """Makes the streams. A log of the run stands for the terminal of a user who watches it: what is printed is there at
    once.
    """
    logs = [f"{job.run_dir}/server{server}.log", *(f"{job.run_dir}/rank{one}.log" for one in job.ranks_of(server))]
    watched = [number for number in (1, 2) if streams.same_file(number, logs)]
    try:
        streams.make(what.options, os.environ, closed, watched)
    except streams.NoSuchEncoding as error:
        os.write(2, f"Fatal Python error: cannot initialize the standard streams: {error}\n".encode())
        os._exit(1)


class _Join:
    """Makes this process a rank."""

    def __init__(self, job: Job, server: int, connection: rank.Connection, joined: int) -> None:
        self._job = job
        self._server = server
        self._connection = connection
        self._joined = joined

    def __call__(self, seat: Seat, parent: int | None = None) -> None:
        os.write(self._joined, b"%d %d" % (seat.rank, os.getpid()))
        os.environ[rank.OF_RANK] = str(seat.rank)
        rank.name_process(seat.rank)
        self._connection.open(self._job, seat, process=rank.process_number(), parent=parent)

    def by_device(self, device: int) -> None:
        """Makes the process the rank of this GPU of its server."""
        seat = rank.gpu_seat(self._job, self._server, device)
        parent = os.environ.get(rank.OF_RANK, "")
        if seat is not None:
            self(seat, int(parent) if parent.isdigit() and int(parent) < self._job.world_size else None)


def _take_descriptors(given: Mapping[int, int], own: int) -> int:
    """Leaves open the stub's descriptors, by their numbers, and our `own`, whose new number it returns. In the place
    of a standard one that the stub lacks is /dev/null, so that no other file gets its number.
    """
    above = max([2, *given]) + 1
    moved = {number: fcntl.fcntl(here, fcntl.F_DUPFD_CLOEXEC, above) for number, here in given.items()}
    kept = fcntl.fcntl(own, fcntl.F_DUPFD_CLOEXEC, max([above, *moved.values()]) + 1)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number in range(3):
        os.dup2(null, number)
    for number, here in moved.items():
        os.dup2(here, number)
    processes.close_others({0, 1, 2, *given, kept})
    return kept


def _find_packages(environment: Mapping[str, str]) -> None:
    """Adds the folders of PYTHONPATH that the forker did not have to the places where modules are looked for."""
    folders = [folder for folder in environment.get("PYTHONPATH", "").split(os.pathsep) if folder]
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]
