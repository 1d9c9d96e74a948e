"""Defines every error that ends a command: one hierarchy, each class with its exit code. Only ``cli.run`` prints them;
the Python API raises them.

``UsageError``, ``EnvironmentUnusable`` and ``NotWritten`` are found by the command itself. A ``RunFailure`` ends a run
that has started; the coordinator finds most of them, and the run's report records them.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import textwrap
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from emu.contract.folding import CannotFold
from emu.contract.records import ExitKind


class ExitCode(enum.IntEnum):
    """The exit codes of the command, when it does not return a rank's own. ``meaning`` is the text that --help and the
    docs show.
    """

    meaning: str

    def __new__(cls, value: int, meaning: str) -> Self:
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    USAGE = 2, "wrong usage (options, script, GPU or cluster description, run directory)"
    ENVIRONMENT = (
        69,
        "no usable environment (PyTorch for CUDA, hook library, open files, temporary folder)",
    )
    INTERNAL = int(ExitKind.INTERNAL), "an internal error of phantora-async"
    NOT_WRITTEN = 74, "a file could not be written (for example, the disk is full)"
    STUCK = 75, "the script cannot continue (mismatched collectives, a deadlock, --stall-timeout)"
    DISCONNECTED = int(ExitKind.DISCONNECTED), "a rank lost its connection to the coordinator"
    UNCOMPUTED = 77, "a loop of the script waits for a value that is not computed (--value states one)"
    CHANGED = 78, "a replay left the recorded path (the script would have got another answer)"
    OVER_BUDGET = 79, "a budget is exceeded (--max-memory, --max-allocated, --max-step-time, --min-mfu)"
    NOT_FOLDABLE = 80, "a folded run cannot play what the script does (another --fold, or none, can)"
    INTERRUPTED = 130, "interrupted (Ctrl-C or SIGTERM)"


def exit_codes_help() -> str:
    """The table of exit codes at the end of --help."""
    rows = [
        ("0", "every rank ended with exit code 0"),
        ("N", "the exit code of the first rank that failed (1: uncaught exception; 128 + S: ended by signal S)"),
        *((str(code.value), code.meaning) for code in ExitCode),
    ]
    lines = [textwrap.fill(f"{code:<5} {meaning}", 110, subsequent_indent=" " * 8) for code, meaning in rows]
    return "\n".join(["exit codes:", *(f"  {line}" for line in lines)])


class PhantoraError(Exception):
    """An error with a message for the user.

    ``message`` says what happened, ``details`` (further lines) what else is known about it, ``hint`` what to do.
    """

    exit_code: int = ExitCode.INTERNAL
    run: Any = None
    """The part of the run that was done, as a ``Run``, if ``phantora_async.run`` raised this error after the run had
    begun.
    """

    def __init__(self, message: str, hint: str = "", details: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the error: errors travel between processes, and each class has constructor arguments of its own."""
        return _made_again, (type(self), self.args, self.__dict__)

    @property
    def text(self) -> str:
        """The message and its details."""
        return f"{self.message}\n{self.details}" if self.details else self.message


def _made_again(kind: type[PhantoraError], arguments: tuple[Any, ...], state: dict[str, Any]) -> PhantoraError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(state)
    return error


class UsageError(PhantoraError):
    """The command line, or a file that it names, is wrong. Found before anything has started."""

    exit_code = ExitCode.USAGE


class EnvironmentUnusable(PhantoraError):
    """The interpreter that is to run the ranks lacks something."""

    exit_code = ExitCode.ENVIRONMENT


class LauncherFailed(PhantoraError):
    """The user's launcher failed on one server, although no rank did. The exit code is its own."""

    def __init__(self, message: str, details: str, exit_code: int) -> None:
        super().__init__(message, details=details)
        self.exit_code = exit_code


class MachineFailed(PhantoraError):
    """A machine cannot take part in a run."""

    exit_code = ExitCode.ENVIRONMENT


class PathChanged(PhantoraError):
    """A replay has left the path that was recorded."""

    exit_code = ExitCode.CHANGED


class OverBudget(PhantoraError):
    """The run ended well, but needs more memory or time than its budget allows."""

    exit_code = ExitCode.OVER_BUDGET


class NotWritten(PhantoraError):
    """A file of the run could not be written."""

    exit_code = ExitCode.NOT_WRITTEN

    def __init__(self, message: str, hint: str = "", details: str = "") -> None:
        full = [os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT)]
        if any(words in message and not message.startswith(words) for words in full):  # else no file is named
            hint = "; ".join(filter(None, ("make room there, or name a file on another disk", hint)))
        super().__init__(message, hint, details)


@contextlib.contextmanager
def drawing(path: str | os.PathLike[str]) -> Iterator[None]:
    """A context in which a picture is written: errors become NotWritten, or UsageError if matplotlib does not know the
    file's suffix.
    """
    try:
        yield
    except OSError as error:
        raise NotWritten(f"cannot write {os.fspath(path)}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{os.fspath(path)}: {error}") from None


