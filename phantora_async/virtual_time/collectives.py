"""When collectives start and complete: all members' streams must have come, then the network says how long it takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import Protocol

from phantora_async.virtual_time.entities import NCCL_ITEM, SEGMENT_ITEM, NcclKernel, Stream, StreamState, Transfer
from phantora_async.virtual_time.event_queue import NEVER, EventQueue
from phantora_async.virtual_time.facts import Collective
from phantora_async.virtual_time.rollback_log import RollbackLog
from phantora_async.virtual_time.streams import Streams

Revised = Sequence[tuple[Collective, int, int | None]]
"""(meeting, when ``complete`` named it, when it completes now; None: later than anything ``complete`` named)"""


class NetworkModel(Protocol):
    """The network as virtual time uses it; ``phantora_async.coordinator.network_model`` makes one of netsim.

    A meeting of several ranks takes at least a nanosecond: nothing that one rank does reaches another at the same
    instant.
    """

    def begin(self, collective: Collective, at_ns: int) -> Revised:
        """All members have come at this instant, which may be earlier than one named before.

        Returns the meetings that ``complete`` has named and whose completion has moved. They complete again.
        """

    def retract(self, collective: Collective) -> Revised:
        """The meeting never began; it may be complete. It may begin again."""

    def next_ns(self) -> int | None:
        """When the next begun meeting completes that ``complete`` has not named."""

    def complete(self, at_ns: int) -> list[Collective]:
        """Goes on to this instant, ``next_ns``'s answer. The meetings that complete then, ascending."""

    def commit(self, at_ns: int) -> None:
        """Nothing will begin or be taken back before this instant: history before it may be dropped."""


def _set_kernel(launch: NcclKernel, active: int, remaining: int) -> None:
    launch.active = active
    launch.remaining = remaining


def _all_know(transfer: Transfer) -> bool:
    return transfer.delivered.issuperset(transfer.kernels)


