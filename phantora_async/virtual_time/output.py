"""What leaves the simulation: answers, ends of steps, completed collectives. What has left cannot be taken back.

In an exact run each leaves when it is final. An answered question that is executed once more has the same answer, which
is dropped here. While the simulation runs ahead of global virtual time, everything is held in the rank's checkpoint
until ``release``. In an optimistic run answers also leave when they are first simulated; when they become final, they
are compared with what has left.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from emu.contract import records
from emu.contract.records import NcclKind
from phantora_async.virtual_time.announcer import Announcer
from phantora_async.virtual_time.entities import Host, Shares
from phantora_async.virtual_time.events import Event, StepDone
from phantora_async.virtual_time.facts import Collective
from phantora_async.virtual_time.rollback_log import Answer, Checkpoint, RollbackLog

WARM_UP = 2
"""Steps that are left out of figures if more follow: the first two intervals between markers."""
LOGGED_RANK = 0
"""The rank whose steps and collectives tell how long a step takes."""
LOGGED_COLLECTIVES = 200_000
"""Later collectives are not logged, so that memory stays bounded."""
RECENT = 8
"""Step ends of each rank that are kept."""


class StepFigures(NamedTuple):
    """The end of one step on one rank."""

    number: int
    host_ns: int
    """When the host reached the marker."""
    device_ns: int
    """When all work enqueued before it was done."""
    counters: records.Counters
    shares: Shares
    """At ``device_ns``, of all the rank's devices."""


class StepWindow(NamedTuple):
    """The step ends between which a rank's figures count."""

    first: StepFigures
    last: StepFigures


class StepInstants(NamedTuple):
    device_ns: int
    host_ns: int


class CompletedCollective(NamedTuple):
    signature: int
    """Equal for collectives of the same kind, sizes and members."""
    at_ns: int


class Results:
    """What the report needs of steps and collectives. Of each rank only the first and last step ends are kept."""

    __slots__ = ("_first_steps", "_last_step", "_recent", "_signatures", "completed_collectives", "step_instants")

    def __init__(self) -> None:
        self._first_steps: dict[int, list[StepFigures]] = {}
        """The first WARM_UP + 1 step ends of every rank."""
        self._last_step: dict[int, StepFigures] = {}
        self._recent: dict[int, deque[StepFigures]] = {}
        self._signatures: dict[tuple[object, ...], int] = {}
        self.step_instants: list[StepInstants] = []
        """Of each step's end on LOGGED_RANK."""
        self.completed_collectives: list[CompletedCollective] = []
        """Of LOGGED_RANK, the first LOGGED_COLLECTIVES."""

    def on(self, rank: int, event: Event) -> None:
        """A ``Listener`` to ends of steps."""
        assert isinstance(event, StepDone)
        figures = StepFigures(event.number, event.host_ns, event.at_ns, event.counters, event.shares)
        if rank == LOGGED_RANK:
            self.step_instants.append(StepInstants(event.at_ns, event.host_ns))
        first = self._first_steps.setdefault(rank, [])
        if len(first) <= WARM_UP:
            first.append(figures)
        self._last_step[rank] = figures
        self._recent.setdefault(rank, deque(maxlen=RECENT)).append(figures)

    def recent_steps(self, rank: int) -> list[StepFigures]:
        """The rank's last step ends, in order."""
        return list(self._recent.get(rank, ()))

    def steps_done(self, rank: int) -> int:
        """How many steps of the rank have ended, on its GPUs too."""
        last = self._last_step.get(rank)
        return 0 if last is None else last.number + 1

    def window(self, rank: int) -> StepWindow | None:
        """The rank's steps that count; None if it has no whole one."""
        first, last = self._first_steps.get(rank), self._last_step.get(rank)
        if not first or last is None or last.number == first[0].number:
            return None
        return StepWindow(first[min(WARM_UP, last.number - first[0].number - 1, len(first) - 1)], last)

    def add_collective(self, collective: Collective, at_ns: int) -> None:
        """It was complete on LOGGED_RANK."""
        if len(self.completed_collectives) >= LOGGED_COLLECTIVES:
            return
        members = collective.ranks if collective.op == NcclKind.SEND else collective.comm.id
        signature = (collective.op, collective.dtype, collective.count, collective.root, members)
        number = self._signatures.setdefault(signature, len(self._signatures))
        self.completed_collectives.append(CompletedCollective(number, at_ns))


