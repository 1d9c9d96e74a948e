"""The one discrete-event simulation that executes the facts of all ranks in order of virtual time.

Gating: a host whose next fact has not come keeps its place in the event queue at its clock, because the fact can be no
earlier. When that place is the first, the simulation stops: nothing later in the total order can be decided yet. So the
sequence of events is a function of the facts alone, whatever order they arrive in. To go ahead of such a host, the same
loop executes the same events with the rollback log on (see ``speculation``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import Enum
from heapq import heappop
from typing import Any, NamedTuple

from phantora_async.faults.pace import NO_PACES, Paces
from phantora_async.over_time import Activity, parts_for
from phantora_async.virtual_time.announcer import Announcer, Listener
from phantora_async.virtual_time.collectives import Collectives, NetworkModel
from phantora_async.virtual_time.comm_creations import CommCreations
from phantora_async.virtual_time.entities import KEPT_FACTS, Host, HostState, MemoryLimit, MemoryPeaks, Stream
from phantora_async.virtual_time.event_queue import HOSTS, NETWORK, NEVER, EventQueue
from phantora_async.virtual_time.hosts import Hosts
from phantora_async.virtual_time.output import Output
from phantora_async.virtual_time.restart import begin_again, restart
from phantora_async.virtual_time.rollback_log import RollbackLog
from phantora_async.virtual_time.snapshot import Snapshot, take, take_activity
from phantora_async.virtual_time.speculation.foresight import Foresight
from phantora_async.virtual_time.speculation.speculation import Speculation
from phantora_async.virtual_time.streams import Streams
from phantora_async.virtual_time.timelines import Timelines


class OutsideWait(NamedTuple):
    """A host that was passed over went on."""

    rank: int
    facts_done: int
    """How many facts of the rank came before the wait."""
    for_ns: int
    cause: tuple[int, int] | None = None
    """The rank whose answer has ended it, and how many facts that rank had executed then; None: no answer has."""


class Stop(Enum):
    BUDGET = "there is more to do"
    STARVED = "the next fact of some rank has to come first"
    DRAINED = "no rank can do anything"
    LIMIT = "nothing is left before the instant at which the run ends"


class Timeline:
    """``feed`` facts, ``run``, ``take_answers``. Not thread-safe: the caller must serialise calls."""

    def __init__(
        self,
        world_size: int,
        network: NetworkModel,
        queue_depth: int,
        *,
        optimistic: bool = False,
        paces: Paces = NO_PACES,
        timelines: Timelines | None = None,
    ) -> None:
        """`optimistic`: answers leave as soon as they are simulated, though they may be revised. `timelines`: which
        ranks share one; None: each has its own.
        """
        timelines = timelines or Timelines(world_size)
        self._own = {
            rank: Host(rank, HOSTS + rank, paces.hosts.get(rank), timelines.gpu_of(rank)) for rank in timelines.own
        }
        self.hosts = [self._own[rank] for rank in timelines.of_each]
        """By rank. Ranks that share a timeline have one host."""
        self.own_hosts = tuple(self._own.values())
        """Each once."""
        self.event_queue = EventQueue()
        self.rollback_log = RollbackLog(self.event_queue)
        self.announcer = Announcer(self.rollback_log)
        self.output = Output(self.rollback_log, self.announcer, optimistic)
        self.streams = Streams(self.event_queue, self.rollback_log, self.announcer)
        self.collectives = Collectives(
            self.event_queue, self.rollback_log, self.streams, self.output, self.announcer, network
        )
        self.comm_creations = CommCreations(self.event_queue, self.rollback_log)
        self.host_rules = Hosts(
            self.event_queue,
            self.rollback_log,
            self.streams,
            self.collectives,
            self.comm_creations,
            self.output,
            self.announcer,
            queue_depth,
            parts_for(world_size),
            paces,
        )
        self.speculation = Speculation(
            self.own_hosts, self.event_queue, self.collectives, self.rollback_log, self.output
        )
        self.foresight = Foresight(self.event_queue, self.collectives, self.output)
        self.starved: int | None = None
        """The rank whose fact has to come first; set when ``run`` returns STARVED."""
        self.events = 0
        """Events executed, with those that were taken back."""
        self.limit_ns = NEVER
        """No event from this instant on is executed."""
        self._facts = 0
        self._passing = False
        self._passed_over: list[Host] = []
        self._outside_waits: list[OutsideWait] = []
        self._answers_before = 0
        for host in self.own_hosts:
            self.event_queue.push(0, host)

    # ---- the face --------------------------------------------------------------------------------------------------

    @property
    def now_ns(self) -> int:
        """Global virtual time: everything before it is decided."""
        return self.speculation.global_ns() if self.rollback_log.on else self.event_queue.now_ns

    @property
    def ahead_ns(self) -> int:
        """How far any rank has been simulated."""
        return max(self.now_ns, self.speculation.furthest_ns()) if self.rollback_log.on else self.now_ns

    @property
    def facts_done(self) -> int:
        """Facts, as they were fed, that are executed and not taken back."""
        return self._facts - self.rollback_log.facts - self.host_rules.repetitions.expanded

    def snapshot(self, ranks: Sequence[int] | None = None) -> Snapshot:
        """The present state, as values. `ranks`: those to be looked at in detail, all if it is left out."""
        return take(self, range(len(self.hosts)) if ranks is None else ranks)

    def activity(self) -> Activity:
        """What every rank's GPUs have done over time, until now."""
        return take_activity(self)

    def listen(self, listener: Listener, ranks: Iterable[int]) -> None:
        """From now on the listener is told of all that happens to these ranks, too: see ``announcer``."""
        self.announcer.listen(listener, ranks)

    def limit_memory(self, most: MemoryPeaks, last_step: int) -> None:
        """Hosts whose peaks exceed these are held when a step ends, except after `last_step`, after which the run ends
        anyhow; 0: there is none.
        """
        self.host_rules.memory_limit = MemoryLimit(most, last_step)

    def feed(self, rank: int, facts: Iterable[Any]) -> None:
        """Appends facts of one rank, in the rank's order."""
        host = self.hosts[rank]
        host.log.extend(facts)
        if host.silent:
            self.speculation.heard(host)

    def queued(self, rank: int) -> int:
        """How many of the rank's facts wait to be executed."""
        host = self.hosts[rank]
        return len(host.log) - host.cursor

    def all_finished(self) -> bool:
        """Has every host executed its BYE?"""
        return all(host.state == HostState.FINISHED for host in self.own_hosts)

    def take_answers(self) -> list[tuple[int, bytes]]:
        """(rank, encoded record) of what has been answered since the last call, each rank's in the order of its
        questions."""
        return self.output.take_answers()

    def take_outside_waits(self) -> list[OutsideWait]:
        """Waits of ranks that were passed over, since the last call."""
        waits, self._outside_waits = self._outside_waits, []
        return waits

    def pass_over(self, ranks: Sequence[int]) -> None:
        """These ranks sleep where no record tells of it: until the next answer leaves, they hold no time back.

        At that instant their hosts go on: whatever wakes them follows from that answer or from one before it. Meanwhile
        nothing is simulated ahead.
        """
        if self.rollback_log.on:
            self.speculation.stop()
        if self._foresee():
            return
        self._passing = True
        self._answers_before = self.output.answers_sent
        for rank in ranks:
            self.hosts[rank].may_pass = True

    def restart(self, first: int, ranks: Collection[int], not_before_ns: int = 0) -> int:
        """All processes have ended, because that of the rank `first` failed; those of `ranks` start again at the end of
        its last fact, or later. Returns that instant. All facts of the ended processes have been fed.
        """
        if self.rollback_log.on:
            self.speculation.stop()
        if self._passing or self._passed_over:
            self._return_all()
        return restart(self, self.host_rules, first, ranks, not_before_ns)

    def has_ended(self, rank: int) -> bool:
        """Has everything been executed that the rank sent up to its BYE, and what its GPU was given? Ends what is
        simulated ahead.
        """
        if self.rollback_log.on:
            self.speculation.stop()
        host = self.hosts[rank]
        return host.state == HostState.FINISHED and not any(stream.state for stream in host.ordered_streams())

    def begin_again(self, rank: int) -> None:
        """The process of the rank ``has_ended``, and another one of the same rank starts at the present instant."""
        begin_again(self, self.hosts[rank])

    def run(self, budget: int, ahead: bool = False) -> Stop:
        """Executes about `budget` events. Raises ProtocolError for a fact that no working hook sends.

        `ahead`: if a rank's next fact is missing, go on as if it came later. STARVED then means that nothing is left to
        simulate, either.
        """
        if self.rollback_log.on:
            self.speculation.listen()
        stop, left = self._execute(budget, ahead)
        self.events += budget - left
        if self.rollback_log.on:
            self.speculation.commit()
        else:
            self.collectives.commit(self.event_queue.now_ns)
        return stop

    # ---- the loop --------------------------------------------------------------------------------------------------

    def _execute(self, budget: int, ahead: bool) -> tuple[Stop, int]:
        """Event by event in their total order. Returns what is left of the budget."""
        event_queue, collectives, log = self.event_queue, self.collectives, self.rollback_log
        heap, arrived, woken = event_queue.heap, event_queue.arrived, event_queue.woken
        limit_ns = self.limit_ns
        while budget > 0:
            network_ns = collectives.refresh() if collectives.stale else collectives.next_ns
            at_ns, order, target = network_ns, NETWORK, None
            while heap:
                first_ns, first_order, _, first = entry = heap[0]
                if first.due is entry:
                    if first_ns < network_ns:
                        at_ns, order, target = first_ns, first_order, first
                    break
                heappop(heap)
            if at_ns >= limit_ns:
                if at_ns != NEVER and self.speculation.first_silent() is None:
                    event_queue.now_ns = limit_ns
                    return Stop.LIMIT, budget
                if at_ns == NEVER and self._passed_over:
                    self._return_all()
                    continue
                return self._starve(self.speculation.first_silent()), budget
            if log.on and not ahead and self.speculation.waits_before(at_ns, order):
                return self._starve(self.speculation.first_silent()), budget
            if type(target) is Host:
                if target.cursor >= len(target.log):
                    if not self._goes_on_without(target, ahead):
                        return self._starve(target), budget
                    continue
                event_queue.now_ns = at_ns
                # As Host.next_ns, without the call.
                due_ns = target.clock_ns if target.retry else target.clock_ns + target.log[target.cursor].host_ns
                if target.pace is not None:
                    due_ns = target.next_ns()
                if due_ns > at_ns:
                    event_queue.push(due_ns, target)
                    if not log.on:
                        self.foresight.look(target, due_ns)
                    continue
                if log.on:
                    log.act(target)
                heappop(heap)
                target.due = None
                budget -= self._execute_facts(target)
            elif type(target) is Stream:
                event_queue.now_ns = at_ns
                if log.on:
                    log.act(target.device.host)
                heappop(heap)
                target.due = None
                self.streams.finish_segment(target)
                budget -= 1
            else:
                event_queue.now_ns = at_ns
                collectives.complete()
                budget -= 1
            if arrived or woken:
                self._follow_up()
            if self._passing and self.output.answers_sent != self._answers_before:
                self._return_all()
            if log.on:
                self.speculation.executed(ahead)
        return Stop.BUDGET, budget

    def _execute_facts(self, host: Host) -> int:
        """The host's facts from the present instant on, while nothing else comes first. Returns how many."""
        event_queue, collectives, log = self.event_queue, self.collectives, self.rollback_log
        heap, handlers = event_queue.heap, self.host_rules.handlers
        order, facts, first, pace = host.order, host.log, host.cursor, host.pace
        executed = 0
        while True:
            fact = facts[host.cursor]
            host.clock_ns = now_ns = event_queue.now_ns
            host.retry = False
            executed += 1
            if not handlers[fact.kind](host, fact):
                break
            host.cursor = cursor = host.cursor + 1
            if event_queue.arrived or event_queue.woken:
                self._follow_up()
            if cursor >= len(facts):
                event_queue.push(now_ns, host)
                break
            due_ns = now_ns + facts[cursor].host_ns if pace is None else host.next_ns()
            if (
                log.on
                or (heap and heap[0] < (due_ns, order))
                or collectives.refresh() <= due_ns
                or due_ns >= self.limit_ns
            ):
                event_queue.push(due_ns, host)
                if not log.on:
                    self.foresight.look(host, due_ns)
                break
            event_queue.now_ns = due_ns
        self._facts += host.cursor - first
        if host.cursor > KEPT_FACTS and not log.on:
            host.forget(host.facts_done)
        return executed

    def _follow_up(self) -> None:
        """Executes what an event has made possible at the same instant."""
        arrived, woken = self.event_queue.arrived, self.event_queue.woken
        while arrived or woken:
            while arrived:
                self.collectives.arrive(arrived.pop(0))
            while woken:
                self.host_rules.wake(woken.pop(0))

    # ---- missing facts ---------------------------------------------------------------------------------------------

    def _starve(self, host: Host | None) -> Stop:
        """Nothing more can be decided without this host's next fact; None: no fact is missing."""
        self.starved = None if host is None else host.rank
        return Stop.DRAINED if host is None else Stop.STARVED

    def _goes_on_without(self, host: Host, ahead: bool) -> bool:
        """The host is the first in the event queue, and its next fact has not come. False: the simulation stops."""
        if host.may_pass:
            self.event_queue.drop(host)
            self.host_rules.block(host, HostState.PASSED_OVER)
            self._passed_over.append(host)
        elif self._passed_over:
            self._return_all()
        elif ahead and not self._passing:
            self.speculation.fall_silent(host)
        else:
            return False
        return True

    def _foresee(self) -> bool:
        """Do answers leave that are certain by now? So the same ones have left, whatever was simulated ahead before."""
        waiting = [host for host in self.own_hosts if not host.state and host.cursor < len(host.log)]
        answered = [host for host in waiting if self.foresight.look(host, host.next_ns())]
        return bool(answered)

    def _return_all(self) -> None:
        """An answer has left, or nothing else can happen: hosts that were passed over go on at this instant."""
        cause = None
        if self.output.answers_sent != self._answers_before:
            cause = self.output.latest, self.hosts[self.output.latest].facts_done
        for host in self._passed_over:
            waited_ns = self.event_queue.now_ns - host.clock_ns
            self._outside_waits.append(OutsideWait(host.rank, host.facts_done, waited_ns, cause))
            self.host_rules.wake(host)
        self._passed_over.clear()
        self._passing = False
        for host in self.own_hosts:
            host.may_pass = False
