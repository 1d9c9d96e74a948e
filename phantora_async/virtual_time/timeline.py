"""The one discrete-event simulation that executes what all ranks did in order of virtual time.

The simulation is a C library (``native``); this module wraps it. Facts become rows for it, its numbers become answers,
events and snapshots again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

import numpy as np

from emu.contract import records
from phantora_async.errors import ProtocolError
from phantora_async.faults.pace import NEVER, NO_PACES, Pace, Paces
from phantora_async.figures import Shares
from phantora_async.over_time import Activity, parts_for
from phantora_async.virtual_time import events
from phantora_async.virtual_time.facts import Collective, CommCreation
from phantora_async.virtual_time.native import binding
from phantora_async.virtual_time.native.binding import Engine, PaceTable, Program, Tables, Why
from phantora_async.virtual_time.network import NetworkModel
from phantora_async.virtual_time.results import Results
from phantora_async.virtual_time.rows import LiveRows
from phantora_async.virtual_time.snapshot import Snapshot, take, take_activity, take_generation
from phantora_async.virtual_time.states import NO_TOTALS, GenerationNote, HostState, MemoryPeaks, Totals
from phantora_async.virtual_time.timelines import Timelines

TURN = 100_000
"""The events between two checks who holds time back, before ranks are started again."""


class OutsideWait(NamedTuple):
    """The wait of a host that was passed over and has gone on."""

    rank: int
    facts_done: int
    """The number of the rank's facts before the wait."""
    for_ns: int
    cause: tuple[int, int] | None = None
    """The rank whose answer has ended it, and the number of facts that this rank had executed then; None: no answer has
    ended it.
    """


class Stop(Enum):
    """The reasons for which ``Timeline.run`` ends."""

    BUDGET = "there is more to do"
    STARVED = "the next fact of some rank has to come first"
    DRAINED = "no rank can do anything"
    LIMIT = "nothing is left before the instant at which the run ends"


_STOPS = {Why.BUDGET: Stop.BUDGET, Why.STARVED: Stop.STARVED, Why.DRAINED: Stop.DRAINED, Why.LIMIT: Stop.LIMIT}


class Listener(Protocol):
    """Receives the events of virtual time.

    Listeners are told what is final, and nothing twice: a rollback drops what has not been told, and what is executed
    instead is told instead. Each rank's events come in the order of virtual time. The ranks' events come in one order
    of virtual time as long as nothing is simulated ahead, else rank by rank. They come when ``Timeline.run`` ends. Of
    hosts that meet at one instant, any may be told to have waited there for no time.
    """

    def on(self, rank: int, event: events.Event) -> None:
        """Handles an event. It must not change virtual time, nor run it."""


class Recorded(Protocol):
    """A recorded run, as a timeline executes it: all ranks' rows are known from the start."""

    @property
    def programs(self) -> Sequence[Program]:
        """The programs of the ranks that have timelines of their own, in ascending order of ranks."""

    @property
    def tables(self) -> Tables: ...

    @property
    def creations(self) -> Sequence[CommCreation]:
        """The creations of communicators to which programs refer by number."""

    @property
    def gates(self) -> int:
        """The number of gates at which ranks wait."""

    def collective(self, called: Any) -> Collective:
        """The collective for a program's call: see ``Engine.called``."""

    def counters(self, place: int, number: int) -> Totals:
        """The totals of the program of this place after so many COUNTERS."""


class History(NamedTuple):
    """The cost of simulating ahead of missing facts."""

    ahead: bool
    """True if something is simulated ahead now."""
    events: int
    """The events that were taken back."""
    rollbacks: int
    """The number of times that a rank went back."""
    kept: int
    """The checkpoints that are held."""
    most_kept: int


