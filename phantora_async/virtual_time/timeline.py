"""The one discrete-event simulation that executes what all ranks said, in order of virtual time.

Gating: a host whose next fact has not come keeps its place in the agenda at its clock, because the fact can be no
earlier. When its turn comes, the simulation stops there: nothing that comes later in the total order can be decided
yet. So the sequence of events is a function of the facts alone, whatever order they arrive in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from heapq import heappop
from typing import Any

from phantora_async.virtual_time.agenda import HOSTS, NEVER, Agenda
from phantora_async.virtual_time.collectives import Collectives, Fabric
from phantora_async.virtual_time.entities import Host, HostState, Stream
from phantora_async.virtual_time.hosts import Hosts
from phantora_async.virtual_time.rhythm import Rhythm
from phantora_async.virtual_time.steps import Steps
from phantora_async.virtual_time.streams import Streams

KEPT_FACTS = 1024
"""Facts behind the cursor are forgotten when there are this many."""


class Stop(Enum):
    BUDGET = "there is more to do"
    STARVED = "the next fact of some rank has to come first"
    DRAINED = "no rank can do anything"


class Timeline:
    """``feed`` facts, ``run``, take ``answers``. Not a thread's business but its caller's."""

    def __init__(self, world_size: int, fabric: Fabric, queue_depth: int) -> None:
        self._agenda = Agenda()
        self._streams = Streams(self._agenda)
        self.collectives = Collectives(self._agenda, self._streams, fabric)
        self._operations = Hosts(self._agenda, self._streams, self.collectives, queue_depth)
        self._aside: list[Host] = []
        self.hosts = [Host(rank, HOSTS + rank) for rank in range(world_size)]
        self.steps = Steps()
        self.rhythm = Rhythm(0)
        self.starved: Host | None = None
        """Whose fact has to come first; set when ``run`` returns STARVED."""
        self.facts_done = 0
        for host in self.hosts:
            self._agenda.push(0, host)

    @property
    def now_ns(self) -> int:
        """Global virtual time: everything before it is decided."""
        return self._agenda.now_ns

    def gathered(self, gathering: object) -> list[int]:
        """Ranks that have come to a gathering and wait in it."""
        return self._operations.gathered(gathering)

    def feed(self, rank: int, facts: Iterable[Any]) -> None:
        """Appends what a rank said, in its order."""
        self.hosts[rank].log.extend(facts)

    def queued(self, rank: int) -> int:
        host = self.hosts[rank]
        return len(host.log) - host.cursor

    def all_finished(self) -> bool:
        """Every rank's goodbye has been reached."""
        return all(host.state == HostState.FINISHED for host in self.hosts)

    def take_answers(self) -> list[tuple[int, bytes]]:
        """(rank, encoded record) of questions decided since the last call, in the order of virtual time."""
        answers, self._operations.answers = self._operations.answers, []
        return answers

    def pass_over(self, ranks: Sequence[int]) -> None:
        """These ranks are asleep where no record tells of it: until the next answer leaves, they hold nothing back.

        Then they are taken to have slept until that instant. Whoever wakes them went on because of that answer, or of
        one before it.
        """
        for rank in ranks:
            self.hosts[rank].may_pass = True

    def run(self, budget: int) -> Stop:
        """Executes about `budget` turns. Raises ProtocolError for a fact that no working hook sends."""
        stop = self._run(budget)
        self.collectives.commit(self._agenda.now_ns)
        return stop

    def _run(self, budget: int) -> Stop:
        agenda, collectives, operations = self._agenda, self.collectives, self._operations
        heap, arrived, woken = agenda.heap, self._streams.arrived, agenda.woken
        while budget > 0:
            budget -= 1
            network_ns = collectives.refresh()
            if not heap or network_ns <= heap[0][0]:
                if network_ns == NEVER:
                    if self._aside:
                        self._return_all()
                        continue
                    return Stop.DRAINED
                agenda.now_ns = network_ns
                for transfer in collectives.complete():
                    self.rhythm.note(transfer, network_ns)
            else:
                at_ns, order, seq, target = heap[0]
                if order < HOSTS:
                    heappop(heap)
                    assert isinstance(target, Stream)
                    if target.due_seq != seq:
                        continue
                    agenda.now_ns = at_ns
                    self._streams.finish_segment(target)
                else:
                    assert isinstance(target, Host)
                    if target.cursor >= len(target.log):
                        if target.may_pass:
                            heappop(heap)
                            operations.block(target, HostState.PASSED_OVER, None)
                            self._aside.append(target)
                            continue
                        if self._aside:
                            self._return_all()
                            continue
                        self.starved = target
                        return Stop.STARVED
                    heappop(heap)
                    due_ns = target.clock_ns if target.again else target.clock_ns + target.log[target.cursor][3]
                    if due_ns > at_ns:
                        agenda.push(due_ns, target)
                        continue
                    agenda.now_ns = at_ns
                    budget -= self._go_on(target)
            while arrived or woken or self._streams.completed_steps:
                self._follow_up()
            if self._aside and operations.answers:
                self._return_all()
        return Stop.BUDGET

    def _go_on(self, host: Host) -> int:
        """Executes the host's facts while nothing else comes first. Returns how many."""
        agenda, handlers, collectives = self._agenda, self._operations.handlers, self.collectives
        heap, order, log = agenda.heap, host.order, host.log
        done = 0
        while True:
            fact = log[host.cursor]
            host.clock_ns = now_ns = agenda.now_ns
            host.again = False
            done += 1
            if not handlers[fact[0]](host, fact):
                break
            host.cursor = cursor = host.cursor + 1
            if agenda.woken or self._streams.arrived or self._streams.completed_steps:
                self._follow_up()
            if cursor >= len(log):
                agenda.push(now_ns, host)
                break
            due_ns = now_ns + log[cursor][3]
            if (heap and (heap[0][0] < due_ns or (heap[0][0] == due_ns and heap[0][1] < order))) or (
                collectives.refresh() <= due_ns
            ):
                agenda.push(due_ns, host)
                break
            agenda.now_ns = due_ns
        if host.cursor > KEPT_FACTS:
            del log[: host.cursor]
            host.cursor = 0
        self.facts_done += done
        return done

    def _follow_up(self) -> None:
        """What an event made possible at the same instant."""
        arrived, woken, steps = self._streams.arrived, self._agenda.woken, self._streams.completed_steps
        while arrived:
            self.collectives.arrive(arrived.pop(0))
        while woken:
            self._give_turn(woken.pop(0))
        while steps:
            self.steps.complete(steps.pop(0), self._agenda.now_ns)

    def _give_turn(self, host: Host) -> None:
        self._operations.wake(host)
        at_ns = host.clock_ns
        if not host.again and host.cursor < len(host.log):
            at_ns += host.log[host.cursor][3]
        self._agenda.push(at_ns, host)

    def _return_all(self) -> None:
        """An answer has left, or nothing can happen without them: those passed over hold time at this instant now."""
        for host in self._aside:
            self._give_turn(host)
        self._aside.clear()
        for host in self.hosts:
            host.may_pass = False
