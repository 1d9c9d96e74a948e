"""One rank's GPU, and where its time went."""

from __future__ import annotations

from copy import copy
from operator import add, attrgetter, sub
from typing import TYPE_CHECKING, NamedTuple

from phantora_async.faults.pace import Pace
from phantora_async.over_time import Samples
from phantora_async.over_time.samples import ACCOUNTS
from phantora_async.virtual_time.entities.fields import constant, entity, kept, saved
from phantora_async.virtual_time.entities.repetition import Repetition

if TYPE_CHECKING:
    from phantora_async.virtual_time.entities.host import Host
    from phantora_async.virtual_time.entities.stream import Stream

NO_SAMPLES = 1 << 62
NEVER_BOOKED = 1 << 62


class Shares(NamedTuple):
    """Where a device's time went."""

    compute_ns: int
    transfer_ns: int
    """Communication that nothing hides, moving data."""
    peers_ns: int
    """Communication that nothing hides, waiting for peers."""
    host_bound_ns: int
    """Empty while the host works."""
    idle_ns: int
    """Empty while the host waits for something that is not this device."""
    communication_ns: int
    """With an NCCL kernel on it, hidden or not."""

    def plus(self, other: Shares) -> Shares:
        return Shares(*map(add, self, other))

    def since(self, earlier: Shares) -> Shares:
        return Shares(*map(sub, self, earlier))


NO_SHARES = Shares(0, 0, 0, 0, 0, 0)


@entity
class Device:
    """One rank's GPU, and where its time went.

    At any instant it computes (a segment has work left), else moves data, else waits for peers, else waits for its
    host, else is idle (empty while the host waits for something that is not this device).
    """

    host: Host = constant()
    number: int = constant()
    pace: Pace | None = constant()
    """None: it always does its work at full speed."""
    resident: int = saved(0)
    """NCCL kernels that streams have reached and that are not complete."""
    transferring: int = saved(0)
    """Those of them that move data."""
    running: tuple[Stream, ...] = saved(())
    """Streams with a segment at their head."""
    busy_streams: int = saved(0)
    host_waits: bool = saved(False)
    """The host waits until no stream is busy."""
    busy_until_ns: int = saved(0)
    """When the work of the running segments ends, at the present rates."""
    since_ns: int = saved(-1)
    """Up to when time is booked; -1: the device has never been used, nothing is booked; NEVER_BOOKED: no more is."""
    compute_ns: int = saved(0)
    transfer_ns: int = saved(0)
    peers_ns: int = saved(0)
    host_bound_ns: int = saved(0)
    idle_ns: int = saved(0)
    communication_ns: int = saved(0)
    repetition: Repetition | None = saved(None)
    """What the host and this GPU are at together, until the host's next event."""
    sample_ns: int = saved(0)
    """When its accounts are noted next in ``samples``."""
    samples: Samples | None = kept()

    def is_dead(self, now_ns: int) -> bool:
        return self.pace is not None and self.pace.is_dead(now_ns)

    def account(self, now_ns: int) -> None:
        """Books the time since the last call; called before anything changes that decides where time goes."""
        if now_ns >= self.sample_ns:
            self._sample(now_ns)
        since = self.since_ns
        if now_ns <= since:
            return
        if self.repetition is not None:
            spent = self.repetition.spent(since, now_ns)
            self.compute_ns += spent.compute_ns
            self.host_bound_ns += spent.host_bound_ns
            self.idle_ns += spent.idle_ns
            self.since_ns = now_ns
            return
        if self.resident:
            self.communication_ns += now_ns - since
        busy = self.busy_until_ns
        if busy > since:
            until = busy if busy < now_ns else now_ns
            self.compute_ns += until - since
            since = until
        rest = now_ns - since
        if rest:
            if self.transferring:
                self.transfer_ns += rest
            elif self.resident:
                self.peers_ns += rest
            elif self.host.state:
                self.idle_ns += rest
            else:
                self.host_bound_ns += rest
        self.since_ns = now_ns

    def _sample(self, now_ns: int) -> None:
        """Notes the accounts at every instant for them that has been reached."""
        at_ns, self.sample_ns = self.sample_ns, NO_SAMPLES
        if self.samples is None:
            return
        width_ns = self.samples.make_room(now_ns)
        place = -(-at_ns // width_ns)
        while place * width_ns <= now_ns:
            self.account(place * width_ns)
            self.samples.put(place, _accounts(self))
            place += 1
        self.sample_ns = place * width_ns

    def shares_at(self, now_ns: int) -> Shares:
        """Where time went until this instant. Books nothing."""
        device = copy(self)
        device.sample_ns = NO_SAMPLES
        device.account(now_ns)
        return Shares._make(_shares(device))

    def samples_at(self, now_ns: int) -> Samples:
        """A copy that reaches to this instant. Books nothing."""
        assert self.samples is not None, "hosts give every device some"
        device = copy(self)
        device.samples = samples = self.samples.copy()
        device.account(now_ns)
        return samples


_shares = attrgetter(*Shares._fields)
"""A device's accounts have the names of the shares."""
_accounts = attrgetter(*ACCOUNTS)
