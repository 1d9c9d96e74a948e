"""Implements ``run``: one run in a process of its own, whose output is shown here while it lasts."""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
import inspect
import os
import pickle
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, ParamSpec, TextIO

from phantora_async.api.child import Ended
from phantora_async.api.results import Run
from phantora_async.api.run_processes import ForkedProcess, RunProcesses
from phantora_async.config import resolve
from phantora_async.errors import InternalError, PhantoraError
from phantora_async.options import OPTIONS, RunOptions

P = ParamSpec("P")
BOOTSTRAP = """\
import sys
if sys.path[0] == "": del sys.path[0]
sys.path.append(sys.argv[1])
from phantora_async.api.child import main
main(int(sys.argv[2]), int(sys.argv[3]))
"""
CHUNK_NBYTES = 1 << 16
END_S = 30.0
"""The seconds that a run may take to end after SIGTERM."""


def _as_keywords_of(options: Callable[P, RunOptions]) -> Callable[[Callable[..., Run]], Callable[P, Run]]:
    """Gives a function the signature of the options, for type checkers and for `help`."""

    def with_signature(function: Callable[..., Run]) -> Callable[P, Run]:
        signature = inspect.signature(options)
        hidden = {name for name, option in OPTIONS.items() if option.hidden}
        shown = [parameter for name, parameter in signature.parameters.items() if name not in hidden]
        function.__signature__ = signature.replace(parameters=shown, return_annotation=Run)  # type: ignore[attr-defined]
        return function

    return with_signature


@_as_keywords_of(RunOptions)
def run(*arguments: Any, processes: RunProcesses | None = None, **options: Any) -> Run:
    """Runs a training script on emulated GPUs, as `phantora-async run` does, and returns its report.

    ``phantora_async.run("train.py", ["--lr", "3e-4"], world_size=16, cluster="dgx-h100")``. The keywords are the
    options of the command line. The script's output appears on sys.stdout while it runs. Raises the errors of
    ``phantora_async.errors``; their ``exit_code`` is the command's, their ``run`` what there was until then.
    """
    return run_with(RunOptions(*arguments, **options).checked(), {}, processes)


def run_with(options: RunOptions, environment: Mapping[str, str], processes: RunProcesses | None = None) -> Run:
    """Does the run of ``run``. `options` are checked; `environment`: variables that this run alone gets; `processes`:
    those of the session that the run belongs to, which it shares unless the options say otherwise.
    """
    if options.known and not options.again and not environment:
        options, found = _answered(options)
        if found is not None:
            return found
    ended = _Child(options, environment, processes if options.shared_start else None).wait()
    found = Run(ended.report, Path(ended.report_path), Path(ended.run_dir)) if ended.report is not None else None
    if ended.error is not None:
        error = ended.error
        error.run = found
        for note in filter(None, (error.details, error.hint)):
            error.add_note(note)
        raise error
    assert found is not None, "a run without an error has a report"
    return found


def _answered(options: RunOptions) -> tuple[RunOptions, Run | None]:
    """Looks here for an earlier run of which nothing changed: a process costs more. Returns the options for such a
    process if there is none.
    """
    from phantora_async.api import execution

    try:
        config = resolve(options)
    except PhantoraError:
        return options, None  # the process says what is wrong
    try:
        executed = execution.kept(config)
        if executed is None:
            return dataclasses.replace(options, run_dir=str(config.run_dir)), None
        execution.show_remarks(config)
        found = Run(executed.report, config.report, config.run_dir)
        if executed.failure is not None:
            executed.failure.run = found
            raise executed.failure
        return options, found
    finally:
        config.claimed.lock.close()


class Together:
    """The runs of the threads of one pool: what ends the thread that waits for them ends them."""

    _of_thread = threading.local()

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._children: set[_Child] = set()
        self._ended = False

    def join(self) -> None:
        """Makes the calling thread one of the pool, for good."""
        self._of_thread.together = self

    @classmethod
    def of_this_thread(cls) -> Together | None:
        return getattr(cls._of_thread, "together", None)

    def add(self, child: _Child) -> None:
        with self._lock:
            self._children.add(child)
            if self._ended:
                child.interrupt()

    def discard(self, child: _Child) -> None:
        with self._lock:
            self._children.discard(child)

    def interrupt(self) -> None:
        """Interrupts all runs as Ctrl-C does, and also those that begin after this call."""
        with self._lock:
            self._ended = True
            for child in self._children:
                child.interrupt()