class Collectives:
    __slots__ = (
        *(
            "_event_queue",
            "_again",
            "_network",
            "_network_ns",
            "_finished",
            "_rollback_log",
            "_keys",
            "_stale",
            "_streams",
        ),
        *("begun", "next_ns", "under_way"),
    )

    def __init__(
        self, event_queue: EventQueue, streams: Streams, rollback_log: RollbackLog, network: NetworkModel
    ) -> None:
        self._event_queue = event_queue
        self._streams = streams
        self._rollback_log = rollback_log
        self._network = network
        self._network_ns = NEVER
        self._keys: dict[Collective, Transfer] = {}
        """In the network; complete ones as long as that may move."""
        self._finished: list[tuple[int, Collective]] = []
        self._again: list[tuple[int, Collective]] = []
        """Heap of completions that some member has to be told again, having gone back to before."""
        self._stale = False
        self.under_way: dict[Collective, Transfer] = {}
        """Meetings that some member's stream has reached and whose completion not all members have been told."""
        self.next_ns = NEVER
        self.begun = 0

    @property
    def held(self) -> int:
        """Entries that are kept for meetings, in case they move."""
        return len(self._keys) + len(self._finished) + len(self._again) + len(self.under_way)

    def refresh(self) -> int:
        """Instant of the next completion, NEVER if nothing is under way."""
        if self._stale:
            self._stale = False
            found = self._network.next_ns()
            self._network_ns = self.next_ns = NEVER if found is None else found
            again = self._again
            while again and not self._is_due(*again[0]):
                heappop(again)
            if again and again[0][0] < self.next_ns:
                self.next_ns = again[0][0]
        return self.next_ns

    def _is_due(self, at_ns: int, key: Collective) -> bool:
        transfer = self._keys.get(key)
        return transfer is not None and transfer.done_ns == at_ns and not _all_know(transfer)

    def arrive(self, launch: NcclKernel) -> None:
        """The launch's kernel is resident: it takes part in each of its meetings, which begin when complete."""
        launch.arrived_ns = self._event_queue.now_ns
        launch.remaining = len(launch.collectives)
        for collective in launch.collectives:
            transfer = self.under_way.get(collective)
            if transfer is None:
                transfer = self.under_way[collective] = Transfer(collective)
            transfer.kernels.append(launch)
            if self._rollback_log.on:
                checkpoint = self._rollback_log.checkpoint(launch.stream.device.host)
                checkpoint.undo.append((self._unarrive, (transfer, launch)))
                if len(transfer.kernels) + len(transfer.gone) >= len(collective.ranks):
                    self._fetch_back(transfer)
            if len(transfer.kernels) == len(collective.ranks):
                self._begin(transfer)

    def _unarrive(self, transfer: Transfer, launch: NcclKernel) -> None:
        launch.arrived_ns = -1
        transfer.kernels.remove(launch)
        if not transfer.kernels and not transfer.gone:
            self.under_way.pop(transfer.collective, None)

    def _fetch_back(self, transfer: Transfer) -> None:
        """Members that are ahead of this instant: who has come, or has given up, later than now, does so again.

        So the last one to come is the last in virtual time as well.
        """
        now_ns, rollback_log = self._event_queue.now_ns, self._rollback_log
        for launch, gone_ns in tuple(transfer.gone):
            if gone_ns > now_ns:
                rollback_log.go_back(launch.stream.device.host, gone_ns)
        if len(transfer.kernels) == len(transfer.collective.ranks):
            last_ns = max(launch.arrived_ns for launch in transfer.kernels)
            if last_ns > now_ns:
                for launch in [launch for launch in transfer.kernels if launch.arrived_ns == last_ns]:
                    rollback_log.go_back(launch.stream.device.host, last_ns)

    def _begin(self, transfer: Transfer) -> None:
        now_ns, rollback_log = self._event_queue.now_ns, self._rollback_log
        self.begun += 1
        transfer.begun_ns = now_ns
        self._keys[transfer.collective] = transfer
        for launch in transfer.kernels:
            device = launch.stream.device
            if rollback_log.on:
                undo = rollback_log.reach(device.host).undo
                undo.append((_set_kernel, (launch, launch.active, launch.remaining)))
                undo.append((self._unbegin, (transfer, now_ns)))
            if not launch.active:
                device.account(now_ns)
                device.transferring += 1
            launch.active += 1
        self._stale = True
        revised = self._network.begin(transfer.collective, now_ns)
        if revised:
            self._revise(revised)
            rollback_log.settle()

    def _unbegin(self, transfer: Transfer, begun_ns: int) -> None:
        """For the first of the members that goes back; the others have to."""
        if transfer.begun_ns != begun_ns:
            return
        self.begun -= 1
        transfer.begun_ns = transfer.done_ns = -1
        del self._keys[transfer.collective]
        for launch in transfer.kernels:
            self._rollback_log.demand(launch.stream.device.host, begun_ns)
        self._stale = True
        self._revise(self._network.retract(transfer.collective))

    def _revise(self, revised: Revised) -> None:
        """Completions moved: members that had been told go back to before."""
        for key, before_ns, after_ns in revised:
            transfer = self._keys[key]
            transfer.done_ns = -1
            at_ns = before_ns if after_ns is None or before_ns < after_ns else after_ns
            for launch in transfer.kernels:
                if launch in transfer.delivered:
                    self._rollback_log.demand(launch.stream.device.host, at_ns)

    def complete(self) -> list[Transfer]:
        """It is the instant that ``refresh`` named: meetings that are done release their kernels."""
        now_ns = self._event_queue.now_ns
        done = []
        if self._network_ns == now_ns:
            for key in self._network.complete(now_ns):
                transfer = self._keys[key]
                transfer.done_ns = now_ns
                done.append(transfer)
        self._stale = True
        if self._rollback_log.on:
            self._finished += [(now_ns, transfer.collective) for transfer in done]
        if self._rollback_log.on or self._again:
            done = self._with_those_again(done)
        for transfer in done:
            self._deliver(transfer)
        return done

    def _with_those_again(self, done: list[Transfer]) -> list[Transfer]:
        """Members that are at this instant already, or further, go back to its start: completions come first."""
        now_ns, again = self._event_queue.now_ns, self._again
        found = {transfer.collective: transfer for transfer in done}
        checked: set[Collective] = set()
        while True:
            while again and again[0][0] <= now_ns:
                at_ns, key = heappop(again)
                if at_ns == now_ns and self._is_due(at_ns, key):
                    found[key] = self._keys[key]
            todo = found.keys() - checked
            if not todo:
                return [found[key] for key in sorted(found)]
            for key in todo:
                checked.add(key)
                transfer = found[key]
                for launch in transfer.kernels:
                    if launch not in transfer.delivered:
                        first_ns = now_ns + (transfer.begun_ns == now_ns)
                        self._rollback_log.go_back(launch.stream.device.host, first_ns)

    def _deliver(self, transfer: Transfer) -> None:
        now_ns, rollback_log = self._event_queue.now_ns, self._rollback_log
        del self.under_way[transfer.collective]
        if not rollback_log.on:
            del self._keys[transfer.collective]
        told = transfer.delivered.copy()
        for launch in transfer.kernels:
            device = launch.stream.device
            if rollback_log.on:
                if launch in told:
                    continue
                checkpoint = rollback_log.act(device.host)
                checkpoint.undo.append((_set_kernel, (launch, launch.active, launch.remaining)))
                checkpoint.undo.append((self._undeliver, (transfer, launch)))
                transfer.delivered.add(launch)
                if transfer not in checkpoint.completed:
                    checkpoint.completed.append(transfer)
            launch.active -= 1
            launch.remaining -= 1
            if not launch.active:
                device.account(now_ns)
                device.transferring -= 1
            if not launch.remaining:
                self._streams.finish_launch(launch)

    def _undeliver(self, transfer: Transfer, launch: NcclKernel) -> None:
        transfer.delivered.discard(launch)
        self.under_way[transfer.collective] = transfer
        if transfer.done_ns >= 0:
            heappush(self._again, (transfer.done_ns, transfer.collective))
            self._stale = True

    def abandon(self, streams: Iterable[Stream], comm: int) -> None:
        """ncclCommAbort: the communicator's kernels on these streams that wait for peers end now, later ones at once.

        Their peers' kernels go on waiting, as on real GPUs.
        """

        def concerns(launch: NcclKernel) -> bool:
            return any(collective.comm.id == comm for collective in launch.collectives)

        for stream in streams:
            stream.items = [
                (SEGMENT_ITEM, 1, 0, 0, 0)
                if place > stream.head and item[0] == NCCL_ITEM and concerns(item[1])
                else item
                for place, item in enumerate(stream.items)
            ]
            if stream.state == StreamState.COLLECTIVE:
                launch = stream.items[stream.head][1]
                if concerns(launch) and not launch.active:
                    for collective in launch.collectives:
                        transfer = self.under_way.get(collective)
                        if transfer is not None and transfer.begun_ns < 0:
                            self._give_up(transfer, launch)
                    self._streams.finish_launch(launch)

    def _give_up(self, transfer: Transfer, launch: NcclKernel) -> None:
        gone = (launch, self._event_queue.now_ns)
        transfer.kernels.remove(launch)
        transfer.gone.append(gone)
        if self._rollback_log.on:
            undo = self._rollback_log.checkpoint(launch.stream.device.host).undo
            undo.append((transfer.gone.remove, (gone,)))
            undo.append((transfer.kernels.append, (launch,)))

    def commit(self, at_ns: int) -> None:
        """Nothing before this instant will be taken back."""
        if self._finished:
            kept = []
            for done_ns, key in self._finished:
                transfer = self._keys.get(key)
                if transfer is not None and transfer.done_ns == done_ns:
                    if done_ns < at_ns and _all_know(transfer):
                        del self._keys[key]
                    else:
                        kept.append((done_ns, key))
            self._finished = kept
        self._network.commit(at_ns)
