"""An emulated rank: a process that runs the user's script as `torchrun` would have started it.

It is forked, not executed. So it does itself what a fresh interpreter does at its start and its end: descriptors,
environment, waiting for threads, exit handlers (`script` runs the script in between). The interpreter is not
finalised: that would write to every memory page that ranks share.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

from ..clock import timeouts
from ..contract import isolation
from ..contract.definitions.thread_names import RANK
from ..contract.job import Job, RunPlace, Seat, torchrun_environment
from ..contract.policies.loading_policy import SlowLoader
from ..contract.records import ExitKind
from ..interpreter import own_work, seeds, stack_dump, tensor_work
from ..private.changes import changes
from . import inputs, processes, program, script, unused_gpu
from .early_end import StepLimit, flush_files
from .prepare import Prepared

OF_RANK = "PHANTORA_RANK"
"""Environment variable of ranks: a child of a rank that inherits RANK is not that rank."""
_PROCESSES = (1 << 16) - 1
"""The most processes of one rank that can be told apart. 0 is the process that the server has forked as a rank."""
FLIGHT_RECORDS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
"""Environment variables that say where PyTorch's Flight Recorder writes what its watchdog found: the beginning of a
file's name.
"""

_exit = os._exit


def main(job: Job, seat: Seat, prepared: Prepared, server: int) -> NoReturn:
    """Runs the rank's process; never returns to the server's code. `server`: the server's process id."""
    code: int = ExitKind.INTERNAL
    try:
        processes.die_with_parent(server)
        _set_up_process(job, seat)
        leave_folders(prepared)
        place_folder_of_multiprocessing(job)
        connection = Connection(prepared)
        connection.open(job, seat)
        inputs.program_begins()
        explains = (lambda error: None) if prepared.folded is None else prepared.folded.explains
        end = script.run(program.of(job), explains)
        code = end.code
        end_interpreter()
        connection.close(end)
    except BaseException:
        traceback.print_exc()  # an error of ours: the server reports the exit code, the launcher shows this log
    finally:
        leave(code)


def leave(code: int) -> NoReturn:
    """Ends this process without finalising the interpreter."""
    for file in (sys.stdout, sys.stderr):
        script.flush(file)
    _exit(code)


class ProcessGroups:
    """Notes whether this process has been in a process group of torch.distributed's."""

    def __init__(self) -> None:
        self._seen = False

    def look(self) -> bool:
        """Looks for groups, and tells whether there have been any. To be called when steps end and at the rank's end:
        groups may have been destroyed by then.
        """
        import torch

        if not self._seen:
            self._seen = bool(torch.distributed.is_available() and torch.distributed.is_initialized())
        return self._seen


