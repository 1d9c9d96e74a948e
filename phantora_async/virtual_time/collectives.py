"""When collectives begin and complete: all members' streams must have come, then the network says how long it takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple, Protocol

from phantora_async.virtual_time.announcer import Announcer
from phantora_async.virtual_time.entities import Host, NcclKernel, Stream, StreamState, Transfer
from phantora_async.virtual_time.event_queue import NEVER, EventQueue
from phantora_async.virtual_time.events import CollectiveDone
from phantora_async.virtual_time.facts import Collective
from phantora_async.virtual_time.output import LOGGED_RANK, Output
from phantora_async.virtual_time.rollback_log import RollbackLog
from phantora_async.virtual_time.streams import ABORTED, Streams


class Revised(NamedTuple):
    """A collective that ``NetworkModel.complete`` had returned completes at another time."""

    collective: Collective
    before_ns: int
    after_ns: int | None
    """None: it completes later than all collectives that ``complete`` has returned."""


class NetworkModel(Protocol):
    """The network as virtual time uses it; ``phantora_async.coordinator.network_model`` makes one of netsim.

    A collective of several ranks takes at least a nanosecond: nothing that one rank does reaches another at the same
    instant.
    """

    def begin(self, collective: Collective, at_ns: int, beside_compute: bool) -> Sequence[Revised]:
        """The last member has arrived at this instant, which may be earlier than instants completed already.
        `beside_compute`: some member's GPU was computing when its kernel became resident.

        Returns the collectives that ``complete`` has returned and whose completion has moved. They complete again.
        """

    def retract(self, collective: Collective) -> Sequence[Revised]:
        """The collective has not begun after all. It may be complete, and it may begin again."""

    def next_ns(self) -> int | None:
        """When the next collective completes, of those that have begun and that ``complete`` has not returned."""

    def complete(self, at_ns: int) -> list[Collective]:
        """Advances to this instant, which ``next_ns`` has returned. The collectives that complete then, sorted."""

    def commit(self, at_ns: int) -> None:
        """Nothing will begin or be taken back before this instant: history before it may be dropped."""

    def shortest_ns(self, collective: Collective) -> int:
        """The collective takes at least this long, whatever else the network carries. Equal ones have equal times."""


class Collectives:
    """Call ``arrive`` for each kernel that becomes resident, and ``complete`` at the instant ``next_ns``.

    While the rollback log is on, a rank can be ahead of the collective's instant: it goes back before it is told.
    """

    __slots__ = (
        "_again",
        "_announcer",
        "_completed",
        "_event_queue",
        "_in_network",
        "_log",
        "_network",
        "_network_ns",
        "_output",
        "_streams",
        "begun",
        "next_ns",
        "stale",
        "under_way",
    )

    def __init__(
        self,
        event_queue: EventQueue,
        log: RollbackLog,
        streams: Streams,
        output: Output,
        announcer: Announcer,
        network: NetworkModel,
    ) -> None:
        self._event_queue = event_queue
        self._streams = streams
        self._log = log
        self._output = output
        self._announcer = announcer
        self._network = network
        self._network_ns = NEVER
        self._in_network: dict[Collective, Transfer] = {}
        """Collectives that have begun. Complete ones stay as long as their completion may still move."""
        self._completed: list[tuple[int, Collective]] = []
        """(instant, collective) of complete ones of ``_in_network``, in the order in which they completed."""
        self._again: list[tuple[int, Collective]] = []
        """Heap of (instant, collective): completions of which a member must be told again, because it went back."""
        self.stale = False
        """``next_ns`` must be found anew."""
        self.under_way: dict[Collective, Transfer] = {}
        """Collectives that some member's stream has reached, and whose completion not all members have been told of."""
        self.next_ns = NEVER
        self.begun = 0

    @property
    def held(self) -> int:
        """Entries that are kept in case collectives move."""
        return len(self._in_network) + len(self._completed) + len(self._again) + len(self.under_way)

    def refresh(self) -> int:
        """Instant of the next completion, NEVER if nothing is under way."""
        if self.stale:
            self.stale = False
            found = self._network.next_ns()
            self._network_ns = self.next_ns = NEVER if found is None else found
            again = self._again
            while again and not self._is_due(*again[0]):
                heappop(again)
            if again:
                again_ns, _ = again[0]
                self.next_ns = min(self.next_ns, again_ns)
        return self.next_ns

    def _is_due(self, at_ns: int, collective: Collective) -> bool:
        transfer = self._in_network.get(collective)
        return transfer is not None and transfer.done_ns == at_ns and not _all_know(transfer)

    def not_before(self, collective: Collective) -> int:
        """An instant before which the collective cannot be complete. If it is complete: the present."""
        transfer = self.under_way.get(collective)
        now_ns = self._event_queue.now_ns
        if transfer is None:
            return now_ns
        return (now_ns if transfer.begun_ns < 0 else transfer.begun_ns) + self._network.shortest_ns(collective)

    # ---- begin -----------------------------------------------------------------------------------------------------

    def arrive(self, kernel: NcclKernel) -> None:
        """The kernel is resident: it takes part in each of its collectives, which begin with the last member."""
        kernel.arrived_ns = self._event_queue.now_ns
        kernel.beside_compute = kernel.stream.device.busy_until_ns > kernel.arrived_ns
        kernel.remaining = len(kernel.collectives)
        for collective in kernel.collectives:
            transfer = self.under_way.get(collective)
            if transfer is None:
                transfer = self.under_way[collective] = Transfer(collective)
            transfer.kernels.append(kernel)
            if self._log.on:
                self._log.checkpoint(kernel.host).undo.append((self._undo_arrive, (transfer, kernel)))
                if len(transfer.kernels) + len(transfer.aborted) >= len(collective.callers):
                    self._send_back_later_members(transfer)
            if len(transfer.kernels) == len(collective.callers):
                self._begin(transfer)

    def _undo_arrive(self, transfer: Transfer, kernel: NcclKernel) -> None:
        kernel.arrived_ns = -1
        kernel.beside_compute = False
        kernel.remaining = 0
        transfer.kernels.remove(kernel)
        if not transfer.kernels and not transfer.aborted:
            self.under_way.pop(transfer.collective, None)

    def _send_back_later_members(self, transfer: Transfer) -> None:
        """The last member arrives now. Members that arrived or aborted at a later instant go back and do so again.

        So the collective begins with the member that is the last in virtual time.
        """
        now_ns = self._event_queue.now_ns
        for kernel, aborted_ns in tuple(transfer.aborted):
            if aborted_ns > now_ns:
                self._log.go_back(kernel.host, aborted_ns)
        if len(transfer.kernels) == len(transfer.collective.callers):
            last_ns = max(kernel.arrived_ns for kernel in transfer.kernels)
            if last_ns > now_ns:
                for kernel in [kernel for kernel in transfer.kernels if kernel.arrived_ns == last_ns]:
                    self._log.go_back(kernel.host, last_ns)

    def _begin(self, transfer: Transfer) -> None:
        now_ns, log = self._event_queue.now_ns, self._log
        self.begun += len(transfer.collective.offsets)
        transfer.begun_ns = now_ns
        self._in_network[transfer.collective] = transfer
        for kernel in transfer.kernels:
            device = kernel.stream.device
            if log.on:
                undo = log.reach(device.host).undo
                undo.append((_set_kernel, (kernel, kernel.active, kernel.remaining)))
                undo.append((self._undo_begin, (transfer, now_ns)))
            if not kernel.active:
                device.account(now_ns)
                device.transferring += 1
            kernel.active += 1
        self.stale = True
        beside_compute = any(kernel.beside_compute for kernel in transfer.kernels)
        revised = self._network.begin(transfer.collective, now_ns, beside_compute)
        if revised:
            self._revise(revised)
            log.settle()

    def _undo_begin(self, transfer: Transfer, begun_ns: int) -> None:
        """Called when a member goes back. The first call undoes the begin and sends the other members back."""
        if transfer.begun_ns != begun_ns:
            return
        self.begun -= len(transfer.collective.offsets)
        transfer.begun_ns = transfer.done_ns = -1
        del self._in_network[transfer.collective]
        for kernel in transfer.kernels:
            self._log.demand(kernel.host, begun_ns)
        self.stale = True
        self._revise(self._network.retract(transfer.collective))

    def _revise(self, revised: Sequence[Revised]) -> None:
        """Completions have moved: members that have been told of them go back to before."""
        for collective, before_ns, after_ns in revised:
            transfer = self._in_network.get(collective)
            if transfer is None:  # its members' processes have ended
                continue
            transfer.done_ns = -1
            at_ns = before_ns if after_ns is None else min(before_ns, after_ns)
            for kernel in transfer.kernels:
                if kernel in transfer.delivered:
                    self._log.demand(kernel.host, at_ns)

    # ---- complete --------------------------------------------------------------------------------------------------

    def complete(self) -> None:
        """It is the instant ``next_ns``: collectives that are complete release their kernels."""
        now_ns = self._event_queue.now_ns
        done = []
        if self._network_ns == now_ns:
            for collective in self._network.complete(now_ns):
                transfer = self._in_network.get(collective)
                if transfer is not None:  # else its members' processes have ended
                    transfer.done_ns = now_ns
                    done.append(transfer)
        self.stale = True
        if self._log.on:
            self._completed += [(now_ns, transfer.collective) for transfer in done]
        if self._log.on or self._again:
            done = self._with_those_again(done)
        for transfer in done:
            self._deliver(transfer)

    def _with_those_again(self, done: list[Transfer]) -> list[Transfer]:
        """All that members are to be told of now, sorted. Members at this instant or later go back to its start:
        completions come first."""
        now_ns, again = self._event_queue.now_ns, self._again
        found = {transfer.collective: transfer for transfer in done}
        checked: set[Collective] = set()
        while True:
            while again:
                at_ns, collective = again[0]
                if at_ns > now_ns:
                    break
                heappop(again)
                if at_ns == now_ns and self._is_due(at_ns, collective):
                    found[collective] = self._in_network[collective]
            todo = found.keys() - checked
            if not todo:
                return [found[collective] for collective in sorted(found)]
            for collective in todo:
                checked.add(collective)
                transfer = found[collective]
                for kernel in transfer.kernels:
                    if kernel not in transfer.delivered:
                        self._log.go_back(kernel.host, now_ns + (transfer.begun_ns == now_ns))

    def _deliver(self, transfer: Transfer) -> None:
        """Tells the members, or those of them that do not know."""
        now_ns, log = self._event_queue.now_ns, self._log
        if self._announcer.heard:
            self._tell_done(transfer, now_ns)
        del self.under_way[transfer.collective]
        if not log.on:
            del self._in_network[transfer.collective]
        told = transfer.delivered.copy()
        logged: Host | None = None
        for kernel in transfer.kernels:
            device = kernel.stream.device
            if log.on:
                if kernel in told:
                    continue
                undo = log.act(device.host).undo
                undo.append((_set_kernel, (kernel, kernel.active, kernel.remaining)))
                undo.append((self._undo_deliver, (transfer, kernel)))
                transfer.delivered.add(kernel)
            kernel.active -= 1
            kernel.remaining -= 1
            if not kernel.active:
                device.account(now_ns)
                device.transferring -= 1
            if not kernel.remaining:
                self._streams.finish_kernel(kernel)
            if device.host.rank == LOGGED_RANK:
                logged = device.host
        if logged is not None:
            self._output.collective_completed(logged, transfer.collective, now_ns)

    def _tell_done(self, transfer: Transfer, now_ns: int) -> None:
        last = max(transfer.kernels, key=lambda kernel: (kernel.arrived_ns, kernel.host.rank))
        for kernel in transfer.kernels:
            if kernel.host.rank in self._announcer.heard and kernel not in transfer.delivered:
                done = CollectiveDone(
                    now_ns, kernel.stream.id, transfer.collective, transfer.begun_ns, last.host.rank, last.stream.id
                )
                self._announcer.tell(kernel.host, done)

    def _undo_deliver(self, transfer: Transfer, kernel: NcclKernel) -> None:
        transfer.delivered.discard(kernel)
        self.under_way[transfer.collective] = transfer
        if transfer.done_ns >= 0:
            heappush(self._again, (transfer.done_ns, transfer.collective))
            self.stale = True

    def commit(self, at_ns: int) -> None:
        """The simulation will take back nothing before this instant."""
        if self._completed:
            kept = []
            for done_ns, collective in self._completed:
                transfer = self._in_network.get(collective)
                if transfer is not None and transfer.done_ns == done_ns:
                    if done_ns < at_ns and _all_know(transfer):
                        del self._in_network[collective]
                    else:
                        kept.append((done_ns, collective))
            self._completed = kept
        self._network.commit(at_ns)

    def forget(self) -> None:
        """All processes have ended, and nothing is simulated ahead. What is in the network goes on to its end there."""
        for known in (self._in_network, self._completed, self._again, self.under_way):
            known.clear()
        self.stale = True

    # ---- abort -----------------------------------------------------------------------------------------------------

    def abort(self, streams: Iterable[Stream], comm: int) -> None:
        """ncclCommAbort: the communicator's kernels on these streams that wait for peers end now, later ones at once.

        Their peers' kernels go on waiting, as on real GPUs.
        """

        def concerns(kernel: NcclKernel) -> bool:
            return any(collective.comm.id == comm for collective in kernel.collectives)

        for stream in streams:
            stream.items = [
                ABORTED if place > stream.head and isinstance(item, NcclKernel) and concerns(item) else item
                for place, item in enumerate(stream.items)
            ]
            if stream.state != StreamState.COLLECTIVE:
                continue
            kernel = stream.items[stream.head]
            assert isinstance(kernel, NcclKernel)
            if concerns(kernel) and not kernel.active:
                for collective in kernel.collectives:
                    transfer = self.under_way.get(collective)
                    if transfer is not None and transfer.begun_ns < 0:
                        self._withdraw(transfer, kernel)
                self._streams.finish_kernel(kernel)

    def _withdraw(self, transfer: Transfer, kernel: NcclKernel) -> None:
        aborted = (kernel, self._event_queue.now_ns)
        transfer.kernels.remove(kernel)
        transfer.aborted.append(aborted)
        if self._log.on:
            undo = self._log.checkpoint(kernel.host).undo
            undo.append((transfer.aborted.remove, (aborted,)))
            undo.append((transfer.kernels.append, (kernel,)))


def _set_kernel(kernel: NcclKernel, active: int, remaining: int) -> None:
    kernel.active = active
    kernel.remaining = remaining


def _all_know(transfer: Transfer) -> bool:
    return transfer.delivered.issuperset(transfer.kernels)
