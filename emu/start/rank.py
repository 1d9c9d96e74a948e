"""An emulated rank: a process that runs the user's script as `torchrun` would have started it.

It is forked, not executed, so what a fresh interpreter does at its start and end is done here: descriptors,
environment, `__main__`, the traceback of an uncaught exception, threads awaited and exit handlers run. The
interpreter itself is not torn down: that would write to every page that all ranks share.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.machinery
import os
import runpy
import signal
import sys
import threading
import traceback
import types
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ..contract.job import Job, Seat, torchrun_environment
from ..contract.records import ExitKind
from ..interpreter import memory, seeds, stacks
from ..interpreter.script import is_ours, is_the_user_s
from . import processes

if TYPE_CHECKING:
    from .forker import Warm

_exit = os._exit


def main(job: Job, seat: Seat, warmed: Warm, server: int) -> NoReturn:
    """The rank's process; never returns to the server's code."""
    code: int = ExitKind.INTERNAL
    try:
        processes.die_with_parent(server)
        _set_up_process(job, seat)
        stacks.register(job.runtime_dir, seat.rank)
        warmed.hook.start(
            job.socket,
            job.cost_table,
            rank=seat.rank,
            world_size=job.world_size,
            server=seat.server,
            local_rank=seat.local_rank,
        )
        ending = _Ending(warmed)
        warmed.clock.start(job.epoch_s)
        memory.watch_peaks()
        warmed.observer.start()
        code, last_words = _run(job)
        code = _wind_up(code)
        ending.finish(code, last_words)
    except BaseException:
        traceback.print_exc()  # ours: the server reports the exit code, the launcher shows this log
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        _exit(code)


class _Ending:
    """Says goodbye to the coordinator once, on whatever way the process ends by Python's hand."""

    def __init__(self, warmed: Warm) -> None:
        self._warmed = warmed
        self._pid = os.getpid()
        os._exit = self._exit_at_once

    def finish(self, code: int, last_words: str) -> None:
        if self._pid == os.getpid():
            self._pid = 0
            self._warmed.clock.stop()
            memory.report(self._warmed.hook)
            self._warmed.hook.finish(code, last_words)

    def _exit_at_once(self, status: int) -> NoReturn:
        """os._exit of the script's: its worker processes pass through here too."""
        self.finish(status, "")
        _exit(status)


def _set_up_process(job: Job, seat: Seat) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDONLY)
    log = os.open(f"{job.run_dir}/rank{seat.rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(log)
    # sys.stdout and stderr stay: the launcher starts the forker unbuffered (as torchrun its workers), so they hold
    # nothing.
    os.environ.update(torchrun_environment(job, seat))
    seeds.seed(seat.rank)
    Path("/proc/self/comm").write_text(f"rank{seat.rank}")


def _run(job: Job) -> tuple[int, str]:
    """Runs the script to its end; returns its exit code and the last words of an uncaught exception."""
    if job.module:
        sys.argv = [job.script, *job.arguments]
        sys.path.insert(0, os.getcwd())
    else:
        sys.argv = [job.script, *job.arguments]
        is_package = os.path.isdir(job.script) or not _is_source(job.script)
        sys.path.insert(0, job.script if is_package else os.path.dirname(os.path.realpath(job.script)))
    main_module = types.ModuleType("__main__")
    sys.modules["__main__"] = main_module
    vars(main_module)["__builtins__"] = __builtins__
    try:
        if job.module:
            runpy._run_module_as_main(job.script)  # type: ignore[attr-defined]
        elif sys.path[0] == job.script:
            runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
        else:
            _run_file(job.script, vars(main_module))
    except SystemExit as error:
        return _exit_code(error), f"SystemExit{_raised_at(error)}"
    except BaseException as error:
        _show(error)
        code = 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
        return code, f"{traceback.format_exception_only(error)[-1].strip()}{_raised_at(error)}"
    return 0, ""


def _raised_at(error: BaseException) -> str:
    """`` (train.py:17)``: the script's innermost line on the exception's way, "" if there is none."""
    at = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if is_the_user_s(file):
            at = f" ({file.removeprefix(os.getcwd().rstrip('/') + '/')}:{line})"
    return at


def _is_source(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(4) != b"PK\x03\x04"


def _run_file(path: str, namespace: dict[str, object]) -> None:
    """As the interpreter runs the file on its command line; runpy.run_path would take __main__ away at the end."""
    path = os.path.abspath(path)
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    namespace.update(__file__=path, __loader__=loader, __cached__=None)
    with open(path, "rb") as file:
        source = file.read()
    exec(compile(source, path, "exec", dont_inherit=True), namespace)


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def _show(error: BaseException) -> None:
    """The traceback as the script's own interpreter would print it, through sys.excepthook if it set one."""
    frames = error.__traceback__
    while frames is not None and is_ours(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    with contextlib.suppress(OSError):  # the log's disk may be full: the last words still reach the coordinator
        sys.stdout.flush()
        sys.excepthook(type(error), error.with_traceback(frames), frames)


def _wind_up(code: int) -> int:
    """What the interpreter does after the script: waits for its threads, runs exit handlers."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
    except BaseException as error:
        _show(error)
    atexit._run_exitfuncs()
    return code