class Connection:
    """A process's connection to the coordinator: with it the process is a rank. It is closed once, also if the script
    calls `os._exit`.
    """

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._pid = 0
        self._open = False
        self._groups: ProcessGroups | None = None

    def open(self, job: Job, seat: Seat, process: int = 0, parent: int | None = None) -> None:
        """Opens the connection: the process's GPU work and its time are simulated from now on. `process` tells the
        processes of one rank apart; `parent`: the rank that has started it, if it is not a rank from its start.
        """
        self._connect(job, seat, process, parent)
        self._install(job, seat)
        self._prepared.hook.join_in_child(lambda device: self._open_in_child(job, seat, device))

    def _open_in_child(self, job: Job, parent: Seat, device: int) -> None:
        """Opens the connection in a process that a rank has forked, which inherits what was installed: it uses this GPU
        of its server.
        """
        seat = gpu_seat(job, parent.server, device)
        if seat is not None:
            os.environ[OF_RANK] = str(seat.rank)
            name_process(seat.rank)
            self._connect(job, seat, process_number(), parent.rank)
            self._prepared.clock.start(job.epoch_s)
            self._prepared.ranges.start(self._prepared.clock.epoch_ns)

    def _connect(self, job: Job, seat: Seat, process: int, parent: int | None) -> None:
        prepared = self._prepared
        if prepared.folded is not None:
            prepared.folded.rank = seat.rank
        stack_dump.register(prepared.hook, isolation.ranks_folder(job.runtime_dir), seat.rank)
        prepared.hook.start(
            job.socket,
            job.cost_table,
            rank=seat.rank,
            world_size=job.world_size,
            server=seat.server,
            local_rank=seat.local_rank,
            process=process,
            parent=parent,
        )
        self._pid = os.getpid()
        self._open = True

    def _install(self, job: Job, seat: Seat) -> None:
        prepared = self._prepared
        first = job.first_rank(seat.server)
        for rank, from_ns, until_ns in job.dead_gpus:
            if first <= rank < first + job.servers[seat.server]:
                prepared.hook.gpu_dies(rank - first, from_ns, until_ns)
        if job.mortal:
            prepared.hook.mortal()
            timeouts.exact_for_nccl()
            for name in FLIGHT_RECORDS:
                os.environ.setdefault(name, f"{job.run_dir}/nccl_trace_rank_")
        if os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0":
            # What a rank has written when another one fails, such as a checkpoint, outlives the restart.
            prepared.hook.keep_in_step()
        prepared.hook.at_stop(self._stop)
        # The script may end by C's exit, by os._exit or by another program in its place, and the run may end before it:
        # in each case the rank's last records must leave first.
        prepared.hook.at_exit(self._exit_of_c)
        os._exit = self._exit_at_once
        os.execv, os.execve = self._flushing_before(os.execv), self._flushing_before(os.execve)
        changes.tell_with(lambda text: prepared.hook.warn_once(text, text))
        prepared.clock.start(job.epoch_s)
        prepared.peaks.install()
        prepared.holders.install()
        prepared.reads.start(seat.rank)
        prepared.computed.responses.rank, prepared.computed.responses.is_rank = seat.rank, True
        slow = [SlowLoader(*one) for one in job.slow_loaders if one[0] == seat.rank]
        prepared.loading.start(Fraction(job.cpus, job.servers[seat.server]), slow)
        log = Path(job.run_dir, f"rank{seat.rank}.log")
        # Frameworks print rates on the first or the last rank: the report finds them between the ends of steps.
        if seat.rank in (0, job.world_size - 1) and _is_stdout(log):
            prepared.hook.at_step(lambda: prepared.hook.logged(os.fstat(1).st_size))
        groups = ProcessGroups()
        self._groups = groups
        limit = StepLimit(prepared.hook, job.steps, self._last_words)

        # The limit comes first: after the last step it sends the rank's last words itself and does not return.
        def step_ends() -> None:
            limit.step_ends()
            prepared.peaks.report_step(prepared.hook)
            prepared.holders.step_ends()
            prepared.modules.step_ends()
            prepared.loading.loads.step_ends()
            groups.look()

        prepared.hook.at_step(step_ends)
        if job.mortal:
            prepared.clock.keep_up()
            prepared.hook.at_step(prepared.clock.keep_up)
        prepared.ranges.start(prepared.clock.epoch_ns)
        tensor_work.find(prepared.hook)
        # The emulation's own work is measured with ranges on, as the script will run.
        if prepared.hook.measures_host():
            own_work.tell(prepared.hook, prepared.ranges)

    def close(self, end: script.ScriptEnd) -> None:
        """Sends the rank's last records. Does nothing in child processes of the rank, and the second time."""
        if self._open and self._pid == os.getpid():
            self._open = False
            self._prepared.clock.stop()
            self._last_words()
            self._prepared.hook.finish(end.code, end.last_words)

    def _last_words(self) -> None:
        """Sends the records of the whole run that the report needs."""
        import torch

        self._prepared.peaks.report(self._prepared.hook)
        self._prepared.holders.report()
        self._prepared.modules.report()
        self._prepared.computed.routing.loads.report()
        self._prepared.computed.sizes.report()
        self._prepared.computed.responses.report()
        self._prepared.reads.report()
        self._prepared.loading.loads.report()
        self._prepared.hook.report_kept()
        if self._groups is not None and not self._groups.look():
            self._prepared.hook.alone()
        if not torch.cuda.is_initialized():
            self._prepared.hook.unused_gpu(list(unused_gpu.causes(sys.argv[1:], os.environ, sys.modules)))

    def _stop(self) -> None:
        """Ends the process, as the run ends now."""
        try:
            flush_files()
            self.close(script.ScriptEnd(0))
        finally:
            leave(0)

    def _exit_of_c(self, code: int) -> None:
        self.close(script.ScriptEnd(code, "the program has called C's exit" if code else ""))

    def _flushing_before(self, execute: Callable[..., NoReturn]) -> Callable[..., NoReturn]:
        """Wraps `os.exec...`: another program takes over the process, and what it was to send would be lost."""

        def flush_and_execute(*arguments: Any) -> NoReturn:
            if self._open and self._pid == os.getpid():
                self._prepared.hook.flush()
            execute(*arguments)

        return flush_and_execute

    def _exit_at_once(self, status: int) -> NoReturn:
        """Ends the process in the place of `os._exit`, which worker processes call too. Linux keeps the code's last
        eight bits.
        """
        self.close(script.ScriptEnd(status & 0xFF))
        _exit(status)


