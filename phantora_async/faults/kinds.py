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
        """As the end of a fault's text, with a blank in front."""
        text = f" from {duration(self.from_ns)}" if self.from_ns else ""
        return text if self.until_ns == NEVER else f"{text} until {duration(self.until_ns)}"


@dataclass(frozen=True, slots=True)
class SlowGpu:
    """Its kernels and copies do this share of their work; links keep their speed."""

    rank: int
    share: int
    """Millionths."""
    period: Period

    def __str__(self) -> str:
        return f"gpu {self.rank} at {share_text(self.share)}{self.period}"


@dataclass(frozen=True, slots=True)
class EccRetry:
    """The GPU's kernels and copies stand still."""

    rank: int
    for_ns: int
    at_ns: int

    def __str__(self) -> str:
        return f"gpu {self.rank} ecc retry {duration(self.for_ns)} at {duration(self.at_ns)}"


@dataclass(frozen=True, slots=True)
class DeadGpu:
    """Its work never ends, its links carry nothing, and CUDA calls of processes that use it fail. A process that starts
    after the period finds it well.
    """

    rank: int
    period: Period

    def __str__(self) -> str:
        return f"gpu {self.rank} {_dead(self.period)}"


@dataclass(frozen=True, slots=True)
class DeadNode:
    """Hosts, GPUs and links of the server stop, and never go on."""

    server: int
    period: Period

    def __str__(self) -> str:
        return f"node {self.server} {_dead(self.period)}"


@dataclass(frozen=True, slots=True)
class DeadNic:
    """Its port carries nothing."""

    nic: str
    """The port's name in the network."""
    period: Period

    def __str__(self) -> str:
        return f"nic {self.nic} {_dead(self.period)}"


@dataclass(frozen=True, slots=True)
class SlowLink:
    """The link, in both directions if its name has two ends, offers this share of its capacity; 0: it is down."""

    link: str
    share: int
    period: Period

    def __str__(self) -> str:
        return f"link {self.link} {f'at {share_text(self.share)}' if self.share else 'down'}{self.period}"


@dataclass(frozen=True, slots=True)
class FlappingLink:
    """At ``period.from_ns`` and every ``every_ns`` after it the link goes down, each time for ``down_ns``."""

    link: str
    every_ns: int
    down_ns: int
    period: Period

    def __str__(self) -> str:
        return f"link {self.link} flaps every {duration(self.every_ns)} down {duration(self.down_ns)}{self.period}"


@dataclass(frozen=True, slots=True)
class SlowHost:
    """The CPUs of the server do this share of their work. Sleeps and data loaders' workers take what they took."""

    server: int
    share: int
    period: Period

    def __str__(self) -> str:
        return f"host {self.server} at {share_text(self.share)}{self.period}"


@dataclass(frozen=True, slots=True)
class JitteryHost:
    """In every part of so much time each rank of the server finds a speed of its own, drawn evenly from 1 - ``jitter``
    to 1 + ``jitter``. Equal seeds give equal speeds.
    """

    server: int
    jitter: int
    """Millionths."""
    every_ns: int
    seed: int

    def __str__(self) -> str:
        every = f" every {duration(self.every_ns)}" if self.every_ns != DEFAULT_JITTER_EVERY_NS else ""
        return f"host {self.server} jitter {_decimal(self.jitter, 4)}%{every} seed {self.seed}"


@dataclass(frozen=True, slots=True)
class SlowLoader:
    """Every so many batches of a data loader, one comes so much later."""

    rank: int
    more_ns: int
    every: int

    def __str__(self) -> str:
        return f"loader {self.rank} +{duration(self.more_ns)} every {self.every} batches"


Death = DeadGpu | DeadNode | DeadNic
"""The program itself reacts to these."""
Fault = SlowGpu | EccRetry | SlowLink | FlappingLink | SlowHost | JitteryHost | SlowLoader | Death


def begin_ns(fault: Fault) -> int:
    """The instant of its first effect; 0 for what has one from the start."""
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
    """``0.7x``"""
    return f"{_decimal(share, 6)}x"


def _decimal(number: int, digits: int) -> str:
    """The number divided by 10 ** `digits`, exactly."""
    whole, rest = divmod(number, 10**digits)
    return f"{whole}.{rest:0{digits}}".rstrip("0").rstrip(".") if rest else str(whole)


assert FULL_PACE == 10**6, "shares are those of a pace"
