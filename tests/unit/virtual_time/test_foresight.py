"""Answers that are certain leave before virtual time comes to their question."""

from __future__ import annotations

import random

import pytest

from emu.contract import records
from emu.contract.records import ScopeKind
from phantora_async.virtual_time import Stop, Timeline

from .scripted import FixedNetwork, Script, new_fact_builder, number, play, scripts

START = 5
"""Records of a script until it has joined a communicator."""


class Job:
    """Ranks that wait for their answers, as real ones do."""

    def __init__(self, *played: Script) -> None:
        self.timeline, self._facts = Timeline(len(played), FixedNetwork(), 1024), new_fact_builder(len(played))
        self.answers: dict[int, int] = {}
        for script in played:
            self.say(script.rank, *script.records[:START])
        for script in played:
            self.say(script.rank, *script.records[START:])

    def say(self, rank: int, *encoded: bytes) -> None:
        if not encoded:
            return
        self.timeline.feed(rank, self._facts.take(rank, records.decode_up(b"".join(encoded))[0]))
        while self.timeline.run(1000) is Stop.BUDGET:
            continue
        self.answers |= {rank: number(answer) for rank, answer in self.timeline.take_answers()}


def asking(rank: int, world_size: int, *, work_ns: int, after: int) -> Script:
    script = Script(rank, world_size).segment(work_ns)
    return script.query(script.record(), after=after)


def test_ranks_that_ask_at_about_the_same_time_are_answered_together() -> None:
    ranks = [asking(rank, 8, work_ns=1_000, after=50 + rank) for rank in range(8)]
    job = Job(*ranks)
    assert job.answers == dict.fromkeys(range(8), 0)
    assert job.timeline.now_ns == 50, "rank 0 holds virtual time"


def test_work_that_is_complete_stays_so() -> None:
    script = Script(0, 2).segment(1_000)
    recording = script.record()
    job = Job(script.advance(2_000).query(recording, after=300), Script(1, 2).advance(2_100))
    assert job.answers == {0: 1}
    assert job.timeline.now_ns == 2_100, "the question is at 2,300"


@pytest.mark.parametrize(("work_ns", "answers"), [(299, {}), (300, {}), (301, {0: 0})])
def test_what_may_be_complete_by_then_is_not_answered(work_ns: int, answers: dict[int, int]) -> None:
    """Another rank holds time before the question; the end of the work and its beginning are certain."""
    job = Job(asking(0, 2, work_ns=work_ns, after=300), Script(1, 2).advance(1))
    assert job.answers == answers
    job.say(1, records.HostAdvance.encode(1_000))
    assert job.answers == {0: int(work_ns <= 300)}


def test_work_beside_nccl_may_go_faster_again() -> None:
    """A segment that now takes longer than alone: only its time alone is certain."""
    first, second = scripts(2)
    first.all_reduce(10).segment(200, contended_ns=900)
    job = Job(first.query(first.record(), after=400), second.advance(1))
    assert job.answers.get(0) is None
    first, second = scripts(2)
    first.all_reduce(10).segment(600, contended_ns=900)
    job = Job(first.query(first.record(), after=400), second.advance(1))
    assert job.answers[0] == 0


def test_a_collective_that_waits_for_peers_takes_its_time_from_now_on() -> None:
    first, second = scripts(2)
    first.all_reduce(500)  # bytes are nanoseconds here
    job = Job(first.query(first.record(stream=2), after=400), second)
    assert job.answers[0] == 0
    first, second = scripts(2)
    first.all_reduce(300)
    job = Job(first.query(first.record(stream=2), after=400), second)
    assert 0 not in job.answers
    job.say(1, *second.all_reduce(300, after=100).advance(1).records[-2:])
    assert 0 not in job.answers, "it ends at 400, when rank 0 asks"
    job.say(1, records.HostAdvance.encode(1_000))
    assert job.answers[0] == 1


def test_a_stream_that_waits_for_another() -> None:
    script = Script(0, 2).segment(5_000)
    script.wait(script.record(), stream=3)
    job = Job(script.query(script.record(stream=3), after=900), Script(1, 2))
    assert job.answers == {0: 0}


def test_far_questions_wait() -> None:
    """Who is woken by that rank would go on too early by as much."""
    job = Job(asking(0, 2, work_ns=9_000_000, after=1_000_001), Script(1, 2).advance(1))
    assert job.answers == {}


def test_a_poll_that_takes_time_is_not_answered_before() -> None:
    script = Script(0, 2).segment(1_000_000)
    recording = script.record()
    for _ in range(64):
        script.query(recording, after=1)
    job = Job(script, Script(1, 2))
    assert len(job.answers) == 1
    assert job.timeline.answers_sent == 1, "the others come behind it"
    script = Script(0, 2).segment(1_000_000)
    recording = script.record()
    job = Job(script, Script(1, 2).advance(100))
    for turn in range(70):
        job.answers.clear()
        job.say(0, records.Query.encode(1, turn, recording, 0, ScopeKind.EVENT, 0, 0, 0))
        assert bool(job.answers) == (turn < 64)
        if turn == 64:
            break


def test_early_answers_are_the_right_ones() -> None:
    """Answers that have left are compared with what is found in its time: AssertionError if they differ."""
    for seed in range(40):
        chance = random.Random(seed)
        ranks = scripts(3)
        for _ in range(60):
            chosen, count = chance.random(), chance.choice((64, 400))
            for script in ranks:  # they do the same at other times
                after = chance.randint(0, 400)
                if chosen < 0.3:
                    script.all_reduce(count, after=after)
                    script.wait(script.record(stream=2), stream=1)
                elif chosen < 0.6:
                    script.segment(chance.randint(1, 900), contended_ns=chance.randint(900, 1_200), after=after)
                else:
                    recording = script.record(stream=chance.choice((1, 2)), after=after)
                    script.query(recording, after=chance.randint(0, 700))
        result = play([script.bye() for script in ranks], shuffle=chance)
        assert result.stop is Stop.DRAINED
        assert result.timeline.answered_early > 10