def gpu_seat(job: RunPlace, server: int, device: int) -> Seat | None:
    """Returns the rank of a server's GPU; None if the server has no such GPU."""
    if device >= job.servers[server]:
        return None
    return Seat(rank=job.first_rank(server) + device, local_rank=device, server=server)


def process_number() -> int:
    """Returns the number of this process, which is not its rank's first one."""
    return 1 + os.getpid() % _PROCESSES


def default_signals() -> None:
    """Sets the signals' handlers as in a new interpreter."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def write_to_log(path: str) -> None:
    """Lets the process write to this log.

    sys.stdout and stderr stay: the launcher starts the forker unbuffered (as torchrun its workers), so they hold
    nothing.
    """
    null = os.open(os.devnull, os.O_RDONLY)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(log)


def _is_stdout(log: Path) -> bool:
    """Tells whether the process prints to this file. A launcher may read its ranks' output and print it itself."""
    try:
        return os.path.samestat(log.stat(), os.fstat(1))
    except OSError:  # the log is not to be seen from here, or the program has closed its output
        return False


def _set_up_process(job: RunPlace, seat: Seat) -> None:
    """Sets up signals, standard streams, environment, seeds and name of a new process."""
    default_signals()
    write_to_log(f"{job.run_dir}/rank{seat.rank}.log")
    os.environ.update(torchrun_environment(job, seat))
    os.environ[OF_RANK] = str(seat.rank)
    seeds.seed()
    name_process(seat.rank)


def name_process(rank: int) -> None:
    Path("/proc/self/comm").write_text(f"{RANK}{rank}")


def leave_folders(prepared: Prepared) -> None:
    """Leaves temporary folders that modules made in the forker in place: they are there for all ranks, so the end of
    one must not remove them.
    """
    for folder, finalizer in prepared.folders.items():
        finalizer.detach()
        atexit.unregister(folder.cleanup)


def place_folder_of_multiprocessing(job: RunPlace) -> None:
    """Places the folder that multiprocessing makes for its sockets where it is removed with the run's own: a process
    that is killed cannot remove it. Processes that multiprocessing starts have their parent's folder.
    """
    names = changes.usable("multiprocessing's folder")
    config = getattr(names.get("_current_process"), "_config", None) if names is not None else None
    if isinstance(config, dict) and "tempdir" not in config:
        config["tempdir"] = tempfile.mkdtemp(prefix="pymp-", dir=isolation.ranks_folder(job.runtime_dir))


def end_interpreter() -> None:
    """Does what the interpreter does after the script: waits for its threads, runs exit handlers."""
    waiting, handlers = changes.usable("waiting for threads"), changes.usable("exit handlers")
    try:
        if waiting is not None:
            waiting.get("threading._shutdown")()
    except BaseException as error:
        script.print_traceback(error)
    if handlers is not None:
        handlers.get("_run_exitfuncs")()
