"""Why a run ends early, found by the coordinator. Each carries the exit code that the command returns."""

from __future__ import annotations

INTERNAL = 70
"""The simulator or the hook broke a contract."""
STUCK = 75
"""The program cannot go on: mismatched collectives, a deadlock, a missing rank."""


class RunFailure(Exception):
    """The run cannot go on. The message is for the user: what happened, to which rank, what to look at."""

    exit_code = INTERNAL

    def __init__(self, message: str, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        if exit_code is not None:
            self.exit_code = exit_code


class ProtocolError(RunFailure):
    """A record that is malformed or that no working hook can send."""

    exit_code = INTERNAL

    def __init__(self, rank: int, message: str) -> None:
        super().__init__(f"rank {rank}: impossible record from its hook library: {message}")
        self.rank = rank


class Mismatch(RunFailure):
    """Members of a communicator called different collectives."""

    exit_code = STUCK


class Deadlock(RunFailure):
    """No rank can ever go on."""

    exit_code = STUCK


class RankDied(RunFailure):
    """A rank ended with an error; its exit code is the run's."""

    def __init__(self, rank: int, message: str, exit_code: int) -> None:
        super().__init__(message, exit_code)
        self.rank = rank
