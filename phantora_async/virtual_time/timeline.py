"""The one discrete-event simulation that executes what all ranks said, in order of virtual time.

Gating: a host whose next fact has not come keeps its place in the agenda at its clock, because the fact can be no
earlier. When its turn comes, the simulation stops there: nothing that comes later in the total order can be decided
yet. So the sequence of events is a function of the facts alone, whatever order they arrive in. Going on regardless is
``speculation``'s business, and what it does is thrown away or proves right before anything of it leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from heapq import heappop
from typing import Any

from phantora_async.virtual_time.answer_release import AnswerRelease
from phantora_async.virtual_time.collective_log import CollectiveLog
from phantora_async.virtual_time.collectives import Collectives, NetworkModel
from phantora_async.virtual_time.entities import Host, HostState, Stream
from phantora_async.virtual_time.event_queue import HOSTS, NEVER, EventQueue
from phantora_async.virtual_time.hosts import Answer, Hosts
from phantora_async.virtual_time.rollback_log import RollbackLog
from phantora_async.virtual_time.snapshot import Snapshot, take
from phantora_async.virtual_time.speculation import Speculation
from phantora_async.virtual_time.step_log import StepLog
from phantora_async.virtual_time.streams import Streams

KEPT_FACTS = 1024
"""Facts behind the cursor are forgotten when there are this many."""


class Stop(Enum):
    BUDGET = "there is more to do"
    STARVED = "the next fact of some rank has to come first"
    DRAINED = "no rank can do anything"


class Timeline:
    """``feed`` facts, ``run``, take ``answers``. Not a thread's business but its caller's."""

    def __init__(self, world_size: int, network: NetworkModel, queue_depth: int, *, optimistic: bool = False) -> None:
        """`optimistic`: answers leave as soon as they are simulated, though they may be revised."""
        self.event_queue = EventQueue()
        self.rollback_log = RollbackLog(self.event_queue)
        self.streams = Streams(self.event_queue, self.rollback_log)
        self.collectives = Collectives(self.event_queue, self.streams, self.rollback_log, network)
        self.operations = Hosts(self.event_queue, self.streams, self.collectives, self.rollback_log, queue_depth)
        self._passed_over: list[Host] = []
        self._passing = False
        self.hosts = [Host(rank, HOSTS + rank) for rank in range(world_size)]
        self.steps = StepLog()
        self.collective_log = CollectiveLog(0)
        self.answer_release = AnswerRelease(optimistic)
        self.speculation = Speculation(self)
        self.starved: Host | None = None
        """Whose fact has to come first; set when ``run`` returns STARVED."""
        self._facts = 0
        self._turns = 0
        for host in self.hosts:
            self.event_queue.push(0, host)

    @property
    def now_ns(self) -> int:
        """Global virtual time: everything before it is decided."""
        return self.speculation.gvt_ns() if self.speculation.active else self.event_queue.now_ns

    @property
    def ahead_ns(self) -> int:
        """How far any rank has been simulated."""
        if not self.speculation.active:
            return self.now_ns
        return max(self.now_ns, self.speculation.furthest_ns())

    @property
    def facts_done(self) -> int:
        """Facts executed, and not taken back."""
        return self._facts - self.rollback_log.facts

    @property
    def turns(self) -> int:
        """Events executed, with those that were taken back: ``journal.turns`` of them."""
        return self._turns

    def snapshot(self, ranks: Sequence[int] | None = None) -> Snapshot:
        """The present state, as values. `ranks`: those to be looked at in detail, all if it is left out."""
        return take(self, range(len(self.hosts)) if ranks is None else ranks)

    def feed(self, rank: int, facts: Iterable[Any]) -> None:
        """Appends what a rank said, in its order."""
        host = self.hosts[rank]
        host.log.extend(facts)
        if host.silent:
            self.speculation.heard(host)

    def queued(self, rank: int) -> int:
        host = self.hosts[rank]
        return len(host.log) - host.cursor

    def all_finished(self) -> bool:
        """Every rank's goodbye has been reached."""
        return all(host.state == HostState.FINISHED for host in self.hosts)

    def take_answers(self) -> list[tuple[int, bytes]]:
        """(rank, encoded record) of questions decided since the last call, each rank's in the order of virtual time."""
        return self.answer_release.take()

    def pass_over(self, ranks: Sequence[int]) -> None:
        """These ranks are asleep where no record tells of it: until the next answer leaves, they hold nothing back.

        Then they are taken to have slept until that instant. Whoever wakes them went on because of that answer, or of
        one before it. Meanwhile nothing is simulated ahead.
        """
        if self.speculation.active:
            self.speculation.stop()
        self._passing = True
        for rank in ranks:
            self.hosts[rank].may_pass = True

    def run(self, budget: int, ahead: bool = False) -> Stop:
        """Executes about `budget` turns. Raises ProtocolError for a fact that no working hook sends.

        `ahead`: if a rank's next fact is missing, go on as if it came later. STARVED then means that nothing is left to
        simulate, either.
        """
        if self.speculation.active:
            budget, exhausted = self._speculate(budget, ahead)
            if exhausted or self.speculation.active or budget <= 0:
                return self._stop(exhausted)
        before = budget
        stop, left = self._run(budget)
        self._turns += before - left
        self._let_answers_go()
        if stop is Stop.STARVED and ahead and not self._passing:
            _, exhausted = self._speculate(max(left, 1), True)
            return self._stop(exhausted)
        self.collectives.commit(self.event_queue.now_ns)
        return stop

    def _speculate(self, budget: int, ahead: bool) -> tuple[int, bool]:
        left, exhausted = self.speculation.run(budget, ahead)
        self._turns += budget - left
        return left, exhausted

    def _stop(self, exhausted: bool) -> Stop:
        if not exhausted:
            return Stop.BUDGET
        self.starved = self.speculation.starved()
        return Stop.DRAINED if self.starved is None else Stop.STARVED

    def _let_answers_go(self) -> None:
        answers = self.operations.answers
        if answers:
            for host, number, encoded in answers:
                self.answer_release.answer(host, number, encoded)
            answers.clear()

    def _run(self, budget: int) -> tuple[Stop, int]:
        event_queue, collectives, operations = self.event_queue, self.collectives, self.operations
        heap, arrived, woken = event_queue.heap, self.streams.arrived, event_queue.woken
        while budget > 0:
            budget -= 1
            network_ns = collectives.refresh()
            if not heap or network_ns <= heap[0][0]:
                if network_ns == NEVER:
                    if self._passed_over:
                        self._return_all()
                        continue
                    return Stop.DRAINED, budget
                event_queue.now_ns = network_ns
                for transfer in collectives.complete():
                    self.collective_log.add(transfer, network_ns)
            else:
                entry = heap[0]
                at_ns, order, _, target = entry
                if target.due is not entry:
                    heappop(heap)
                    continue
                if order < HOSTS:
                    heappop(heap)
                    assert isinstance(target, Stream)
                    target.due = None
                    event_queue.now_ns = at_ns
                    self.streams.finish_segment(target)
                else:
                    assert isinstance(target, Host)
                    if target.cursor >= len(target.log):
                        if target.may_pass:
                            heappop(heap)
                            target.due = None
                            operations.block(target, HostState.PASSED_OVER, None)
                            self._passed_over.append(target)
                            continue
                        if self._passed_over:
                            self._return_all()
                            continue
                        self.starved = target
                        return Stop.STARVED, budget
                    heappop(heap)
                    target.due = None
                    due_ns = target.clock_ns if target.again else target.clock_ns + target.log[target.cursor][3]
                    if due_ns > at_ns:
                        event_queue.push(due_ns, target)
                        continue
                    event_queue.now_ns = at_ns
                    budget -= self._go_on(target)
            while arrived or woken or self.streams.completed_steps:
                self.follow_up()
            if self._passed_over and operations.answers:
                self._return_all()
        return Stop.BUDGET, budget

    def _go_on(self, host: Host) -> int:
        """Executes the host's facts while nothing else comes first. Returns how many."""
        event_queue, handlers, collectives = self.event_queue, self.operations.handlers, self.collectives
        heap, order, log = event_queue.heap, host.order, host.log
        done = 0
        while True:
            fact = log[host.cursor]
            host.clock_ns = now_ns = event_queue.now_ns
            host.again = False
            done += 1
            if not handlers[fact[0]](host, fact):
                break
            host.cursor = cursor = host.cursor + 1
            if event_queue.woken or self.streams.arrived or self.streams.completed_steps:
                self.follow_up()
            if cursor >= len(log):
                event_queue.push(now_ns, host)
                break
            due_ns = now_ns + log[cursor][3]
            if (heap and (heap[0][0] < due_ns or (heap[0][0] == due_ns and heap[0][1] < order))) or (
                collectives.refresh() <= due_ns
            ):
                event_queue.push(due_ns, host)
                break
            event_queue.now_ns = due_ns
        if host.cursor > KEPT_FACTS:
            self.forget_facts(host, host.facts_done)
        self._facts += done
        return done

    # ---- for speculation -------------------------------------------------------------------------------------------

    def execute(self, host: Host) -> bool:
        """The host's next fact, now. Says whether the host goes on to the one after it at this instant."""
        fact = host.log[host.cursor]
        before = host.cursor
        host.clock_ns = self.event_queue.now_ns
        host.again = False
        goes_on = self.operations.handlers[fact[0]](host, fact)
        if goes_on:
            host.cursor += 1
        self._facts += host.cursor - before
        return goes_on

    def drain_answers(self) -> list[Answer]:
        """What the fact just executed was answered with."""
        answers = self.operations.answers
        if answers:
            self.operations.answers = []
        return answers

    def forget_facts(self, host: Host, needed: int) -> None:
        """Facts before number `needed` will not be executed again; they go when there are many. The last one stays: it
        may be what the host waits in."""
        count = needed - 1 - host.forgotten
        if count > KEPT_FACTS:
            del host.log[:count]
            host.cursor -= count
            host.forgotten += count

    def follow_up(self) -> None:
        """What an event made possible at the same instant."""
        arrived, woken, steps = self.streams.arrived, self.event_queue.woken, self.streams.completed_steps
        while arrived or woken or steps:
            while arrived:
                self.collectives.arrive(arrived.pop(0))
            while woken:
                self._give_turn(woken.pop(0))
            while steps:
                step = steps.pop(0)
                step.device_ns = self.event_queue.now_ns
                step.shares = step.host.shares_at(step.device_ns)
                if self.rollback_log.on:
                    self.rollback_log.checkpoint(step.host).step_ends.append(step)
                else:
                    self.steps.keep(step)

    def _give_turn(self, host: Host) -> None:
        self.operations.wake(host)
        at_ns = host.clock_ns
        if not host.again and host.cursor < len(host.log):
            at_ns += host.log[host.cursor][3]
        self.event_queue.push(at_ns, host)

    def _return_all(self) -> None:
        """An answer has left, or nothing can happen without them: those passed over hold time at this instant now."""
        for host in self._passed_over:
            self._give_turn(host)
        self._passed_over.clear()
        self._passing = False
        for host in self.hosts:
            host.may_pass = False
