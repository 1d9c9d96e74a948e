"""Decides what happens when virtual time waits for a rank's next fact, but the rank sleeps until another rank
continues.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from emu.contract import records
from phantora_async.coordinator.ranks.connections import Connections
from phantora_async.errors import Deadlock, Stalled
from phantora_async.folding.mirrored_ranks import MirroredRanks
from phantora_async.ingest.communicators import Answers
from phantora_async.liveness.blocked_ranks import BlockedRanks, Verdict
from phantora_async.liveness.bystanders import Bystanders
from phantora_async.liveness.listening import Listener
from phantora_async.liveness.patience import STALL_S, limit_s
from phantora_async.virtual_time import Timeline
from phantora_async.wording import named

MOST_PIDS = 8
"""The most processes that a message names."""
PATIENCE_S = 30.0
"""The real seconds for which all ranks may sleep with nothing to simulate before it is a deadlock. A shorter sleep may
be a slow download or disk.
"""
READER_S = 600.0
"""The real seconds of a deadlock while ranks ask for the time, and less virtual time than that has passed: a rank may
get on, slowly, since each answer takes looks at the ranks that sleep. One that waits in virtual time has it pass
quickly.
"""

SHORT_S = 1.0
"""The seconds that ranks have slept before the processes beside them are looked at. If none of these works, the ranks
are told.
"""
FLUSH_S = 0.01
"""The seconds until the next look after ranks were asked for the work that nothing follows, if not all answer
earlier.
"""
IDLE_LOOK_S = 5.0
"""The seconds between two checks whether a program of a run that stands still waits for somebody to connect."""
LOOK_EVERY_S = 1.0
"""The seconds between two looks where none is needed otherwise: these find deadlocks."""


class Standstill:
    def __init__(
        self,
        timeline: Timeline,
        connections: Connections,
        blocked_ranks: BlockedRanks,
        bystanders: Bystanders,
        stall_timeout_s: float | None,
        mirrored_ranks: MirroredRanks | None = None,
    ) -> None:
        """`stall_timeout_s`: see ``limit_s``."""
        self._given_s = stall_timeout_s
        self._patience_s = limit_s(stall_timeout_s, PATIENCE_S)
        self._stall_s = limit_s(stall_timeout_s, STALL_S)
        self._bystanders = bystanders
        self._idle_looked_s = 0.0
        self._listener: Listener | None = None
        self._mirrored_ranks = mirrored_ranks
        self._timeline = timeline
        self._connections = connections
        self._blocked_ranks = blocked_ranks
        self._asleep: list[int] = []
        """The ranks that were passed over last."""
        self._since = 0, 0
        """The number of answers sent, and of times that ranks had spoken, when these were passed over."""
        self._flushing: list[int] | None = None
        """The ranks to pass over when all have said that there is no work that nothing follows."""
        self._passed: tuple[int, int] | None = None
        self._rested: tuple[int, int] | None = None
        """The counts of ``_since`` when ranks were last passed over, and when they were last told that nothing is left
        to simulate.
        """
        self._looked_s = 0.0
        self._still_since_s: float | None = None
        """The instant since which ranks have slept, when threads were last asked how long they sleep."""
        self._woken_s = 0.0
        """The real time of the last look at ranks."""
        self.passed_over = 0
        """The number of times that virtual time continued without ranks which slept where no record tells of it."""

    def first_look_s(self) -> float:
        """The seconds after a standstill of virtual time at which ranks are looked at first."""
        return self._blocked_ranks.first_look_s()

    def look(self) -> float | None:
        """Looks at the ranks. Returns None if virtual time can now continue, else the seconds until the next look.
        Raises Deadlock.
        """
        self._flushing = None
        self._looked_s = monotonic()
        verdict = self._blocked_ranks.look()
        if not verdict.asleep or self._connections.resume_all():
            return verdict.again_s
        self._check(verdict)
        answering = [rank for rank in verdict.asleep + verdict.waiting if not self._blocked_ranks.stopped(rank)]
        if self._connections.flush(answering):
            self._flushing, self._since = verdict.asleep, self._now()
            return FLUSH_S
        self._pass_over(verdict.asleep)
        return None

    def flushed(self) -> bool:
        """Records that a process has said that it has no work that nothing follows. Returns true if virtual time can
        now continue: all have said so, and have slept since the last look, for nobody was told anything and nobody has
        spoken.
        """
        if self._flushing is None or self._connections.flushing:
            return False
        asleep, self._flushing = self._flushing, None
        if self._since != self._now():
            return False
        self._pass_over(asleep)
        return True

    def _check(self, verdict: Verdict) -> None:
        """Raises Deadlock if this has lasted too long for ranks that only sleep, and Stalled if it has for any."""
        for_s = verdict.stuck_s
        if verdict.still_s > self._stall_s and for_s <= self._patience_s:
            raise Stalled(
                f"no rank has made visible progress for {verdict.still_s:.0f} s, though processes have worked; "
                f"{self._why(verdict.asleep)}; that is longer than --stall-timeout {self._stall_s:g}"
            )
        if for_s <= SHORT_S:
            return
        if self._bystanders.work():
            self._blocked_ranks.worked()
            return
        if self._rested != self._passed == self._now():
            # Virtual time went as far as it could without them. A rank that waits for a watching thread goes on now.
            self._rested = self._passed
            self._connections.at_rest([rank for rank in verdict.asleep if not self._blocked_ranks.stopped(rank)])
            self._blocked_ranks.told()
        if for_s > self._patience_with(verdict):
            why = self._why(verdict.asleep)
            idle = self._idle(verdict)
            if idle is None and self._given_s is None and self._somebody_wakes_up(for_s):
                return
            if idle is None:
                raise Deadlock(f"deadlock: no rank has made progress for {for_s:.0f} s; {why}")
            if for_s > self._stall_s:
                raise Stalled(
                    f"{idle.name} (process {idle.pid}) has waited {for_s:.0f} s for somebody to connect, and no rank "
                    f"has anything to do; {why}; that is longer than --stall-timeout {self._stall_s:g}"
                )

    def _somebody_wakes_up(self, for_s: float) -> bool:
        """Returns true until those threads have woken up that were in a timed sleep when the ranks' `for_s` seconds of
        patience had passed. They are asked only then: one that sleeps again and again may do so for ever.
        """
        now_s = monotonic()
        since_s = now_s - for_s
        if self._still_since_s is None or abs(since_s - self._still_since_s) > SHORT_S:
            self._still_since_s = since_s
            self._woken_s = min(self._bystanders.sleep_until_s() + SHORT_S, since_s + self._stall_s)
        return now_s < self._woken_s

    def _idle(self, verdict: Verdict) -> Listener | None:
        """The program that waits for somebody to connect, unless ranks wait for each other."""
        if verdict.waiting or self._blocked_ranks.wait_for_ranks():
            return None
        now_s = monotonic()
        if self._listener is None or now_s - self._idle_looked_s > IDLE_LOOK_S:
            self._listener, self._idle_looked_s = self._bystanders.listener(), now_s
        return self._listener

    def _patience_with(self, verdict: Verdict) -> float:
        reads = verdict.read_ns is not None and verdict.read_ns < self._patience_s * 1e9
        return READER_S if reads and self._given_s is None else self._patience_s

    def told(self, answers: Answers) -> None:
        """Records that processes have been told something, which may wake others. News that work is complete is
        progress: PyTorch lets go of much memory by questions alone.
        """
        self._asleep = []
        self._blocked_ranks.told()
        for _, encoded in answers:
            if int.from_bytes(encoded[:2], "little") != records.DONE:
                continue
            (answer,), _ = records.decode_down(encoded)
            if isinstance(answer, records.Done) and answer.done:
                self._blocked_ranks.progressed()
                break

    def goes_on(self) -> bool:
        """Returns true if a new standstill of virtual time needs no look. This is so if something was answered since
        the last time and ranks are known to sleep: those that slept before, if only ranks without processes have been
        answered since, and those that wait for another one's call, if all others wait for answers.
        """
        answers, spoken = self._since
        asleep, self._asleep = self._asleep, []
        if answers == self._timeline.answers_sent:
            return False
        if spoken != self._blocked_ranks.spoken or not asleep:
            asleep = self._blocked_ranks.wait_for_calls() if monotonic() - self._looked_s < LOOK_EVERY_S else []
        if asleep:
            self._pass_over(asleep)
        return bool(asleep)

    def _now(self) -> tuple[int, int]:
        return self._timeline.answers_sent, self._blocked_ranks.spoken

    def _pass_over(self, asleep: list[int]) -> None:
        self._asleep = asleep
        self._since = self._passed = self._now()
        self._timeline.pass_over(asleep if self._mirrored_ranks is None else self._mirrored_ranks.with_played(asleep))
        self.passed_over += 1

    def _why(self, asleep: Sequence[int]) -> str:
        if stopped := [rank for rank in asleep if self._blocked_ranks.stopped(rank)]:
            pids = " ".join(str(self._blocked_ranks.pid(rank)) for rank in stopped[:MOST_PIDS])
            return (
                f"a signal (SIGSTOP) has stopped {named(stopped)}; to continue such a rank in time: kill -CONT {pids}"
            )
        one = len(asleep) == 1
        return f"{named(asleep)} {'is' if one else 'are'} asleep in a lock, a socket or a child process of the script"