class Host:
    """A rank's program, as others see it. Ranks that share a timeline have one host."""

    __slots__ = ("_engine", "_place", "gpu", "pace", "rank")

    def __init__(self, engine: Engine, place: int, rank: int, pace: Pace | None, gpu: int) -> None:
        """`place`: its number in the engine; `pace`: None: it always works at full speed; `gpu`: the number of its own
        GPU on its server, -1: not known.
        """
        self._engine = engine
        self._place = place
        self.rank = rank
        self.pace = pace
        self.gpu = gpu

    @property
    def state(self) -> HostState:
        return HostState(self._engine.state(self._place))

    @property
    def steps(self) -> int:
        """The number of step ends that it has come to."""
        return self._engine.steps(self._place)

    @property
    def clock_ns(self) -> int:
        """The instant at which it executed its last fact, or was woken."""
        return self._engine.clock_ns(self._place)

    @property
    def memory(self) -> dict[int, MemoryPeaks]:
        """The peaks of memory, by device."""
        view = self._engine.host(self._place)
        changes = binding.int64s(view.memory, 5 * view.nmemory).reshape(-1, 5).tolist()
        return {device: MemoryPeaks(*peaks) for _, device, *peaks in changes}

    @property
    def checkpoints(self) -> list[int]:
        """The instants of its history since global virtual time, while the simulation is ahead of that."""
        return self._engine.checkpoints(self._place)

    def undone_recordings(self) -> list[int]:
        """The numbers of its event recordings that are not complete."""
        return self._engine.undone(self._place)


class _Network:
    """The network, as the engine calls it: with numbers in place of collectives."""

    def __init__(self, network: NetworkModel, recorded: Recorded | None) -> None:
        self.engine: Engine
        self._network = network
        self._recorded = recorded
        self._numbers: dict[Collective, int] = {}
        self._collectives: dict[int, Collective] = {}

    def number_of(self, collective: Collective) -> int:
        """The collective's number. The engine knows a collective from its first call on."""
        number = self._numbers.get(collective)
        if number is None:
            size, weight = len(collective.callers), len(collective.offsets)
            number = self._numbers[collective] = self.engine.collective(collective.comm.id, size, weight)
            self._collectives[number] = collective
        return number

    def collective(self, number: int) -> Collective:
        found = self._collectives.get(number)
        if found is None:
            assert self._recorded is not None, "live ranks' collectives are known from their calls"
            found = self._collectives[number] = self._recorded.collective(self.engine.called(number))
            self._numbers[found] = number
            self.engine.weigh(number, len(found.offsets))
        return found

    def forget(self, numbers: Iterable[int]) -> None:
        """Frees these numbers, which may be given to other collectives."""
        for number in numbers:
            found = self._collectives.pop(number, None)
            if found is not None:
                del self._numbers[found]

    # ---- what the engine asks --------------------------------------------------------------------------------------

    def begin(self, number: int, at_ns: int, beside_compute: int) -> int:
        return self._revise(self._network.begin(self.collective(number), at_ns, bool(beside_compute)))

    def retract(self, number: int) -> int:
        return self._revise(self._network.retract(self.collective(number)))

    def _revise(self, revised: Iterable[Any]) -> int:
        for collective, before_ns, after_ns in revised:
            number = self._numbers.get(collective)
            if number is not None:  # else its members' processes have ended
                self.engine.revised(number, before_ns, NEVER if after_ns is None else after_ns)
        return 0

    def next(self) -> int:
        found = self._network.next_ns()
        return NEVER if found is None else found

    def complete(self, at_ns: int) -> list[int]:
        numbers = self._numbers
        return [numbers[collective] for collective in self._network.complete(at_ns) if collective in numbers]

    def commit(self, at_ns: int) -> int:
        self._network.commit(at_ns)
        return 0

    def shortest(self, number: int) -> int:
        return self._network.shortest_ns(self.collective(number))

    def sort(self, numbers: list[int]) -> list[int]:
        return sorted(numbers, key=self.collective)


