"""Ranks that sleep are passed over as long as no process has been told anything."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from phantora_async.coordinator.standstill import Standstill
from phantora_async.liveness.blocked_ranks import Verdict


class Machine:
    """Rank 0 sleeps; virtual time has answered others."""

    def __init__(self) -> None:
        self.looks = 0
        self.passed: list[list[int]] = []
        self.output = SimpleNamespace(answers_sent=0)
        self.blocked_ranks: Any = SimpleNamespace(look=self.look, spoken=0)
        timeline: Any = SimpleNamespace(output=self.output, pass_over=self.passed.append)
        connections: Any = SimpleNamespace(resume_all=lambda: False)
        self.standstill = Standstill(timeline, connections, self.blocked_ranks, 0.0)

    def look(self) -> Verdict:
        self.looks += 1
        return Verdict([0], 0.0, 0.1)


def test_answers_to_ranks_without_processes_wake_nobody() -> None:
    machine = Machine()
    assert not machine.standstill.goes_on(), "nobody has been seen to sleep"
    assert machine.standstill.look() is None
    machine.output.answers_sent += 1
    assert machine.standstill.goes_on()
    machine.output.answers_sent += 1
    assert machine.standstill.goes_on()
    assert (machine.looks, machine.passed, machine.standstill.passed_over) == (1, [[0]] * 3, 3)
    assert not machine.standstill.goes_on(), "no answer has left since"


def test_who_was_told_something_or_has_spoken_may_have_woken_others() -> None:
    machine = Machine()
    assert machine.standstill.look() is None
    machine.output.answers_sent += 1
    machine.standstill.told()
    assert not machine.standstill.goes_on()
    assert machine.standstill.look() is None
    machine.output.answers_sent += 1
    machine.blocked_ranks.spoken += 1
    assert not machine.standstill.goes_on()
