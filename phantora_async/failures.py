"""Why a run ends early, found by the coordinator. Each carries the exit code that the command returns."""

from __future__ import annotations

from dataclasses import dataclass

INTERNAL = 70
"""The simulator or the hook broke a contract."""
STUCK = 75
"""The program cannot go on: mismatched collectives, a deadlock, a missing rank."""
INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Side:
    """Ranks that made the same call, and where: their own numbers of sites, in the order of ``ranks``."""

    call: str
    ranks: tuple[int, ...]
    sites: tuple[int, ...]


class RunFailure(Exception):
    """The run cannot go on. The message is for the user: what happened, to which rank, what to look at."""

    exit_code = INTERNAL
    kind = "internal"
    """For programs that read the report."""
    picture = False
    """Does it help to see what every rank does, and where?"""

    def __init__(self, message: str, exit_code: int | None = None, sides: tuple[Side, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.sides = sides
        if exit_code is not None:
            self.exit_code = exit_code

    def __str__(self) -> str:
        """Without what only the run knows: lines of the script, logs."""
        calls = (f"\n  ranks {', '.join(map(str, side.ranks))}: {side.call}" for side in self.sides)
        return self.message + "".join(calls)


class ProtocolError(RunFailure):
    """A record that is malformed or that no working hook can send."""

    exit_code = INTERNAL

    def __init__(self, rank: int, message: str) -> None:
        super().__init__(f"rank {rank}: impossible record from its hook library: {message}")
        self.rank = rank


class Mismatch(RunFailure):
    """Members of a communicator called different collectives."""

    exit_code = STUCK
    kind = "mismatch"


class Deadlock(RunFailure):
    """No rank can ever go on."""

    exit_code = STUCK
    kind = "deadlock"
    picture = True


class Stalled(RunFailure):
    """Ranks wait for one that says nothing, for longer than the user wants to wait."""

    exit_code = STUCK
    kind = "stalled"
    picture = True


class Cancelled(RunFailure):
    """Ctrl-C."""

    exit_code = INTERRUPTED
    kind = "interrupted"

    def __init__(self, message: str, picture: bool) -> None:
        super().__init__(message)
        self.picture = picture


class RankDied(RunFailure):
    """A rank ended with an error; its exit code is the run's."""

    kind = "rank_died"

    def __init__(self, rank: int, message: str, exit_code: int) -> None:
        super().__init__(message, exit_code)
        self.rank = rank