class Timeline:
    """Executes the ranks' facts: ``feed`` facts, ``run``, ``take_answers``. Not thread-safe: the caller must serialise
    calls.
    """

    def __init__(
        self,
        world_size: int,
        network: NetworkModel,
        queue_depth: int,
        *,
        paces: Paces = NO_PACES,
        timelines: Timelines | None = None,
        recorded: Recorded | None = None,
    ) -> None:
        """`timelines`: says which ranks share one; None: each has its own. `recorded`: everything that the ranks do;
        None: facts are fed.
        """
        timelines = timelines or Timelines(world_size)
        self.results = Results()
        self.network = _Network(network, recorded)
        self.recorded = recorded
        own = timelines.own
        self.engine = self.network.engine = Engine(
            own,
            [timelines.gpu_of(rank) for rank in own],
            queue_depth,
            parts_for(world_size),
            self.network,
            _table_of(paces, own),
            keeps_answers=recorded is not None,
            gates=0 if recorded is None else recorded.gates,
        )
        self._place = {rank: place for place, rank in enumerate(own)}
        self.own_hosts = tuple(
            Host(self.engine, place, rank, paces.hosts.get(rank), timelines.gpu_of(rank))
            for place, rank in enumerate(own)
        )
        """The hosts, each once."""
        self.hosts = [self.own_hosts[self._place[rank]] for rank in timelines.of_each]
        """The host of each rank. Ranks that share a timeline have one host."""
        self.creations: list[CommCreation] = []
        self._creation_numbers: dict[CommCreation, int] = {}
        self.rows = [LiveRows(self.network.number_of, self._creation_of) for _ in own]
        self._listeners: list[tuple[Listener, ...]] = [() for _ in own]
        self._limit_ns = NEVER
        if recorded is not None:
            for creation in recorded.creations:
                self._creation_of(creation)
            self.engine.play(recorded.programs, recorded.tables)

    def _creation_of(self, creation: CommCreation) -> int:
        number = self._creation_numbers.get(creation)
        if number is None:
            number = self._creation_numbers[creation] = self.engine.creation(creation.size)
            self.creations.append(creation)
        return number

    # ---- the face --------------------------------------------------------------------------------------------------

    @property
    def now_ns(self) -> int:
        """Global virtual time: everything before it is decided."""
        return self.engine.now_ns()

    @property
    def ahead_ns(self) -> int:
        """The instant up to which any rank has been simulated."""
        found: int = self.engine.view().ahead_ns
        return found

    @property
    def facts_done(self) -> int:
        """The number of facts that are executed and not taken back."""
        return self.engine.facts_done()

    @property
    def events(self) -> int:
        """The number of events executed, including those that were taken back."""
        found: int = self.engine.view().events
        return found

    @property
    def starved(self) -> int | None:
        """The rank whose fact has to come first; set when ``run`` returns STARVED."""
        found: int = self.engine.view().starved
        return None if found < 0 else found

    @property
    def answers_sent(self) -> int:
        """The number of answers since the run's start."""
        return self.engine.answers_sent()

    @property
    def answered_early(self) -> int:
        """The number of answers of an exact run that were sent before their question's instant."""
        found: int = self.engine.view().answered_early
        return found

    @property
    def history(self) -> History:
        view = self.engine.view()
        return History(bool(view.log), view.events_back, view.rollbacks, view.kept, view.most_kept)

    @property
    def limit_ns(self) -> int:
        """The instant from which on no event is executed."""
        return self._limit_ns

    @limit_ns.setter
    def limit_ns(self, at_ns: int) -> None:
        self._limit_ns = at_ns
        self.engine.limit(at_ns)

    def snapshot(self, ranks: Sequence[int] | None = None) -> Snapshot:
        """The present state, as values. `ranks`: the ranks to look at in detail; None: all."""
        return take(self, range(len(self.hosts)) if ranks is None else ranks)

    def activity(self) -> Activity:
        """The activity of every rank's GPUs over time, until now."""
        return take_activity(self)

    def generation(self) -> dict[int, tuple[GenerationNote, ...]]:
        """The events of the responses that ranks generate, in the order of the instants. Only ranks are in it that have
        told something, and one of those that share a timeline.
        """
        return take_generation(self)

    def listen(self, listener: Listener, ranks: Iterable[int]) -> None:
        """Adds a listener that is told from now on of all that happens to these ranks."""
        for rank in ranks:
            place = self._place.get(rank)
            if place is not None and listener not in self._listeners[place]:
                self._listeners[place] += (listener,)
                self.engine.listen(place)

    def limit_memory(self, most: MemoryPeaks, last_step: int) -> None:
        """Holds hosts whose peaks exceed these when a step ends, except after `last_step`, after which the run ends
        anyhow; 0: there is none.
        """
        self.engine.limit_memory(most, last_step)

    def place(self, rank: int) -> int:
        """The number of the rank's host in the engine."""
        return self._place[self.hosts[rank].rank]

    def feed(self, rank: int, facts: Iterable[Any]) -> None:
        """Appends facts of one rank, in the rank's order."""
        place = self.place(rank)
        rows, called = self.rows[place].write(facts)
        if rows:
            self.engine.feed(place, rows, called)

    def queued(self, rank: int) -> int:
        """The number of the rank's facts that wait to be executed."""
        return self.engine.queued(self.place(rank))

    def all_finished(self) -> bool:
        """Returns true if every host has executed its BYE."""
        return all(host.state == HostState.FINISHED for host in self.own_hosts)

    def hosts_in(self, state: HostState) -> list[Host]:
        """The hosts in this state."""
        if not self.engine.in_state(state):  # as a rule; each turn asks
            return []
        return [host for host in self.own_hosts if host.state == state]

    def take_answers(self) -> list[tuple[int, bytes]]:
        """The answers since the last call as (rank, encoded record), each rank's in the order of its questions."""
        return [
            (one.rank, records.answer(one.kind, one.qid, one.value, one.more)) for one in self.engine.take_leaving()
        ]

    def take_outside_waits(self) -> list[OutsideWait]:
        """The waits of ranks that were passed over, since the last call."""
        return [
            OutsideWait(one.rank, one.facts_done, one.for_ns, (one.cause, one.cause_facts) if one.cause >= 0 else None)
            for one in self.engine.take_waits()
        ]

    def pass_over(self, ranks: Sequence[int]) -> None:
        """Passes over these ranks, which sleep where no record says so: until the next answer is sent, they hold no
        time back.

        At that instant their hosts go on: whatever wakes them follows from that answer or from one before it. Meanwhile
        nothing is simulated ahead.
        """
        self.engine.pass_over([self.place(rank) for rank in ranks])
        self._take_told()

    def has_ended(self, rank: int) -> bool:
        """Returns true if everything has been executed that the rank sent up to its BYE, and all work of its GPU. Ends
        what is simulated ahead.
        """
        ended = self.engine.has_ended(self.place(rank))
        self._take_told()
        return ended

    def begin_again(self, rank: int) -> None:
        """Starts another process of a rank that ``has_ended``, at the present instant."""
        place = self.place(rank)
        self.rows[place].process_ended(self.engine.host(place).counters)
        self.engine.begin_again(place)
        self._take_told()

    def restart(self, first: int, ranks: Collection[int], not_before_ns: int = 0) -> int:
        """Restarts `ranks` after all processes have ended, because that of the rank `first` failed: they start again at
        the end of its last fact, or later. Returns that instant. All facts of the ended processes have been fed.

        The processes have ended in real time, some of them earlier, some later than at the instant at which their
        launcher ends them in virtual time. What they sent is executed up to that instant, and what would come later is
        dropped. A rank whose process ended earlier stays where it was.
        """
        self.engine.prepare_restart()
        self._take_told()
        self._execute_up_to_the_end_of(self.hosts[first].rank)
        again = sorted({self.place(rank) for rank in ranks})
        steps = max(self.results.steps_done(self.own_hosts[place].rank) for place in again)
        for place in again:
            self.rows[place].process_ended(self.engine.host(place).counters)
        at_ns = self.engine.restart(self.place(first), again, steps, not_before_ns)
        self._take_told()
        return at_ns

    def _execute_up_to_the_end_of(self, failed: int) -> None:
        """Executes what all ranks sent for instants up to the end of this one. It holds time back; others that have
        sent nothing more do not.
        """
        while self.run(TURN) not in (Stop.DRAINED, Stop.LIMIT):
            starved = self.starved
            if starved == failed:
                return
            if starved is not None:
                self.engine.end(self._place[starved])

    def run(self, budget: int, ahead: bool = False) -> Stop:
        """Executes about `budget` events and returns why it stopped. Raises ProtocolError for a fact that no working
        hook sends.

        `ahead`: if a rank's next fact is missing, go on as if it came later. STARVED then means that nothing is left to
        simulate, either.
        """
        why = self.engine.run(budget, ahead)
        self._take_told()
        stop = _STOPS.get(why)
        if stop is not None:
            return stop
        view = self.engine.view()
        raise ProtocolError(view.bad_rank, (view.bad or b"").decode())

    # ---- what is told ----------------------------------------------------------------------------------------------

    def counters(self, place: int, number: int) -> Totals:
        """The totals of this host after so many COUNTERS."""
        if not number:
            return NO_TOTALS
        if self.recorded is not None:
            return self.recorded.counters(place, number)
        return self.rows[place].counters[number]

    def _take_told(self) -> None:
        """Passes what has become final to the listeners."""
        for kind, place, at_ns, *values in self.engine.take_told():
            rank = self.own_hosts[place].rank
            if kind == _COMPLETED:
                self.results.add_collective(self.network.collective(values[0]), at_ns)
                continue
            event = _EVENTS[kind](self, place, at_ns, values)
            if type(event) is events.StepDone:
                self.results.add_step(rank, event)
                self.rows[place].forget(values[2])
            for listener in self._listeners[place]:
                listener.on(rank, event)
        self.network.forget(self.engine.take_gone())


