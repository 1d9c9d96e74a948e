"""Decides whether a rank that sends nothing, and for which virtual time waits, runs or sleeps until another rank
continues.

Records do not tell a rank that sleeps in a socket, a lock or a child process from a busy one. It is passed over only if
nothing else can move: the rank that virtual time waits for is asleep, and every other rank is asleep or waits for an
answer. A rank that can still run holds virtual time for as long as it takes, so that what is passed over, and when,
does not depend on the speed of this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from emu.contract import records
from phantora_async.ingest.fact_builder import FactBuilder
from phantora_async.liveness.sleep_detector import POLLING_SHARE, Processes, SleepDetector
from phantora_async.virtual_time import Timeline

FIRST_S = 0.05
"""The seconds between the first two looks at a rank."""
AGAIN_S = 0.01
"""The seconds between two looks at a rank that slept when last seen: it only has to be seen to sleep still."""
SLOWEST_S = 0.25
"""The most seconds between later looks, which become rarer."""
LONGEST_S = 1.0
"""The most seconds that one look adds to the time in which a rank could run: looks are rare while virtual time gets
on.
"""
RUNNING_SHARE = 0.5
"""The share of looks with a thread that could run above which a rank works, and does not only poll."""
POLLS = records.marked("POLL")
"""The records that a polling thread sends, such as a watchdog's."""


def is_news(arrived: Sequence[Any]) -> bool:
    """Returns true if these records of a rank show more than polling, that is, visible progress."""
    return any(record.kind not in POLLS for record in arrived)


def asked(arrived: Sequence[Any]) -> set[tuple[int, ...]]:
    """Returns what these records of a rank ask of its GPU's work, and where."""
    return {(it.site, it.recording, it.scope, it.stream) for it in arrived if it.kind == records.QUERY}


def reads_clock(arrived: Sequence[Any]) -> bool:
    """Returns true if these records of a rank ask for the time."""
    return any(record.kind == records.CLOCK_READ for record in arrived)


@dataclass(frozen=True, slots=True)
class Verdict:
    asleep: list[int]
    """The ranks to pass over; empty if some rank can still run."""
    waiting: list[int]
    """The ranks that wait for answers."""
    stuck_s: float
    """The seconds for which all have been asleep, apart from polling, and made no visible progress."""
    still_s: float
    """The seconds for which none has made visible progress, though some may have worked since they were first seen
    asleep.
    """
    again_s: float
    """The seconds until the next look."""
    read_ns: int | None = None
    """The virtual ns that have passed in `stuck_s`; None if no rank has asked for the time."""


