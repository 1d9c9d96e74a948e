"""An emulated GPU server: starts its ranks or the user's launcher, forks interpreters for those who ask, reports how
each rank ended, and ends with the last.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import select
import signal
import socket
import struct
import sys
import traceback
from dataclasses import dataclass, field
from typing import NoReturn

from ..contract.job import Job, Seat
from ..contract.messages import ControlSocket
from ..contract.process_setup import NO_PROCESS, NO_PROCESS_HINT, adopt_orphans, spare_file
from ..contract.records import ExitKind
from ..interpreter import real_time
from ..servers import system_calls
from . import inputs, launching, processes, rank, warm_children
from .prepare import Prepared

_CREDENTIALS = struct.Struct("3i")
"""The layout of struct ucred: process id, user id, group id."""
HANDLED = (signal.SIGCHLD, signal.SIGTERM)
"""Signals that the server does not leave to their defaults."""
NO_FILES = (errno.EMFILE, errno.ENFILE)
"""Errors for which a process that a rank wants to start is refused, while the run goes on."""


def main(
    job: Job, index: int, prepared: Prepared, control: ControlSocket, orders: ControlSocket, forker: int
) -> NoReturn:
    """Runs the server's process; never returns to the forker's code. It reports on `control` and is told on `orders`.
    `forker`: the forker's process id, 0 if it is in another pid namespace.
    """
    code: int = ExitKind.INTERNAL
    try:
        processes.die_with_parent(forker)
        adopt_orphans()
        # What it took to get here depends on where the run's folders are. When ranks collect garbage must not.
        gc.collect(0)
        server = _Server(job, index, prepared, control, orders)
        if job.launcher:
            server.start_command()
        else:
            server.fork_ranks()
        server.wait()
        code = 0
    except BrokenPipeError:
        code = 1  # the launcher has gone; the forker is about to kill this process
    except BlockingIOError:  # fork(2)
        control.send("failed", message=NO_PROCESS, hint=NO_PROCESS_HINT)
    except BaseException:
        traceback.print_exc()
    finally:
        processes.kill_descendants()
        sys.stderr.flush()
        os._exit(code)


@dataclass(slots=True)
class _Child:
    """A process that may become a rank."""

    pid: int
    stub: socket.socket | None
    """The connection to the stub that waits for the process; None: the process is the user's launcher."""
    joined: socket.socket
    """The socket on which the process says which rank it has become."""
    given_rank: bool = False
    """True if a launcher has told the process which rank it is."""
    signalled: bool = field(default=False, init=False)
    """True if the process that started it has sent it a signal."""

    def dismissed(self, ended: processes.Ended) -> bool:
        """Tells whether the process that started it ended it, as `multiprocessing.Pool` ends its workers. A launcher
        that ends a rank to which it has given a number will start all ranks again, or end.
        """
        return self.signalled and bool(ended.signal) and not self.given_rank