def _table_of(paces: Paces, own: Sequence[int]) -> PaceTable:
    """The paces as the engine reads them. `own`: the ranks that have timelines of their own."""
    every = list(dict.fromkeys([*paces.hosts.values(), *paces.devices.values()]))
    number = {pace: place for place, pace in enumerate(every)}
    hosts = [number[paces.hosts[rank]] if rank in paces.hosts else -1 for rank in own]
    place = {rank: at for at, rank in enumerate(own)}
    devices = [(place[rank], device, number[pace]) for (rank, device), pace in paces.devices.items() if rank in place]
    return PaceTable(every, np.array(hosts, np.int32), np.array(devices, np.int32).reshape(-1, 3))


_Maker = Callable[[Timeline, int, int, list[int]], events.Event]
_MASK = (1 << 64) - 1


def _wide(low: int, high: int) -> int:
    return (high << 64) | (low & _MASK)


def _step_done(timeline: Timeline, place: int, at_ns: int, values: list[int]) -> events.Event:
    number, host_ns, counters, *shares = values
    return events.StepDone(
        at_ns, number, host_ns, timeline.counters(place, counters), Shares(*shares[: len(Shares._fields)])
    )


def _collective_done(timeline: Timeline, place: int, at_ns: int, values: list[int]) -> events.Event:
    stream, number, begun_ns, last_rank, last_stream, *_ = values
    collective = timeline.network.collective(number)
    return events.CollectiveDone(at_ns, stream, collective, begun_ns, last_rank, last_stream)