class _Child:
    """The process of the run. Its output is copied on the calling thread: notebooks show it below the waiting cell."""

    def __init__(self, options: RunOptions, environment: Mapping[str, str], processes: RunProcesses | None) -> None:
        self._interrupts = 0
        self._together = Together.of_this_thread()
        self._result = bytearray()
        # Ctrl-C reaches the main thread, which passes it on. To runs of a user's threads it must go by itself.
        apart = self._together is not None or threading.current_thread() is threading.main_thread()
        with contextlib.ExitStack() as theirs:
            self._result_pipe, result = _from_child(theirs)
            self._stdin, stdin = _to_child(theirs)
            self._stdout: IO[bytes] | None
            self._stderr: IO[bytes] | None
            self._stdout, stdout = (None, 1) if _is_own(sys.stdout, sys.__stdout__, 1) else _from_child(theirs)
            self._stderr, stderr = (None, 2) if _is_own(sys.stderr, sys.__stderr__, 2) else _from_child(theirs)
            variables = {**os.environ, **environment}
            forked = None
            if processes is not None and apart:
                forked = processes.start(variables, stdin, stdout, stderr, result)
            self._process: subprocess.Popen[bytes] | ForkedProcess = forked or subprocess.Popen(
                [sys.executable, "-c", BOOTSTRAP, str(Path(__file__).parents[2]), str(result), str(os.getpid())],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=[result],
                env=variables,
                start_new_session=apart,
            )
        self._options = options
        if self._together is not None:
            self._together.add(self)

    def wait(self) -> Ended:
        """Returns when the process has ended. Raises KeyboardInterrupt if that was why."""
        try:
            with self._sources() as sources:
                self._send_options()
                self._copy_all(sources)
                self._process.wait()
        except BaseException:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_S)
            self._process.kill()
            self._process.wait()
            raise
        finally:
            if self._together is not None:
                self._together.discard(self)
        ended = self._ended()
        if self._interrupts:
            interrupt = KeyboardInterrupt()
            if ended.error is not None and self._result:
                interrupt.add_note("\n".join(filter(None, [ended.error.text, ended.error.hint])))
            raise interrupt
        return ended

    def interrupt(self) -> None:
        """Interrupts the run. The first interrupt ends it with its report, a second one ends it at once."""
        self._interrupts += 1
        self._process.send_signal(signal.SIGINT)

    def _ended(self) -> Ended:
        if not self._result:
            code = self._process.wait()
            how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
            return Ended(None, "", "", InternalError(f"the process of the run ended unexpectedly, {how}"))
        ended: Ended = pickle.loads(self._result)
        return ended

    def _send_options(self) -> None:
        with contextlib.suppress(BrokenPipeError), self._stdin as stdin:
            stdin.write(pickle.dumps(self._options))

    # ---- output ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _sources(self) -> Iterator[selectors.DefaultSelector]:
        """The pipes to read; the function that takes their bytes is registered with each."""
        with selectors.DefaultSelector() as sources, self._result_pipe as result:
            sources.register(result, selectors.EVENT_READ, self._result.extend)
            for pipe, stream in ((self._stdout, sys.stdout), (self._stderr, sys.stderr)):
                if pipe is not None:
                    sources.register(pipe, selectors.EVENT_READ, _Copy(stream))
            try:
                yield sources
            finally:
                for pipe in filter(None, (self._stdout, self._stderr)):
                    pipe.close()

    def _copy_all(self, sources: selectors.BaseSelector) -> None:
        """Copies until all pipes are closed. A signal may come between any two instructions, so all of it is tried
        again.
        """
        while True:
            try:
                while sources.get_map():
                    for key, _ in sources.select():
                        data = os.read(key.fd, CHUNK_NBYTES)
                        if data:
                            key.data(data)
                        else:
                            sources.unregister(key.fileobj)
            except KeyboardInterrupt:
                self.interrupt()
            else:
                return


class _Copy:
    """Writes bytes of a pipe to a text stream, which need not have a file."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def __call__(self, data: bytes) -> None:
        self._stream.write(self._decoder.decode(data))
        self._stream.flush()


def _from_child(theirs: contextlib.ExitStack) -> tuple[IO[bytes], int]:
    """A pipe: the end to read, and the child's, which is closed with the stack."""
    read, write = os.pipe()
    theirs.callback(os.close, write)
    return open(read, "rb", buffering=0), write


def _to_child(theirs: contextlib.ExitStack) -> tuple[IO[bytes], int]:
    """A pipe: the end to write, and the child's, which is closed with the stack."""
    read, write = os.pipe()
    theirs.callback(os.close, read)
    return open(write, "wb"), read


def _is_own(stream: object, own: IO[str] | None, descriptor: int) -> bool:
    """The stream is this process's standard one: a child that inherits it writes to the same place."""
    if own is None or stream is not own:
        return False
    try:
        return own.fileno() == descriptor
    except (OSError, ValueError):
        return False