class _Server:
    def __init__(self, job: Job, index: int, prepared: Prepared, control: ControlSocket, orders: ControlSocket) -> None:
        self._job = job
        self._index = index
        self._prepared = prepared
        self._control = control
        self._orders = orders
        self._ranks: dict[int, Seat] = {}
        """The ranks that have not ended, by process id."""
        self._command = 0
        """The process id of the user's launcher."""
        self._command_ended: processes.Ended | None = None
        self._children: dict[int, _Child] = {}
        """The processes that may become ranks, by process id."""
        self._forked = 0
        first = job.first_rank(index)
        self._unused = set(range(first, first + job.servers[index])) if job.launcher else set()
        """The ranks that no process has become."""
        self._of_others: set[int] = set()
        """Ranks that children of the forked processes have become: their parents see how they end."""
        self._ended_well: dict[int, Seat] = {}
        """The ranks whose end is reported when the user's launcher has ended, which may start them again; by rank."""
        self._untold: dict[int, tuple[_Child, processes.Ended]] = {}
        """Processes that have failed, and of whose end their stub is not told yet; by rank."""
        self._deadline_s: float | None = None
        self._signals: set[int] = set()
        self._wakeup, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for number in HANDLED:
            signal.signal(number, lambda number, _: self._signals.add(number))
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        self._listener = launching.listen(job, index)
        self._spare = spare_file()
        """A file to close when no other one can be opened."""
        self._poll = select.poll()
        self._poll.register(self._wakeup, select.POLLIN)
        self._poll.register(self._listener, select.POLLIN)
        self._poll.register(self._orders.fileno(), select.POLLIN)

    # ---- starting --------------------------------------------------------------------------------------------------

    def fork_ranks(self) -> None:
        job, index = self._job, self._index
        first = job.first_rank(index)
        launching.offer_interpreter(job, index)
        for rank_number in job.ranks_of(index):
            seat = Seat(rank=rank_number, local_rank=rank_number - first, server=index)
            parent, pid = os.getpid(), processes.fork(HANDLED)
            if pid == 0:
                self._leave()
                rank.main(job, seat, self._prepared, parent)
            self._ranks[pid] = seat
            self._control.send("started", rank=seat.rank, server=index, pid=pid)

    def start_command(self) -> None:
        """Starts the user's launcher, once on each server."""
        launching.offer_interpreter(self._job, self._index)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._command = processes.fork(HANDLED)
        if self._command == 0:
            self._leave()
            ours.close()
            launching.run_command(self._job, self._index, self._prepared, theirs.detach())
        theirs.close()
        self._add(_Child(self._command, None, ours))

    def _leave(self) -> None:
        """Closes what belongs to the server, in a forked process, which is not the server any more."""
        system_calls.share_memory()
        signal.set_wakeup_fd(-1)
        self._control.close()
        self._orders.close()
        self._listener.close()
        os.close(self._spare)
        os.close(self._wakeup)
        os.close(self._wake)
        for child in self._children.values():
            child.joined.close()
            if child.stub is not None:
                child.stub.close()

    # ---- running ---------------------------------------------------------------------------------------------------

    def wait(self) -> None:
        """Waits until no rank is left and the user's launcher has ended. Passes SIGTERM on; what stays gets SIGKILL
        after the grace time.
        """
        while self._ranks or (self._command and self._command_ended is None):
            left_ms = None
            if self._deadline_s is not None:
                left_ms = max(0.0, self._deadline_s - real_time.monotonic()) * 1000
            ready = self._poll.poll(left_ms)
            for descriptor, _ in ready:
                self._serve(descriptor)
            if signal.SIGTERM in self._signals and self._deadline_s is None:
                self._deadline_s = real_time.monotonic() + self._job.grace_s
                self._kill(signal.SIGTERM)
            elif not ready and self._deadline_s is not None:
                self._kill(signal.SIGKILL)
                self._deadline_s = None
                self._signals.clear()
            for ended in processes.reap():
                self._ended(ended)
        self._report_rest()

    def _serve(self, descriptor: int) -> None:
        if descriptor == self._wakeup:
            os.read(self._wakeup, 4096)
        elif descriptor == self._listener.fileno():
            self._take_in()
        elif descriptor == self._orders.fileno():
            self._obey()
        else:
            for child in list(self._children.values()):
                if child.stub is not None and descriptor == child.stub.fileno():
                    self._pass_signal(child, child.stub)
                elif descriptor == child.joined.fileno():
                    self._note_rank(child)

    def _take_in(self) -> None:
        try:
            stub, _ = self._listener.accept()
        except OSError as error:
            if error.errno not in NO_FILES:
                raise
            os.close(self._spare)
            stub, _ = self._listener.accept()
            warm_children.answer_no_files(stub)
            stub.close()
            self._spare = spare_file()
        else:
            self._fork_for(stub)

    def _fork_for(self, stub: socket.socket) -> None:
        asking = _peer(stub)
        if not asking:  # it is in another pid namespace: a process of another server
            stub.close()
            return
        request = warm_children.receive(stub)
        if request is None:
            stub.close()
            return
        what = request.program()
        if what is None:
            inputs.other_program_starts(request.environment[warm_children.PYTHON])
            warm_children.answer_not_taken(stub)
            request.close()
            stub.close()
            return
        self._forked += 1
        # A rank that executes Python in its place is the stub now, and stays a rank.
        seat = self._ranks.get(asking) or request.seat(self._job, self._index)
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            if error.errno not in NO_FILES:
                raise
            warm_children.answer_no_files(stub)
            request.close()
            stub.close()
            return
        pid = processes.fork(HANDLED)
        if pid == 0:
            self._leave()
            stub.close()
            ours.close()
            warm_children.main(self._job, self._index, self._prepared, request, what, seat, self._forked, theirs)
        theirs.close()
        request.close()
        warm_children.answer_forked(stub, pid)
        self._add(_Child(pid, stub, ours, given_rank=seat is not None))
        self._expect(request)

    def _add(self, child: _Child) -> None:
        self._children[child.pid] = child
        self._poll.register(child.joined, select.POLLIN)
        if child.stub is not None:
            self._poll.register(child.stub, select.POLLIN)

    def _expect(self, request: warm_children.Request) -> None:
        """Notes how many processes a launcher starts. If these are fewer than there are GPUs, the others have no
        rank."""
        expected = request.environment.get("LOCAL_WORLD_SIZE", "")
        if request.seat(self._job, self._index) is not None and expected.isdigit():
            first = self._job.first_rank(self._index)
            gpus = warm_children.visible_gpus(request.environment) or list(range(int(expected)))
            if len(gpus) < int(expected):
                return  # each of its processes sees other GPUs
            used = {first + gpu for gpu in gpus[: int(expected)]}
            for number in sorted(self._unused - used):
                self._unused.discard(number)
                self._report(Seat(number, number - first, self._index), 0, 0)

    def _pass_signal(self, child: _Child, stub: socket.socket) -> None:
        """Passes a stub's signal on to the process; if the stub was killed, the process is killed too."""
        try:
            numbers = stub.recv(64)
        except OSError:
            numbers = b""
        if not numbers:
            self._poll.unregister(stub)
        for rank_number, (held, _) in self._untold.items():
            if held is child:  # it has ended already: whoever waits for its end is told now
                self._finish(*self._untold.pop(rank_number))
                return
        child.signalled = True
        for number in numbers or (signal.SIGKILL,):
            os.kill(child.pid, number)

    def _note_rank(self, child: _Child) -> None:
        said = child.joined.recv(64)
        if not said:
            self._poll.unregister(child.joined)
            return
        number, pid = map(int, said.split())
        self._unused.discard(number)
        self._ended_well.pop(number, None)
        if pid != child.pid:
            self._of_others.add(number)
        elif number not in (seat.rank for seat in self._ranks.values()):
            first = self._job.first_rank(self._index)
            self._ranks[child.pid] = Seat(rank=number, local_rank=number - first, server=self._index)
            self._control.send("started", rank=number, server=self._index, pid=child.pid)

    # ---- ending ----------------------------------------------------------------------------------------------------

    def _ended(self, ended: processes.Ended) -> None:
        child = self._children.get(ended.pid)
        if child is not None:
            self._note_last_words(child)
        seat = self._ranks.pop(ended.pid, None)
        if seat is not None:
            if self._command and not (ended.code or ended.signal):
                self._ended_well[seat.rank] = seat
            elif self._command and child is not None and child.dismissed(ended):
                self._ended_well[seat.rank] = seat
                self._tell_memory(seat)
                self._control.send("dismissed", rank=seat.rank, signal=ended.signal)
            else:
                # A launcher that hears of the end may end the other ranks and start all of them again. It hears of it
                # when virtual time is there.
                untold = bool(self._command) and child is not None and child.stub is not None and not child.signalled
                self._report(seat, ended.code, ended.signal, untold)
                if child is not None and untold:
                    self._untold[seat.rank] = child, ended
                    return
        if child is not None:
            self._finish(child, ended)
        if ended.pid == self._command:
            self._command_ended = ended
            if ended.code or ended.signal:
                self._report_command(ended)  # at once: processes that it has started may go on

    def _note_last_words(self, child: _Child) -> None:
        """Notes which rank the process is, if it became one just before its end."""
        child.joined.setblocking(False)
        with contextlib.suppress(BlockingIOError, KeyError):
            self._note_rank(child)

    def _obey(self) -> None:
        message = self._orders.receive()
        if message is None:
            self._poll.unregister(self._orders.fileno())  # the forker has ended
            return
        rank = message["rank"]
        if message["event"] == "ask_memory":
            local_rank = rank - self._job.first_rank(self._index)
            memory = self._prepared.hook.memory_at_end(self._index, local_rank)
            self._control.send("took", rank=rank, memory=memory)
        elif (told := self._untold.pop(rank, None)) is not None:
            self._finish(*told)

    def _finish(self, child: _Child, ended: processes.Ended) -> None:
        for end in filter(None, (child.stub, child.joined)):
            with contextlib.suppress(KeyError):
                self._poll.unregister(end)
        if child.stub is not None:
            warm_children.answer_end(child.stub, ended)
            child.stub.close()
        child.joined.close()
        del self._children[child.pid]

    def _tell_memory(self, seat: Seat) -> None:
        """Reports the memory that a process had allocated, if it could not report it at its end."""
        memory = self._prepared.hook.memory_at_end(seat.server, seat.local_rank)
        if memory:
            self._control.send("took", rank=seat.rank, memory=memory)

    def _report(self, seat: Seat, code: int, number: int, untold: bool = False) -> None:
        if code or number:
            self._tell_memory(seat)
        self._control.send("exited", rank=seat.rank, server=seat.server, code=code, signal=number, untold=untold)

    def _report_command(self, ended: processes.Ended) -> None:
        self._control.send("command_ended", server=self._index, code=ended.code, signal=ended.signal)

    def _report_rest(self) -> None:
        """Reports the ranks that ended well, and those that no process became. Called when the user's launcher has
        ended.
        """
        ended = self._command_ended
        if ended is None or ended.code or ended.signal:
            return
        self._report_command(ended)
        first = self._job.first_rank(self._index)
        for seat in self._ended_well.values():
            self._report(seat, 0, 0)
        for number in sorted(self._unused | self._of_others):
            self._report(Seat(number, number - first, self._index), 0, 0)

    def _kill(self, number: signal.Signals) -> None:
        for pid in (*self._ranks, *([self._command] if self._command and self._command_ended is None else [])):
            os.kill(pid, number)


def _peer(end: socket.socket) -> int:
    """Returns the process id of the other side."""
    credentials = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[0])