_EVENTS: tuple[_Maker, ...] = (
    lambda timeline, place, at_ns, v: events.TraceSaid(at_ns, timeline.rows[place].traces.pop(v[0])),
    lambda timeline, place, at_ns, v: events.HostBlocked(at_ns, HostState(v[0]), v[1]),
    lambda timeline, place, at_ns, v: events.HostWoken(at_ns),
    lambda timeline, place, at_ns, v: events.EventReached(at_ns, v[0]),
    lambda timeline, place, at_ns, v: events.CommAsked(at_ns),
    lambda timeline, place, at_ns, v: events.UnseenPassed(at_ns, v[0]),
    lambda timeline, place, at_ns, v: events.StepMarked(at_ns),
    _step_done,
    lambda timeline, place, at_ns, v: events.Restarted(at_ns),
    lambda timeline, place, at_ns, v: events.StreamCreated(at_ns, v[0], v[1]),
    lambda timeline, place, at_ns, v: events.SegmentLaunched(at_ns, v[0], v[1], v[2] & _MASK, v[3], v[4]),
    lambda timeline, place, at_ns, v: events.SegmentBegan(at_ns, v[0], _wide(v[1], v[2])),
    lambda timeline, place, at_ns, v: events.SegmentRate(at_ns, v[0], _wide(v[1], v[2])),
    lambda timeline, place, at_ns, v: events.SegmentEnded(at_ns, v[0]),
    lambda timeline, place, at_ns, v: events.StreamBlocked(at_ns, v[0], v[1]),
    lambda timeline, place, at_ns, v: events.StreamUnblocked(at_ns, v[0]),
    lambda timeline, place, at_ns, v: events.NcclLaunched(at_ns, v[0], v[1]),
    lambda timeline, place, at_ns, v: events.NcclBegan(at_ns, v[0]),
    _collective_done,
    lambda timeline, place, at_ns, v: events.NcclEnded(at_ns, v[0]),
)
"""Makes an event, by the engine's number of its kind."""
_COMPLETED = len(_EVENTS)
"""The number of the event that a collective of ``LOGGED_RANK`` is complete: it goes to ``Results``."""