class BlockedRanks:
    def __init__(
        self,
        timeline: Timeline,
        fact_builder: FactBuilder,
        *,
        pids: Mapping[int, int],
        processes: Processes,
        played_by: Callable[[int], int] = lambda rank: rank,
    ) -> None:
        """`played_by`: the rank whose process does a rank's work."""
        self.played_by = played_by
        self._with_process = [rank for rank in range(len(fact_builder.rank_info)) if played_by(rank) == rank]
        self._timeline = timeline
        self._fact_builder = fact_builder
        self._pids = pids
        self._sleep_detector = SleepDetector(processes)
        self.spoken = 0
        """The number of times that records of ranks have arrived."""
        self.gone: Collection[int] = ()
        """The ranks whose process has ended and may be started again."""
        self._delay_s = FIRST_S
        self._stuck_since: float | None = None
        self._still_since: float | None = None
        self._looked_s = 0.0
        self._awake_s = 0.0
        """The seconds since `_stuck_since` in which some rank ran, or could have run, from one look to the next."""
        self._stuck_from_ns = 0
        """The virtual time at that moment."""
        self._clock_was_read = False
        self._worked_ns: dict[int, int] = {}
        """The processor time of all ranks with processes at that moment."""
        self._asked: set[tuple[int, ...]] = set()
        """The questions of ranks since the last news: the ranks' numbers, and then as in ``asked``."""

    def rank_spoke(
        self,
        rank: int,
        news: bool,
        reads: bool = False,
        flushed: bool = False,
        asks: Collection[tuple[int, ...]] = (),
    ) -> None:
        """Records that records of the rank have arrived; `news`, `reads`, `asks`: see ``is_news``, ``reads_clock``,
        ``asked``; `flushed`: it was asked for them while it slept, and its sleep goes on unless its threads have run.

        A rank that asks what nobody has asked since the last news gets on: PyTorch's allocator asks about each stream
        at each allocation, and sends nothing else in between. One that polls asks the same over and over.
        """
        self.spoken += 1
        self._sleep_detector.may_wake()
        self._clock_was_read = self._clock_was_read or reads
        if not flushed:
            self._sleep_detector.forget(rank)
        if news:
            self._asked.clear()
        before = len(self._asked)
        self._asked.update((rank, *ask) for ask in asks)
        if news or len(self._asked) > before:
            self.progressed()

    def told(self) -> None:
        """Records that processes have been told something."""
        self._sleep_detector.may_wake()

    def progressed(self) -> None:
        """Records that not all ranks are stuck."""
        self._stuck_since = self._still_since = None

    def worked(self) -> None:
        """Records that somebody works for whom they may wait."""
        self._stuck_since = None

    def threads(self) -> set[int]:
        """The threads of ranks, as last seen."""
        return self._sleep_detector.threads()

    def wait_for_ranks(self) -> bool:
        """Returns true if a rank waits for another one's collective."""
        return bool(self._fact_builder.incomplete_collectives())

    @property
    def starved(self) -> int | None:
        """The rank whose process virtual time waits for."""
        starved = self._timeline.starved
        return None if starved is None else self.played_by(starved)

    def sleeps(self, rank: int) -> bool:
        """Returns true if the rank was asleep when last seen."""
        return self._sleep_detector.slept(rank)

    def stopped(self, rank: int) -> bool:
        """Returns true if a signal had stopped the rank when it was last seen."""
        return self._sleep_detector.stopped(rank)

    def pid(self, rank: int) -> int:
        """The process id of a rank that is connected."""
        return self._pids[rank]

    def computes(self, rank: int) -> bool:
        """Returns true if its main thread runs now, instead of waiting in the kernel."""
        return rank in self._pids and self._sleep_detector.computes(self._pids[rank])

    def first_look_s(self) -> float:
        """The seconds after a standstill of virtual time at which ranks are looked at first."""
        starved = self.starved
        slept = starved is not None and self._sleep_detector.slept(starved)
        self._delay_s = AGAIN_S if slept else FIRST_S
        return AGAIN_S if slept else AGAIN_S / 2

    def look(self) -> Verdict:
        """Looks at the ranks. To be repeated after ``again_s`` until records arrive."""
        starved = self.starved
        assert starved is not None, "virtual time waits for no rank"
        before_s, self._looked_s = self._looked_s, monotonic()
        quiet = self._quiet(starved) if self._asleep(starved) else None
        if quiet is None:
            if self._sleep_detector.could_run():
                self._awake_s += min(self._looked_s - before_s, LONGEST_S)
            return self._not_yet()
        self._delay_s = min(self._delay_s * 2, SLOWEST_S)
        stuck_s = self._stuck_s()
        still_s = self._looked_s - (self._still_since or self._looked_s)
        read_ns = self._timeline.now_ns - self._stuck_from_ns if self._clock_was_read else None
        return Verdict(*quiet, stuck_s, still_s, self._delay_s, read_ns)

    def all_wait(self) -> bool:
        """Returns true if every rank that runs sleeps, or waits for an answer."""
        return self._quiet(None) is not None

    def wait_for_calls(self) -> list[int]:
        """The ranks that sleep until another one makes a call, as they have said, if all others wait for answers: then
        nobody can move, and no look is needed. Empty if that is not so.
        """
        starved = self.starved
        if starved is None or not self._fact_builder.sources.waits(starved):
            return []  # as a rule
        found: list[int] = []
        for rank in self._with_process:
            rank_info = self._fact_builder.rank_info[rank]
            if rank in self.gone or rank_info.bye is not None or rank_info.questions:
                continue
            if rank not in self._pids or not self._fact_builder.sources.waits(rank) or not self.sleeps(rank):
                return []
            found.append(rank)
        return found if starved in found else []

    def _quiet(self, starved: int | None) -> tuple[list[int], list[int]] | None:
        """The ranks that sleep and the ranks that wait for answers; None if some rank can still run. `starved` is known
        to sleep.
        """
        sleeping: list[int] = []
        waiting: list[int] = []
        quiet = True
        for rank in self._with_process:
            rank_info = self._fact_builder.rank_info[rank]
            if rank in self.gone:
                continue
            if rank_info.bye is not None or rank not in self._pids:
                quiet = quiet and rank_info.bye is not None
            elif rank == starved or self._asleep(rank):
                (waiting if rank_info.questions else sleeping).append(rank)
            else:
                quiet = False
        quiet = quiet and self._sleep_detector.asleep_at_once({rank: self._pids[rank] for rank in sleeping + waiting})
        return (sleeping, waiting) if quiet else None

    def _stuck_s(self) -> float:
        """The seconds for which all have been asleep, or waited for an answer. It starts from zero if any has worked
        between looks: a rank that imports modules, and asks for the time now and then, sends no news but gets on. So
        does one whose threads could run, though the machine had no processor for them.
        """
        now_s = self._looked_s
        if self._still_since is None:
            self._still_since = now_s
        worked_ns = self._sleep_detector.worked_ns()
        since = self._worked_ns | {rank: ns for rank, ns in worked_ns.items() if rank not in self._worked_ns}
        most_ns = max((ns - since[rank] for rank, ns in worked_ns.items()), default=0)
        if self._stuck_since is None or (
            most_ns > (now_s - self._stuck_since) * 1e9 * POLLING_SHARE + FIRST_S * 1e9
            or self._awake_s > (now_s - self._stuck_since) * RUNNING_SHARE + LONGEST_S
        ):
            self._stuck_since, self._worked_ns, self._awake_s = now_s, worked_ns, 0.0
            self._stuck_from_ns, self._clock_was_read = self._timeline.now_ns, False
        else:
            self._worked_ns = since
        return now_s - self._stuck_since

    def _asleep(self, rank: int) -> bool:
        pid = self._pids.get(rank)
        if pid is None:
            return False
        waits = self._fact_builder.rank_info[rank].questions or self._fact_builder.sources.waits(rank)
        slept = self._sleep_detector.slept(rank)
        if slept and not self._sleep_detector.tries:
            return True  # unless it has run since, as asleep_at_once sees
        least_s = AGAIN_S if waits or slept else FIRST_S
        return self._sleep_detector.look(rank, pid, int(least_s * 0.9e9))

    def _not_yet(self) -> Verdict:
        again_s = self._delay_s
        self._delay_s = min(self._delay_s * 1.5, SLOWEST_S)
        return Verdict([], [], 0.0, 0.0, again_s)
