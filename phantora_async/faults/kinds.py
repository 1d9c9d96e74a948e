"""A class for each kind of fault. Its text is what the grammar reads; instants are those of virtual time.

Shares of a speed are whole millionths, so that what follows from them is computed with integers.
"""

from __future__ import annotations

from dataclasses import dataclass

from phantora_async.errors import UsageError
from phantora_async.faults.pace import FULL_PACE, NEVER
from phantora_async.wording import duration

DEFAULT_JITTER_EVERY_NS = 10_000_000


class FaultError(UsageError):
    """A fault that cannot be read, or that names what the run does not have."""


@dataclass(frozen=True, slots=True)
class Period:
    from_ns: int = 0
    until_ns: int = NEVER

    def __str__(self) -> str:
        """The period as the end of a fault's text, with a blank in front."""
        text = f" from {duration(self.from_ns)}" if self.from_ns else ""
        return text if self.until_ns == NEVER else f"{text} until {duration(self.until_ns)}"


@dataclass(frozen=True, slots=True)
class SlowGpu:
    """A GPU whose kernels and copies do only this share of their work per time; links keep their speed."""

    rank: int
    share: int
    """The share in millionths."""
    period: Period

    def __str__(self) -> str:
        return f"gpu {self.rank} at {share_text(self.share)}{self.period}"


@dataclass(frozen=True, slots=True)
class EccRetry:
    """A GPU whose kernels and copies stand still for some time."""

    rank: int
    for_ns: int
    at_ns: int

    def __str__(self) -> str:
        return f"gpu {self.rank} ecc retry {duration(self.for_ns)} at {duration(self.at_ns)}"


@dataclass(frozen=True, slots=True)
class DeadGpu:
    """A GPU that has failed: its work never ends, its links carry nothing, and CUDA calls of processes that use it
    fail. A process that starts after the period finds it well.
    """

    rank: int
    period: Period

    def __str__(self) -> str:
        return f"gpu {self.rank} {_dead(self.period)}"


@dataclass(frozen=True, slots=True)
class DeadNode:
    """A server that has failed: its hosts, GPUs and links stop, and never go on."""

    server: int
    period: Period

    def __str__(self) -> str:
        return f"node {self.server} {_dead(self.period)}"


@dataclass(frozen=True, slots=True)
class DeadNic:
    """A network card that has failed: its port carries nothing."""

    nic: str
    """The port's name in the network."""
    period: Period

    def __str__(self) -> str:
        return f"nic {self.nic} {_dead(self.period)}"


@dataclass(frozen=True, slots=True)
class SlowLink:
    """A link that offers only this share of its capacity, in both directions if its name has two ends; 0: it is
    down.
    """

    link: str
    share: int
    period: Period

    def __str__(self) -> str:
        return f"link {self.link} {f'at {share_text(self.share)}' if self.share else 'down'}{self.period}"


@dataclass(frozen=True, slots=True)
class FlappingLink:
    """A link that goes down at ``period.from_ns`` and every ``every_ns`` after it, each time for ``down_ns``."""

    link: str
    every_ns: int
    down_ns: int
    period: Period

    def __str__(self) -> str:
        return f"link {self.link} flaps every {duration(self.every_ns)} down {duration(self.down_ns)}{self.period}"


@dataclass(frozen=True, slots=True)
class SlowHost:
    """A server whose CPUs do only this share of their work per time. Sleeps and data loaders' workers are not
    slowed.
    """

    server: int
    share: int
    period: Period

    def __str__(self) -> str:
        return f"host {self.server} at {share_text(self.share)}{self.period}"


@dataclass(frozen=True, slots=True)
class JitteryHost:
    """A server whose ranks change speed: in each interval of ``every_ns`` each rank draws a speed evenly from 1 -
    ``jitter`` to 1 + ``jitter``. Equal seeds give equal speeds.
    """

    server: int
    jitter: int
    """The deviation in millionths."""
    every_ns: int
    seed: int

    def __str__(self) -> str:
        every = f" every {duration(self.every_ns)}" if self.every_ns != DEFAULT_JITTER_EVERY_NS else ""
        return f"host {self.server} jitter {_decimal(self.jitter, 4)}%{every} seed {self.seed}"


@dataclass(frozen=True, slots=True)
class SlowLoader:
    """A data loader that delivers one of every ``every`` batches later by ``more_ns``."""

    rank: int
    more_ns: int
    every: int

    def __str__(self) -> str:
        return f"loader {self.rank} +{duration(self.more_ns)} every {self.every} batches"


Death = DeadGpu | DeadNode | DeadNic
"""The kinds of faults to which the program itself reacts."""
Fault = SlowGpu | EccRetry | SlowLink | FlappingLink | SlowHost | JitteryHost | SlowLoader | Death


def begin_ns(fault: Fault) -> int:
    """The instant of its first effect; 0 for a fault that has one from the start."""
    match fault:
        case EccRetry(at_ns=at_ns):
            return at_ns
        case JitteryHost() | SlowLoader():
            return 0
    return fault.period.from_ns


def _dead(period: Period) -> str:
    until = "" if period.until_ns == NEVER else f" until {duration(period.until_ns)}"
    return f"dead at {duration(period.from_ns)}{until}"


def share_text(share: int) -> str:
    """The share as a fault's text has it: ``0.7x``."""
    return f"{_decimal(share, 6)}x"


def _decimal(number: int, digits: int) -> str:
    """The number divided by 10 ** `digits`, exactly."""
    whole, rest = divmod(number, 10**digits)
    return f"{whole}.{rest:0{digits}}".rstrip("0").rstrip(".") if rest else str(whole)


assert FULL_PACE == 10**6, "shares are those of a pace"
