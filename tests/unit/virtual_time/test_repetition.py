"""Repeated segments and waits, executed as a whole: what comes out is what they give one by one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from emu.contract import records
from phantora_async.recording.rows import RankRows, Tables
from phantora_async.virtual_time.entities.repetition import REPEATED, RepeatedFact, Spent, expanded, rhythm_of
from phantora_async.virtual_time.repetition.finding import _shortened, with_repetitions

from .scripted import Result, Script, new_fact_builder, play, scripts


def copies(script: Script, times: int, *, solo_ns: int = 100, tail_ns: int = 0) -> Script:
    """As ``tensor[i].cpu()`` of a loop: a copy, and a wait that is asked for twice."""
    for _ in range(times):
        script.segment(solo_ns, tail_ns=tail_ns, after=30).sync(stream=1, after=5).sync(stream=1)
    return script


def arrived(script: Script) -> list[object]:
    return records.decode_up(b"".join(script.records))[0]


def test_a_repetition_takes_as_long_as_its_rounds() -> None:
    script = copies(Script(0, 1).advance(7), 50).clock(after=3)
    result = play([script.bye()], whole=True)
    assert result.clocks(0) == [7 + 50 * (30 + 100) + 3]


def test_events_do_not_grow_with_rounds() -> None:
    events = [play([copies(Script(0, 1), times).bye()], whole=True).timeline.events for times in (100, 10_000)]
    assert events[0] == events[1]


def test_facts_are_counted_one_by_one() -> None:
    result = play([copies(Script(0, 1), 50).bye()], whole=True)
    assert result.timeline.hosts[0].facts_done == 4 + 150 + 1  # HELLO and three streams; BYE


def test_what_a_round_is_made_of() -> None:
    script = copies(Script(0, 1), 50, tail_ns=160)
    (repeated,) = (one for one in with_repetitions(arrived(script)) if one.kind == REPEATED)
    assert isinstance(repeated, RepeatedFact)
    assert (len(repeated.facts), repeated.times) == (3, 50)
    # 100 of the 160 ns after the launch are the copy's; the host waits for the rest.
    assert repeated.rhythm.total == Spent(compute_ns=100, host_bound_ns=30, idle_ns=60)
    assert repeated.rhythm.round_ns == 190
    assert repeated.rhythm.spent(2 * 190 + 80) == Spent(compute_ns=250, host_bound_ns=90, idle_ns=120)


class Counted(list[object]):
    """Counts the elements that are looked at."""

    looked = 0

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        self.looked += len(found) if isinstance(at, slice) else 1
        return found


def test_looking_takes_as_long_as_there_are_records() -> None:
    """Also where the same records come over and over, but nobody knows what a round takes: work is queued."""
    looked = []
    for times in (200, 2_000):
        script = Script(0, 1)
        for _ in range(times):
            script.segment(100).segment(100).sync(stream=1)
        stretch = Counted(arrived(script)[-3 * times :])
        assert len(_shortened(stretch)) == 3 * times
        looked.append(stretch.looked)
    assert looked[1] < 11 * looked[0]


def test_other_work_is_no_repetition() -> None:
    queued, left = Script(0, 1), Script(0, 1)
    for _ in range(40):
        queued.segment(100).segment(100).sync(stream=1)
        left.sync(stream=1).segment(100, after=10)
    assert all(one.kind != REPEATED for one in with_repetitions(arrived(queued)))
    # A round that ends with work is looked at from its wait on, where it has none.
    (repeated,) = (one for one in with_repetitions(arrived(left)) if one.kind == REPEATED)
    assert [one.kind for one in repeated.facts] == [records.SEGMENT, records.HOST_WAIT]
    assert rhythm_of([*repeated.facts, records.decode_up(records.Bye.encode(0, 0, 0))[0][0]]) is None


def test_the_facts_are_those_that_arrived() -> None:
    script = copies(copies(Script(0, 1), 20).segment(5), 30, solo_ns=7).bye()
    assert list(expanded(with_repetitions(arrived(script)))) == arrived(script)


def test_rows_are_those_of_the_facts() -> None:
    script = copies(Script(0, 1).advance(5), 20).bye()
    rows = [RankRows(0, Tables()) for _ in range(2)]
    for facts, its in zip((arrived(script), with_repetitions(arrived(script))), rows, strict=True):
        for fact in new_fact_builder(1).take(0, list(facts)):
            its.add(fact)
    assert rows[0].rows == rows[1].rows
    assert rows[0].facts == rows[1].facts


def program(seed: int) -> list[Script]:
    """Two ranks that copy, compute, and meet."""
    draw = random.Random(seed)
    ranks = scripts(2)
    for script in ranks:
        for _ in range(6):
            match draw.randrange(5):
                case 0 | 1:
                    copies(script, draw.randint(3, 40), solo_ns=draw.randint(1, 200), tail_ns=draw.randint(0, 300))
                case 2:
                    script.segment(draw.randint(1, 900), stream=draw.choice((1, 3)), after=draw.randint(0, 90))
                case 3:
                    script.clock(after=draw.randint(0, 40))
                case 4:
                    script.step(after=draw.randint(0, 40))
    for number in range(3):
        count = draw.randint(1, 3000)
        for script in ranks:
            script.all_reduce(count, after=draw.randint(0, 500))
            copies(script, draw.randint(0, 60), solo_ns=draw.randint(1, 200))
            if number == 1:
                script.sync()
    for script in ranks:
        script.sync().clock().bye()
    return ranks


def seen(result: Result) -> tuple[object, ...]:
    """All that a report could have of it."""
    timeline = result.timeline
    snapshot, activity = timeline.snapshot(), timeline.activity()
    return (
        result.answers,
        result.end_ns,
        result.begun,
        activity.width_ns,
        [of.tolist() for of in activity.accounts],
        [host.shares_at(timeline.now_ns) for host in timeline.hosts],
        [(host.facts_done, host.clock_ns) for host in timeline.hosts if timeline.all_finished()],
        snapshot.steps,
    )


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_come_out_the_same(seed: int) -> None:
    expected = play(program(seed))
    assert seen(play(program(seed), whole=True)) == seen(expected)
    shuffled = play(program(seed), whole=True, shuffle=random.Random(seed), most=100, ahead=0.5)
    assert seen(shuffled) == seen(expected)


@pytest.mark.parametrize("seed", range(20))
def test_a_run_that_is_ended_within_a_repetition_has_what_was_done_until_then(seed: int) -> None:
    end_ns = play(program(seed)).end_ns
    for part in (0.2, 0.5, 0.9):
        limit_ns = int(end_ns * part)
        one_by_one, whole = (play(program(seed), whole=whole, limit_ns=limit_ns) for whole in (False, True))
        assert seen(whole) == seen(one_by_one)
