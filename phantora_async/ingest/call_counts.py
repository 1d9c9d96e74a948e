"""Counts the collectives that ranks call, and where their hosts wait for GPUs: over the whole run, and over the steps
whose figures count. NCCL_LAUNCH and HOST_WAIT records name the line of the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from emu.contract import records
from emu.contract.records import NcclKind
from phantora_async.ingest.call_sites import Site
from phantora_async.ingest.launch_counts import NONE, Launched, StepCounts
from phantora_async.virtual_time.facts import DTYPE_NAMES, PAIRWISE, Collective

MOST_KINDS = 4096
"""The most kinds of calls that are told apart; later ones count without their sizes and lines."""
SCOPES = {kind.value: kind.name.lower() for kind in records.ScopeKind}
WAIT = "wait"
"""The ``what`` of a host's wait for a GPU."""


class CountedCall(NamedTuple):
    """A kind of call of one rank."""

    what: str
    """WAIT, or the name of a collective such as ``all_reduce``; both sides of a transfer are a ``send``."""
    nbytes: int
    """The bytes of a collective as NCCL counts them; -1: other sizes."""
    dtype: str
    """The type of a collective's elements."""
    on: str
    """The size of the communicator, or what a wait is for: `stream`, `event` or `device`."""
    site: Site | None


class CallCounts(StepCounts[CountedCall]):
    """The class counts the collectives and waits of one rank."""

    __slots__ = ()

    def wait(self, scope: int, site: Site | None) -> None:
        self._count(CountedCall(WAIT, 0, "", SCOPES.get(scope, ""), site))

    def collectives(self, called: Sequence[Collective], site: Site | None) -> None:
        for one in called:
            kind = NcclKind.SEND if one.op in PAIRWISE else NcclKind(one.op)
            on = f"{len(one.comm.members)} ranks"  # not which: those of a mirrored rank are others
            self._count(CountedCall(kind.name.lower(), one.nbytes, DTYPE_NAMES[one.dtype], on, site))

    def _count(self, call: CountedCall) -> None:
        if len(self.total) >= MOST_KINDS and call not in self.total:
            call = call._replace(nbytes=-1 if call.nbytes else 0, site=None)
        self.total[call] = Launched(self.total.get(call, NONE).launches + 1, 0)
