"""The network as virtual time uses it; ``phantora_async.coordinator.network_model`` makes one of netsim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from phantora_async.virtual_time.facts import Collective


class Revised(NamedTuple):
    """A collective that ``NetworkModel.complete`` had returned completes at another time."""

    collective: Collective
    before_ns: int
    after_ns: int | None
    """The new completion; None: it completes later than all collectives that ``complete`` has returned."""


class NetworkModel(Protocol):
    """A collective of several ranks takes at least a nanosecond: nothing that one rank does reaches another at the same
    instant.
    """

    def begin(self, collective: Collective, at_ns: int, beside_compute: bool) -> Sequence[Revised]:
        """The last member has arrived at this instant, which may be earlier than instants completed already.
        `beside_compute`: some member's GPU was busy when its kernel became resident.

        Returns the collectives that ``complete`` has returned and whose completion has moved. They complete again.
        """

    def retract(self, collective: Collective) -> Sequence[Revised]:
        """The collective has not begun after all. It may be complete, and it may begin again."""

    def next_ns(self) -> int | None:
        """The instant of the next completion, among collectives that have begun and that ``complete`` has not
        returned.
        """

    def complete(self, at_ns: int) -> list[Collective]:
        """Advances to this instant, which ``next_ns`` has returned. The collectives that complete then, sorted."""

    def commit(self, at_ns: int) -> None:
        """Commits to this instant: nothing will begin or be taken back before it, so history before it may be
        dropped.
        """

    def shortest_ns(self, collective: Collective) -> int:
        """The collective takes at least this long, whatever else the network carries. Equal ones have equal times."""