class Revisions(NamedTuple):
    """Answers of an optimistic run that turned out to be different from what had left."""

    early: int = 0
    """Answers that left before they were final."""
    revised: int = 0
    states: int = 0
    """Those of them that said whether work was done; the others told times."""
    max_ns: int = 0
    sum_ns: int = 0
    """By how much times were wrong."""


class Output:
    """``results`` of the run so far, and answers, which wait for ``take_answers``."""

    def __init__(self, log: RollbackLog, announcer: Announcer, optimistic: bool) -> None:
        self._log = log
        self._announcer = announcer
        self._leaving: list[tuple[int, bytes]] = []
        self._early: dict[tuple[int, int], bytes] = {}
        """By rank and number of the fact."""
        self.optimistic = optimistic
        self.results = Results()
        announcer.listen_to_steps(self.results)
        self.revisions = Revisions()
        self.answers_sent = 0
        self.latest = 0
        """The rank that has been answered last."""
        self.answered_early = 0
        """Answers of an exact run that left before their question's instant."""

    def take_answers(self) -> list[tuple[int, bytes]]:
        """(rank, encoded record) of what has left since the last call."""
        leaving, self._leaving = self._leaving, []
        return leaving

    # ---- what the simulation finds ---------------------------------------------------------------------------------

    def answer(self, host: Host, encoded: bytes) -> None:
        """Answers the question that the host executes now."""
        answer = Answer(host.facts_done, encoded)
        if not self._log.on:
            self._answer_finally(host, answer)
            return
        self._log.checkpoint(host).answers.append(answer)
        if self.optimistic and answer.fact >= host.answered:
            self._send(host, answer)
            self._early[host.rank, answer.fact] = encoded
            self.revisions = self.revisions._replace(early=self.revisions.early + 1)

    def answer_early(self, host: Host, encoded: bytes) -> None:
        """Answers the host's next fact, a question, before its time: the answer is certain (``foresight``)."""
        self._early[host.rank, host.facts_done] = encoded
        self._send(host, Answer(host.facts_done, encoded))
        self.answered_early += 1

    def collective_completed(self, host: Host, collective: Collective, at_ns: int) -> None:
        """`host` is that of LOGGED_RANK."""
        if self._log.on:
            self._log.checkpoint(host).completed.append(collective)
        else:
            self.results.add_collective(collective, at_ns)

    # ---- what has become final -------------------------------------------------------------------------------------

    def release(self, host: Host, checkpoint: Checkpoint) -> None:
        """The checkpoint's instant is final for this rank."""
        self.release_answers(host, checkpoint)
        for collective in checkpoint.completed:
            self.results.add_collective(collective, checkpoint.at_ns)

    def release_answers(self, host: Host, checkpoint: Checkpoint) -> None:
        """May be called again for the same checkpoint: each answer leaves once."""
        self._announcer.release(host, checkpoint)
        for answer in checkpoint.answers:
            self._answer_finally(host, answer)

    def _answer_finally(self, host: Host, answer: Answer) -> None:
        if answer.fact >= host.answered:
            self._send(host, answer)
        elif self._early:
            early = self._early.pop((host.rank, answer.fact), None)
            if early is not None and early != answer.encoded:
                assert self.optimistic, f"rank {host.rank} was told {early!r} early, and {answer.encoded!r} is right"
                self._revise(early, answer.encoded)

    def _send(self, host: Host, answer: Answer) -> None:
        host.answered = answer.fact + 1
        self.answers_sent += 1
        self.latest = host.rank
        self._leaving.append((host.rank, answer.encoded))

    def _revise(self, early: bytes, final: bytes) -> None:
        known = self.revisions._replace(revised=self.revisions.revised + 1)
        (was,), _ = records.decode_down(early)
        (now,), _ = records.decode_down(final)
        if isinstance(was, records.Clock) and isinstance(now, records.Clock):
            off_ns = abs(was.now_ns - now.now_ns)
        elif isinstance(was, records.ElapsedNs) and isinstance(now, records.ElapsedNs) and was.ready and now.ready:
            off_ns = abs(was.elapsed_ns - now.elapsed_ns)
        else:
            self.revisions = known._replace(states=known.states + 1)
            return
        self.revisions = known._replace(max_ns=max(known.max_ns, off_ns), sum_ns=known.sum_ns + off_ns)
