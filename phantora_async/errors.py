"""Every error that a user can meet ends here: a message, a hint, an exit code. cli.main prints it, nobody else."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """What the command returns when it is not the script's own exit code."""

    USAGE = 2
    ENVIRONMENT = 69
    INTERNAL = 70
    NOT_WRITTEN = 74
    STUCK = 75
    INTERRUPTED = 130


EXIT_CODES_HELP = """\
exit codes:
  0     the script ended well on every rank
  N     the exit code of the first rank that failed (1: it raised), 128 + signal number if a signal ended it
  2     bad usage: options, script, GPU or cluster description, run directory
  69    the environment cannot emulate: no PyTorch, a PyTorch without CUDA, no hook library
  70    an internal error of phantora-async
  74    a file cannot be written, as on a full disk
  75    the program is stuck: mismatched collectives, a deadlock, a rank that never came
  130   interrupted (Ctrl-C)
"""


class PhantoraError(Exception):
    """Something the user can understand and, mostly, mend."""

    exit_code: int = ExitCode.INTERNAL

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(PhantoraError):
    """What was asked for makes no sense, found before anything has started."""

    exit_code = ExitCode.USAGE


class EnvironmentUnusable(PhantoraError):
    """The interpreter that is to run the ranks lacks something."""

    exit_code = ExitCode.ENVIRONMENT


class NotWritten(PhantoraError):
    """A file of the run's could not be written."""

    exit_code = ExitCode.NOT_WRITTEN


class Interrupted(PhantoraError):
    """Ctrl-C, or SIGTERM to the command."""

    exit_code = ExitCode.INTERRUPTED


class RunFailed(PhantoraError):
    """The job ended early; the exit code is its first failing rank's, or says why."""

    def __init__(self, message: str, exit_code: int, hint: str = "") -> None:
        super().__init__(message, hint)
        self.exit_code = exit_code
