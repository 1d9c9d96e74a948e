"""The accounts to which a GPU's time is booked: one table that virtual time, reports, pages, pictures and the API read.

Each instant of a GPU belongs to exactly one account, so the accounts add up to the window that a report looks at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from operator import add, sub
from typing import NamedTuple


class Shares(NamedTuple):
    """The time of a GPU by account, in nanoseconds of virtual time; the order is that of ``native/engine.h``."""

    compute_ns: int
    copies_ns: int
    transfer_ns: int
    peers_ns: int
    host_bound_ns: int
    idle_ns: int
    communication_ns: int
    """The time with an NCCL kernel on the GPU, hidden or not. It overlaps the accounts and is none of them."""

    def plus(self, other: Shares) -> Shares:
        """The sum, account by account."""
        return Shares(*map(add, self, other))

    def since(self, earlier: Shares) -> Shares:
        """The time that was booked after `earlier`."""
        return Shares(*map(sub, self, earlier))


HOST = "the host"
"""The cause that binds a step whose GPUs wait for their hosts."""

COPIES = "copies to and from the GPU"
"""The cause that binds a step whose GPUs mostly wait for such copies."""

IDLE = "nothing on the GPU"
"""The cause of a step whose GPUs and hosts both wait for something else."""


class Doing(Enum):
    """The activities of a GPU that differ in the power that it draws."""

    COMPUTING = "computing"
    COMMUNICATING = "communicating"
    WAITING = "waiting"


class TimeAccount(NamedTuple):
    """One account of a GPU's time, and how it is shown."""

    name: str
    """Its name in the API and in ``activity`` of a report; with ``_ns`` the name of its time."""
    title: str
    """Its name for people."""
    meaning: str
    """A sentence that says what is booked here."""
    cause: str
    """The cause that binds a step if most of its time is booked here."""
    doing: Doing
    """The GPU's activity. Its engines for copies draw little: a GPU that only copies counts as waiting."""
    bright: str
    """Its colour on a bright ground, as CSS writes it."""
    dark: str
    """Its colour on a dark ground."""
    common: bool = True
    """False for an account of which most jobs have nothing: tables leave it out where no GPU has any to show."""
    split_from: str = ""
    """The name of the account that has this time in reports of versions without this account."""

    @property
    def ns(self) -> str:
        """The name of its time in reports and in ``Shares``."""
        return f"{self.name}_ns"

    def time_of(self, rank: Mapping[str, float]) -> float:
        """Returns the rank's time in ns; 0 in a report of a version that did not have the account."""
        return rank.get(self.ns, 0)


LEAST_SHOWN = 0.0005
"""The share below which 0.0% would be printed."""
TIME_ACCOUNTS = (
    TimeAccount(
        "compute",
        "compute",
        "The GPU runs kernels, or copies or fills within its own memory.",
        "GPU computation",
        Doing.COMPUTING,
        "#2f7ed8",
        "#4a97ee",
    ),
    TimeAccount(
        "copies",
        "copies",
        "The GPU only copies from or to its host or another GPU: no kernel computes and no collective moves data.",
        COPIES,
        Doing.WAITING,
        "#1c7c4a",
        "#3fa873",
        common=False,
        split_from="compute",
    ),
    TimeAccount(
        "transfer",
        "transfer",
        "Communication that no computation hides moves data.",
        "communication",
        Doing.COMMUNICATING,
        "#e69f00",
        "#f0b429",
    ),
    TimeAccount(
        "peers",
        "peers",
        "Communication that no computation hides waits for other ranks.",
        "communication",
        Doing.COMMUNICATING,
        "#d55e00",
        "#f0743a",
    ),
    TimeAccount(
        "host_bound",
        "host-bound",
        "The GPU is empty while its host works.",
        HOST,
        Doing.WAITING,
        "#a05fb5",
        "#c48bd6",
    ),
    TimeAccount(
        "idle",
        "idle",
        "The GPU is empty while its host waits for something else.",
        IDLE,
        Doing.WAITING,
        "#c9d0d8",
        "#4a5461",
    ),
)
"""The accounts in the order of ``Shares``, in which they are also shown."""


def shown_accounts(shares: Iterable[Mapping[str, float]]) -> list[TimeAccount]:
    """Returns the accounts that a table of GPUs shows. `shares`: of each GPU, the share of its time by account."""
    each = list(shares)
    return [one for one in TIME_ACCOUNTS if one.common or any(share[one.name] >= LEAST_SHOWN for share in each)]
