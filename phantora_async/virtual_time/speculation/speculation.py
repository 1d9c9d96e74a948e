"""The simulation ahead of global virtual time: it goes on without hosts whose next fact has not come.

Such a host is *silent*: it leaves the event queue and the others go on. When its fact comes and belongs to an instant
that has been simulated, its rank goes back to just after that instant (``rollback_log``), and so do ranks that it has
affected since. One rank affects another only by the begin and the completion of collectives and by the creation of
communicators, and each of these sends a rank back first that is ahead of it. So what is simulated of every rank is what
it would be if all facts had come in order.

*Global virtual time* is the earliest thing still to come: a silent host's clock, an event, a completion. No fact can
come before it; checkpoints before it are dropped, and what they tell the outside leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from phantora_async.virtual_time.collectives import Collectives
from phantora_async.virtual_time.entities import Host
from phantora_async.virtual_time.event_queue import AFTER_ALL, HOSTS, NEVER, EventQueue, Timestamp
from phantora_async.virtual_time.output import Output
from phantora_async.virtual_time.rollback_log import RollbackLog

COMMIT_EVERY = 512
"""Events between two looks at what has become final."""


class Speculation:
    """Which hosts are silent, and what is final. Speculation begins with the first silent host and ends when no rank is
    ahead of global virtual time; the rollback log is on in between."""

    def __init__(
        self,
        hosts: Sequence[Host],
        event_queue: EventQueue,
        collectives: Collectives,
        log: RollbackLog,
        output: Output,
    ) -> None:
        self._hosts = hosts
        self._event_queue = event_queue
        self._collectives = collectives
        self._log = log
        self._output = output
        self._silent: list[tuple[int, int, Host]] = []
        """Heap of (clock_ns, order, host); valid as long as the host is silent at that clock."""
        self._heard: list[Host] = []
        self._events = 0
        self._guessed_ns = 0
        """The last instant that was simulated ahead."""
        self._final_ns = 0
        """The last instant that is final and at which anything happened."""
        self.most_kept = 0
        """Checkpoints that were held at once."""

    # ---- silent hosts ----------------------------------------------------------------------------------------------

    def fall_silent(self, host: Host) -> None:
        """The host is the first in the event queue, and its next fact has not come."""
        if not self._log.on:
            self._log.on = True
            self._final_ns = self._guessed_ns = self._event_queue.now_ns
        self._event_queue.drop(host)
        host.silent = True
        heappush(self._silent, (host.clock_ns, host.order, host))

    def heard(self, host: Host) -> None:
        """A silent host's next fact has come."""
        self._heard.append(host)

    def listen(self) -> None:
        """Late facts send their ranks back. A host that has gone back may be silent again; its fact may have come."""
        restored = self._log.restored
        while self._heard or restored:
            self._heard += restored
            restored.clear()
            host = self._heard.pop()
            if not host.silent:
                continue
            if host.cursor >= len(host.log):
                heappush(self._silent, (host.clock_ns, host.order, host))
            elif self._log.go_back(host, host.next_ns() + 1):
                self._heard.append(host)
            else:
                self._speak(host)

    def _speak(self, host: Host) -> None:
        """The host is in the event queue again, for its next fact or, if that has not come, at its clock."""
        host.silent = False
        due_ns = host.next_ns()
        if due_ns < self._event_queue.now_ns:
            self._event_queue.now_ns = due_ns
        self._event_queue.push(due_ns, host)

    def first_silent(self) -> Host | None:
        """The silent host that is first in the total order."""
        silent = self._silent
        while silent:
            clock_ns, _, host = silent[0]
            if host.silent and host.clock_ns == clock_ns:
                return host
            heappop(silent)
        return None

    def waits_before(self, at_ns: int, order: int) -> bool:
        """Is some host silent at an earlier timestamp?"""
        return self._first_silent_timestamp() < (at_ns, order)

    def _first_silent_timestamp(self) -> Timestamp:
        host = self.first_silent()
        return AFTER_ALL if host is None else Timestamp(host.clock_ns, host.order)

    # ---- what is final ---------------------------------------------------------------------------------------------

    def executed(self, ahead: bool) -> None:
        """An event has been executed. `ahead`: it may be later than a silent host."""
        if ahead and self._event_queue.now_ns > self._guessed_ns:
            self._guessed_ns = self._event_queue.now_ns
        if self._log.restored:
            self.listen()
        self._event_queue.tidy()
        self._events += 1
        if not self._events % COMMIT_EVERY:
            self.commit()

    def global_ns(self) -> int:
        """Global virtual time: everything before it is decided."""
        silent, event = self._first_silent_timestamp(), self._event_queue.first_timestamp()
        first_ns = min(self._collectives.refresh(), silent.at_ns, event.at_ns)
        return first_ns if first_ns != NEVER else max(self._final_ns, self.furthest_ns())

    def furthest_ns(self) -> int:
        """The last instant at which anything of a rank has been simulated."""
        return max((host.checkpoints[-1].at_ns for host in self._hosts if host.checkpoints), default=0)

    def commit(self) -> None:
        """Releases what is final and drops its history. Ends speculation when no rank is ahead."""
        global_ns = self.global_ns()
        over = self.first_silent() is None and (global_ns > self._guessed_ns or self._nothing_left())
        self.most_kept = max(self.most_kept, self._log.kept)
        for host in self._hosts:
            checkpoints = host.checkpoints
            final = 0
            for checkpoint in checkpoints:
                if checkpoint.at_ns >= global_ns and not over:
                    break
                final += 1
                self._final_ns = max(self._final_ns, checkpoint.at_ns)
                self._output.release(host, checkpoint)
            if final:
                del checkpoints[:final]
                self._log.kept -= final
            host.forget(checkpoints[0].facts if checkpoints else host.facts_done)
        self._release_answers(global_ns)
        self._collectives.commit(global_ns)
        if over:
            self._end()

    def _nothing_left(self) -> bool:
        return self._event_queue.first_timestamp() is AFTER_ALL and self._collectives.refresh() == NEVER

    def _release_answers(self, global_ns: int) -> None:
        """Answers at global virtual time itself, if everything to come is behind them in the total order.

        Without this, a host that asks and says nothing until it is answered would wait for itself.
        """
        event, silent = self._event_queue.first_timestamp(), self._first_silent_timestamp()
        if self._collectives.refresh() <= global_ns or (event.at_ns <= global_ns and event.order < HOSTS):
            return
        for host in self._hosts:
            for checkpoint in host.checkpoints[:1]:
                here = global_ns, host.order
                if checkpoint.at_ns == global_ns and event >= here and silent >= here:
                    self._output.release_answers(host, checkpoint)

    # ---- the end ---------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Takes back everything from global virtual time on, as if nothing had been simulated ahead."""
        self.listen()
        at_ns = self.global_ns()
        for host in self._hosts:
            self._log.demand(host, at_ns)
        self._log.settle()
        self.listen()
        self.commit()
        if self._log.on:
            for host in self._hosts:
                if host.silent:
                    self._speak(host)
            self._end()

    def _end(self) -> None:
        self._event_queue.now_ns = self._final_ns
        self._silent.clear()
        self._heard.clear()
        self._log.end()
