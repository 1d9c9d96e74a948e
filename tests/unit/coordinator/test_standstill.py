"""Ranks that sleep are passed over as long as no process has been told anything."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from emu.contract import records
from phantora_async.coordinator import standstill
from phantora_async.coordinator.standstill import FLUSH_S, Standstill
from phantora_async.errors import Deadlock, Stalled
from phantora_async.liveness.blocked_ranks import Verdict
from phantora_async.liveness.listening import Listener


class Machine:
    """Rank 0 sleeps; virtual time has answered others."""

    def __init__(self, given_s: float | None = None) -> None:
        self.others_work = False
        self.listener: Listener | None = None
        self.incomplete = False
        self.worked = 0
        self.looks = self.progress = self.told = 0
        self.stopped: set[int] = set()
        self.unflushed: set[int] = set()
        self.at_rest: list[list[int]] = []
        self.passed: list[list[int]] = []
        self.wait_for_calls: list[int] = []
        self.timeline = SimpleNamespace(answers_sent=0, pass_over=self.passed.append)
        self.blocked_ranks: Any = SimpleNamespace(
            look=self.look,
            spoken=0,
            stopped=lambda rank: rank in self.stopped,
            progressed=self.progressed,
            told=self.tell,
            worked=self.work,
            wait_for_ranks=lambda: self.incomplete,
            wait_for_calls=lambda: self.wait_for_calls,
        )
        timeline: Any = self.timeline
        self.connections: Any = SimpleNamespace(
            resume_all=lambda: False,
            flush=lambda ranks: bool(self.unflushed & set(ranks)),
            flushing=False,
            at_rest=self.at_rest.append,
        )
        self.sleep_until_s = 0.0
        self.bystanders: Any = SimpleNamespace(
            work=lambda: self.others_work, listener=lambda: self.listener, sleep_until_s=lambda: self.sleep_until_s
        )
        self.standstill = Standstill(timeline, self.connections, self.blocked_ranks, self.bystanders, given_s)
        self.verdict = Verdict([0], [1], 0.0, 0.0, 0.1)

    def progressed(self) -> None:
        self.progress += 1

    def work(self) -> None:
        self.worked += 1

    def tell(self) -> None:
        self.told += 1

    def look(self) -> Verdict:
        self.looks += 1
        return self.verdict


def test_answers_to_ranks_without_processes_wake_nobody() -> None:
    machine = Machine()
    assert not machine.standstill.goes_on(), "nobody has been seen to sleep"
    assert machine.standstill.look() is None
    machine.timeline.answers_sent += 1
    assert machine.standstill.goes_on()
    machine.timeline.answers_sent += 1
    assert machine.standstill.goes_on()
    assert (machine.looks, machine.passed, machine.standstill.passed_over) == (1, [[0]] * 3, 3)
    assert not machine.standstill.goes_on(), "no answer has left since"


def test_who_was_told_something_or_has_spoken_may_have_woken_others() -> None:
    machine = Machine()
    assert machine.standstill.look() is None
    machine.timeline.answers_sent += 1
    machine.standstill.told([(1, records.Clock.encode(1, 5, 1))])
    assert machine.told == 1, "ranks have to be looked at again"
    assert not machine.standstill.goes_on()
    assert machine.standstill.look() is None
    machine.timeline.answers_sent += 1
    machine.blocked_ranks.spoken += 1
    assert not machine.standstill.goes_on()


def test_a_rank_that_waits_for_another_one_s_call_needs_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    now_s = 100.0
    monkeypatch.setattr(standstill, "monotonic", lambda: now_s)
    assert machine.standstill.look() is None
    machine.wait_for_calls = [0, 2]
    assert not machine.standstill.goes_on(), "nothing was answered"
    machine.timeline.answers_sent += 1
    machine.standstill.told([(1, records.Clock.encode(1, 5, 1))])
    machine.blocked_ranks.spoken += 1
    assert machine.standstill.goes_on()
    assert (machine.looks, machine.passed) == (1, [[0], [0, 2]])
    now_s += standstill.LOOK_EVERY_S
    machine.timeline.answers_sent += 1
    machine.standstill.told([(1, records.Clock.encode(1, 5, 1))])
    assert not machine.standstill.goes_on(), "a deadlock would not be found"


@pytest.mark.parametrize(
    ("stuck_s", "read_ns", "dead"),
    [
        (29.0, None, False),
        (31.0, None, True),
        (31.0, 1_000_000, False),
        (599.0, 1_000_000, False),
        (601.0, 1_000_000, True),
        (31.0, 31_000_000_000, True),
    ],
    ids=["soon", "silent", "a loop with a progress bar", "a long one", "too long", "polls in virtual time"],
)
def test_a_rank_that_asks_for_the_time_may_get_on(stuck_s: float, read_ns: int | None, dead: bool) -> None:
    machine = Machine()
    machine.verdict = Verdict([0], [1], stuck_s, stuck_s, 0.1, read_ns)
    if dead:
        with pytest.raises(Deadlock, match=f"for {stuck_s:.0f} s"):
            machine.standstill.look()
    else:
        assert machine.standstill.look() is None


@pytest.mark.parametrize(("given_s", "after_s"), [(None, 30), (5.0, 5), (300.0, 300), (0.0, 10**6)])
def test_the_limit_is_the_user_s(given_s: float | None, after_s: int) -> None:
    machine = Machine(given_s)
    machine.verdict = Verdict([0], [], after_s - 1.0, after_s - 1.0, 0.1)
    assert machine.standstill.look() is None
    machine.verdict = Verdict([0], [], after_s + 1.0, after_s + 1.0, 0.1)
    if given_s == 0:
        assert machine.standstill.look() is None
    else:
        with pytest.raises(Deadlock):
            machine.standstill.look()


def test_a_thread_that_sleeps_for_a_time_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    now_s = 1000.0
    monkeypatch.setattr(standstill, "monotonic", lambda: now_s)

    def look_at(s: float, sleeps_until_s: float, still_from_s: float = 1000.0) -> None:
        nonlocal now_s
        now_s, machine.sleep_until_s = s, sleeps_until_s
        machine.verdict = Verdict([0], [], s - still_from_s, s - still_from_s, 0.1)
        assert machine.standstill.look() is None

    look_at(1029.0, 0.0)
    look_at(1031.0, 1045.0)
    look_at(1045.5, 1090.0)  # it sleeps again, perhaps for ever
    with pytest.raises(Deadlock, match="for 47 s"):
        look_at(1047.0, 1090.0)
    look_at(1131.0, 1145.0, still_from_s=1100.0)  # there was progress meanwhile


def test_the_user_s_limit_counts_more_than_a_thread_s_sleep() -> None:
    machine = Machine(5.0)
    machine.verdict, machine.sleep_until_s = Verdict([0], [], 6.0, 6.0, 0.1), 1e9
    with pytest.raises(Deadlock):
        machine.standstill.look()


def test_a_process_that_is_no_rank_and_works_is_waited_for() -> None:
    machine = Machine()
    machine.verdict, machine.others_work = Verdict([0], [1], 31.0, 31.0, 0.1), True
    assert machine.standstill.look() is None
    assert machine.worked == 1
    machine.verdict = Verdict([0], [1], 5.0, 1801.0, 0.1)
    with pytest.raises(Stalled, match="though processes have worked"):
        machine.standstill.look()


def test_a_server_that_waits_for_requests_is_idle_until_the_limit() -> None:
    machine = Machine()
    machine.listener, machine.verdict = Listener(7, "vllm"), Verdict([0], [], 1799.0, 1799.0, 0.1)
    assert machine.standstill.look() is None
    machine.verdict = Verdict([0], [], 1801.0, 1801.0, 0.1)
    with pytest.raises(Stalled, match=r"vllm \(process 7\) has waited 1801 s for somebody to connect"):
        machine.standstill.look()


@pytest.mark.parametrize("waits", ["for an answer", "for a collective"])
def test_a_program_that_listens_explains_no_deadlock_of_ranks(waits: str) -> None:
    machine = Machine()
    machine.listener, machine.incomplete = Listener(7, "board"), waits == "for a collective"
    machine.verdict = Verdict([0], [1] if waits == "for an answer" else [], 31.0, 31.0, 0.1)
    with pytest.raises(Deadlock):
        machine.standstill.look()


def test_no_rank_is_passed_over_before_all_have_sent_the_work_that_nothing_follows() -> None:
    machine = Machine()
    machine.unflushed = {1}
    assert machine.standstill.look() == FLUSH_S
    assert machine.passed == []
    machine.unflushed = set()
    assert machine.standstill.look() is None
    assert machine.passed == [[0]]


def test_when_all_have_none_no_second_look_is_needed() -> None:
    machine = Machine()
    machine.unflushed, machine.connections.flushing = {0, 1}, True
    assert not machine.standstill.flushed(), "nobody has been asked"
    machine.standstill.look()
    assert not machine.standstill.flushed(), "the other one has not told"
    machine.connections.flushing = False
    assert machine.standstill.flushed()
    assert (machine.looks, machine.passed) == (1, [[0]])
    assert not machine.standstill.flushed()


@pytest.mark.parametrize("what", ["spoke", "told"])
def test_a_rank_that_had_some_is_looked_at_again(what: str) -> None:
    machine = Machine()
    machine.unflushed = {0}
    machine.standstill.look()
    if what == "spoke":
        machine.blocked_ranks.spoken += 1
    else:
        machine.timeline.answers_sent += 1
    assert not machine.standstill.flushed()
    assert machine.passed == []


def test_a_stopped_rank_cannot_answer_and_is_not_asked() -> None:
    machine = Machine()
    machine.unflushed = machine.stopped = {1}
    assert machine.standstill.look() is None


def test_to_learn_that_work_is_complete_is_progress() -> None:
    """A rank may ask of hundreds of events in one call; to ask again and again of one that is not complete is none."""
    machine = Machine()
    machine.standstill.told([(1, records.Done.encode(1, 0, 0)), (2, records.Clock.encode(1, 5, 1))])
    assert machine.progress == 0
    machine.standstill.told([(1, records.Done.encode(1, 0, 0)), (2, records.Done.encode(1, 1, 0))])
    assert machine.progress == 1


def test_ranks_that_sleep_on_though_they_were_passed_over_are_told_once() -> None:
    """They may wait for a thread of theirs that watches for finished work. Those that wait for answers do not."""
    machine = Machine()
    machine.verdict = Verdict([0], [1], 1.1, 1.1, 0.1)
    machine.standstill.look()
    assert machine.at_rest == [], "virtual time may have something to simulate"
    machine.standstill.look()
    machine.standstill.look()
    assert machine.at_rest == [[0]]
    machine.blocked_ranks.spoken += 1
    machine.standstill.look()
    assert machine.at_rest == [[0]], "it has been given something meanwhile"
    machine.standstill.look()
    assert machine.at_rest == [[0], [0]]


@pytest.mark.parametrize("why", ["a short sleep", "others work", "stopped"])
def test_ranks_that_wait_for_something_else_are_not_told(why: str) -> None:
    machine = Machine()
    for_s = 0.9 if why == "a short sleep" else 1.1
    machine.verdict, machine.others_work = Verdict([0], [1], for_s, for_s, 0.1), why == "others work"
    machine.stopped = {0} if why == "stopped" else set()
    for _ in range(3):
        machine.standstill.look()
    assert [rank for ranks in machine.at_rest for rank in ranks] == []