class ScriptFailed(PhantoraError):
    """A script that ran on a real GPU failed. The exit code is its own."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class JobsFailed(PhantoraError):
    """Jobs of `phantora-async validate` failed."""

    exit_code = 1


# ---- failures of a run ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Side:
    """Ranks that made the same call."""

    call: str
    ranks: tuple[int, ...]
    sites: tuple[int, ...]
    """The call sites, one for each of ``ranks``: the numbers under which the ranks announced them."""


class RunFailure(PhantoraError):
    """The run cannot continue."""

    kind = "internal"
    """The kind of failure that the JSON report records, for programs that read it."""
    shows_ranks = False
    """True if the details list what every rank is doing, and where."""

    def __init__(self, message: str, sides: tuple[Side, ...] = (), details: str = "") -> None:
        super().__init__(message, details=details)
        self.sides = sides

    def __str__(self) -> str:
        """The message and the calls. The run adds the lines of the script and the log files in ``details``."""
        calls = (f"\n  ranks {', '.join(map(str, side.ranks))}: {side.call}" for side in self.sides)
        return self.message + "".join(calls)


class InternalError(RunFailure):
    """A bug in this package, or one of its processes ended unexpectedly."""


class ProtocolError(InternalError):
    """A rank sent a malformed record, or one that a working hook library cannot send."""

    def __init__(self, rank: int, message: str, pid: int = 0) -> None:
        """`rank` is -1 for a process that has not said which one it is: `pid` names that."""
        who = f"rank {rank}: its hook library" if rank >= 0 else f"process {pid}, which is no rank yet,"
        super().__init__(f"{who} sent an impossible record: {message}")


class Mismatch(RunFailure):
    """Members of a communicator called different collectives."""

    exit_code = ExitCode.STUCK
    kind = "mismatch"
    before: Sequence[Any] = ()
    """The facts of the records that came with the call, before it: virtual time may still need them."""


class Deadlock(RunFailure):
    """No rank can ever continue."""

    exit_code = ExitCode.STUCK
    kind = "deadlock"
    shows_ranks = True
    polling: Sequence[int] = ()
    """The ranks that look for something and sleep in turns, for ever."""


class NotFoldable(RunFailure):
    """A rank without a process would have done something else than its representative, or its behaviour cannot be
    derived.
    """

    exit_code = ExitCode.NOT_FOLDABLE
    kind = "not_foldable"
    finer = ""
    """A mesh, as `--fold` takes it, by which the same program may be folded. Empty: none is known."""
    needs_each = False
    """True if the job may be folded when each replica is simulated."""

    @classmethod
    def of(cls, error: CannotFold, who: str = "") -> NotFoldable:
        """The failure of a fold because a call cannot be translated to the ranks without processes. `who` says which
        rank made it.
        """
        details = f"to fold ranks that are alike: --fold '{error.finer}'" if error.finer else ""
        failure = cls(f"{error}{f': {who}' if who else ''}", details=details)
        failure.finer = error.finer
        return failure


class Stalled(RunFailure):
    """Ranks have waited longer than --stall-timeout for a rank that makes no visible progress, or none has made any."""

    exit_code = ExitCode.STUCK
    kind = "stalled"
    shows_ranks = True


class WaitsForValue(RunFailure):
    """A loop waits for a value that is not computed, and has done so for too many turns or too long."""

    exit_code = ExitCode.UNCOMPUTED
    kind = "uncomputed_value"
    shows_ranks = True


class ClockEnded(RunFailure):
    """Virtual time has reached the last instant that the network's clock can express."""

    exit_code = ExitCode.STUCK
    kind = "clock_ended"


class Interrupted(RunFailure):
    """Ctrl-C, or SIGTERM to the command. ``shows_ranks``: ranks were waiting for one that makes no visible progress."""

    exit_code = ExitCode.INTERRUPTED
    kind = "interrupted"

    def __init__(self, message: str, shows_ranks: bool = False) -> None:
        super().__init__(message)
        self.shows_ranks = shows_ranks


class RankDied(RunFailure):
    """A rank ended with an error. Its exit code is the run's."""

    kind = "rank_died"

    def __init__(self, rank: int, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.rank = rank
        self.exit_code = exit_code


# ---- other exceptions ----------------------------------------------------------------------------------------------

MOST_SHOWN = 60
"""The most characters of a too long file name that a message repeats."""
WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
"""The errno values which mean that a file could not be written, whichever file it was."""


def as_phantora_error(error: BaseException) -> PhantoraError:
    """Turns any exception that ends a command into the error that is shown to the user."""
    if isinstance(error, PhantoraError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return Interrupted("interrupted")
    if isinstance(error, OSError) and error.errno in WRITE_ERRORS:
        hint = "ulimit -f unlimited, or as much as the hard limit allows" if error.errno == errno.EFBIG else ""
        return NotWritten(f"{error.strerror}{f': {error.filename}' if error.filename else ''}", hint)
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return UsageError(f"{error.strerror}: {str(error.filename)[:MOST_SHOWN]}...")
    text = "".join(traceback.format_exception(error)).rstrip()
    return InternalError(f"internal error: {error!r}\n{text}")
