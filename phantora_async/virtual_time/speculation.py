"""The simulation ahead of global virtual time: ranks that say nothing are taken to go on saying nothing.

A host whose next fact has not come is *silent*: it is set aside and the others go on. When the fact comes and belongs
to an instant that has been simulated, its rank goes back to just after that instant (``journal``), and so do those that
it has had to do with since. One rank affects another by nothing but collectives' begins and completions and the ends of
gatherings, and each of these reaches whoever is further already by sending it back first. So what is simulated of every
rank is what it would be if all facts had come in order.

*Global virtual time* is the earliest thing still to come: a silent host's clock, an event, a completion. No fact can
come before it; chapters before it are dropped, and what they tell the outside leaves.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from phantora_async.virtual_time.entities import Host, Stream
from phantora_async.virtual_time.event_queue import HOSTS, NEVER
from phantora_async.virtual_time.rollback_log import Checkpoint

if TYPE_CHECKING:
    from phantora_async.virtual_time.timeline import Timeline

COMMIT_EVERY = 512
"""Events between two looks at what has become final."""
STALE_ENTRIES = 4096
"""The agenda is cleared of entries that are no longer valid when it has grown by so many."""


class Speculation:
    """Drives a timeline while some host is silent, or some rank is further than global virtual time."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._event_queue = timeline.event_queue
        self._collectives = timeline.collectives
        self._rollback_log = timeline.rollback_log
        self._silent: list[tuple[int, int, Host]] = []
        """Heap of (clock_ns, order, host); valid as long as the host is silent at that clock."""
        self._heard: list[Host] = []
        self._guessed_ns = 0
        """How far any rank has been past a silent one."""
        self._final_ns = 0
        """The last instant that is final and at which anything happened."""
        self.most_kept = 0
        """Chapters that were held at once."""

    @property
    def active(self) -> bool:
        return self._rollback_log.on

    def heard(self, host: Host) -> None:
        """A silent host's next fact has come."""
        self._heard.append(host)

    def gvt_ns(self) -> int:
        """Global virtual time: everything before it is decided."""
        gating, event = self._gating(), self._event_queue.peek()
        first_ns = min(self._collectives.refresh(), gating[0] if gating else NEVER, event[0] if event else NEVER)
        if first_ns == NEVER:
            return max(self._final_ns, self.furthest_ns())
        return first_ns

    def furthest_ns(self) -> int:
        """How far any rank is."""
        return max((host.checkpoints[-1].at_ns for host in self._timeline.hosts if host.checkpoints), default=0)

    def starved(self) -> Host | None:
        """The silent host that global virtual time waits for."""
        gating, event = self._gating(), self._event_queue.peek()
        if gating is not None and (event is None or gating[:2] < event[:2]):
            return gating[2]
        return event[3] if event is not None and isinstance(event[3], Host) else None

    def run(self, budget: int, ahead: bool) -> tuple[int, bool]:
        """At most so many events, up to the first silent host or, if `ahead`, past it.

        Returns what is left of the budget, and whether all that could happen has.
        """
        if not self.active:
            self._rollback_log.on = True
            self._final_ns = self._guessed_ns = self._event_queue.now_ns
        self._listen()
        exhausted = False
        while budget > 0:
            if not self._step(ahead):
                exhausted = True
                break
            budget -= 1
            if not budget % COMMIT_EVERY:
                self.commit()
                if not self.active:
                    return budget, False
        self.commit()
        return budget, exhausted

    def stop(self) -> None:
        """Takes back everything from global virtual time on: the timeline is as if it had never been ahead of it."""
        self._listen()
        at_ns = self.gvt_ns()
        for host in self._timeline.hosts:
            self._rollback_log.demand(host, at_ns)
        self._rollback_log.settle()
        self._listen()
        self.commit()
        if self.active:
            for host in self._timeline.hosts:
                if host.silent:
                    self._speak(host)
            self._end()

    # ---- one event -------------------------------------------------------------------------------------------------

    def _step(self, ahead: bool) -> bool:
        event_queue, collectives, rollback_log = self._event_queue, self._collectives, self._rollback_log
        network_ns, event = collectives.refresh(), event_queue.peek()
        network_first = event is None or network_ns <= event[0]
        at_ns, order = (network_ns, -1) if event is None or network_first else (event[0], event[1])
        if at_ns == NEVER:
            return False
        if not ahead:
            gating = self._gating()
            if gating is not None and gating[:2] < (at_ns, order):
                return False
        event_queue.now_ns = at_ns
        if event is None or network_first:
            collectives.complete()
        else:
            target = event[3]
            if isinstance(target, Stream):
                rollback_log.act(target.device.host)
                heappop(event_queue.heap)
                target.due = None
                self._timeline.streams.finish_segment(target)
            elif target.cursor >= len(target.log):
                if ahead:
                    self._fall_silent(target)
                return ahead
            else:
                self._host_turn(target)
        if ahead and at_ns > self._guessed_ns:
            self._guessed_ns = at_ns
        self._timeline.follow_up()
        if rollback_log.restored:
            self._listen()
        if len(event_queue.heap) > STALE_ENTRIES + 8 * len(self._timeline.hosts):
            event_queue.heap[:] = [entry for entry in set(event_queue.heap) if entry[3].due is entry]
            heapify(event_queue.heap)
        return True

    def _host_turn(self, host: Host) -> None:
        """The host's next fact, if its time has come."""
        event_queue = self._event_queue
        due_ns = host.clock_ns if host.again else host.clock_ns + host.log[host.cursor][3]
        if due_ns > event_queue.now_ns:
            event_queue.push(due_ns, host)
            return
        checkpoint = self._rollback_log.act(host)
        heappop(event_queue.heap)
        host.due = None
        goes_on = self._timeline.execute(host)
        answers = self._timeline.drain_answers()
        if answers:
            checkpoint.answers += [(number, encoded) for _, number, encoded in answers]
            if self._timeline.answer_release.optimistic:
                for answer in answers:
                    self._timeline.answer_release.answer_early(*answer)
        if goes_on:
            due_ns = event_queue.now_ns
            if host.cursor < len(host.log):
                due_ns += host.log[host.cursor][3]
            event_queue.push(due_ns, host)

    # ---- silent hosts ----------------------------------------------------------------------------------------------

    def _fall_silent(self, host: Host) -> None:
        heappop(self._event_queue.heap)
        host.due = None
        host.silent = True
        heappush(self._silent, (host.clock_ns, host.order, host))

    def _gating(self) -> tuple[int, int, Host] | None:
        silent = self._silent
        while silent and not (silent[0][2].silent and silent[0][2].clock_ns == silent[0][0]):
            heappop(silent)
        return silent[0] if silent else None

    def _speak(self, host: Host) -> None:
        """The host is in the agenda again, for its next fact or, if none has come, at its clock."""
        host.silent = False
        due_ns = host.clock_ns
        if host.cursor < len(host.log):
            due_ns += host.log[host.cursor][3]
        if due_ns < self._event_queue.now_ns:
            self._event_queue.now_ns = due_ns
        self._event_queue.push(due_ns, host)

    def _listen(self) -> None:
        """Late facts send their ranks back. Who has gone back may be silent again, or may have been heard meanwhile."""
        while self._heard or self._rollback_log.restored:
            self._heard += self._rollback_log.restored
            self._rollback_log.restored.clear()
            host = self._heard.pop()
            if not host.silent:
                continue
            if host.cursor >= len(host.log):
                heappush(self._silent, (host.clock_ns, host.order, host))
            elif not self._rollback_log.go_back(host, host.clock_ns + host.log[host.cursor][3] + 1):
                self._speak(host)
            else:
                self._heard.append(host)

    # ---- what is final ---------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Lets go what is final, and drops it; ends when nobody is further than global virtual time."""
        gvt_ns = self.gvt_ns()
        over = self._gating() is None and (gvt_ns > self._guessed_ns or self._nothing_left())
        if self._rollback_log.kept > self.most_kept:
            self.most_kept = self._rollback_log.kept
        for host in self._timeline.hosts:
            checkpoints = host.checkpoints
            final = 0
            for checkpoint in checkpoints:
                if checkpoint.at_ns >= gvt_ns and not over:
                    break
                final += 1
                if checkpoint.at_ns > self._final_ns:
                    self._final_ns = checkpoint.at_ns
                self._let_go(host, checkpoint)
            if final:
                del checkpoints[:final]
                self._rollback_log.kept -= final
            self._timeline.forget_facts(host, checkpoints[0].facts if checkpoints else host.facts_done)
        self._let_answers_go(gvt_ns)
        self._collectives.commit(gvt_ns)
        if over:
            self._end()

    def _nothing_left(self) -> bool:
        return self._event_queue.peek() is None and self._collectives.refresh() == NEVER

    def _let_go(self, host: Host, checkpoint: Checkpoint) -> None:
        timeline = self._timeline
        for number, encoded in checkpoint.answers:
            timeline.answer_release.answer(host, number, encoded)
        for step in checkpoint.step_ends:
            timeline.steps.keep(step)
        if host.rank == timeline.collective_log.rank:
            for transfer in checkpoint.completed:
                timeline.collective_log.add(transfer, checkpoint.at_ns)

    def _let_answers_go(self, gvt_ns: int) -> None:
        """Answers at global virtual time itself, if all that is still to come comes after them in the total order.

        Without it, a host that asks and says nothing until it is answered would wait for itself.
        """
        network_ns, event, gating = self._collectives.refresh(), self._event_queue.peek(), self._gating()
        if network_ns <= gvt_ns or (event is not None and event[0] <= gvt_ns and event[1] < HOSTS):
            return
        for host in self._timeline.hosts:
            for checkpoint in host.checkpoints[:1]:
                if checkpoint.answers and checkpoint.at_ns == gvt_ns:
                    place = gvt_ns, host.order
                    if (event is None or event[:2] >= place) and (gating is None or gating[:2] >= place):
                        for number, encoded in checkpoint.answers:
                            self._timeline.answer_release.answer(host, number, encoded)

    def _end(self) -> None:
        self._event_queue.now_ns = self._final_ns
        self._silent.clear()
        self._heard.clear()
        self._rollback_log.restored.clear()
        self._rollback_log.on = False
        self._rollback_log.undo = None
