"""Ranks that wait: for each other, for a rank that sleeps, or for ever; and ranks that go too fast."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import pytest

from emu.contract import records
from emu.contract.records import NcclKind
from phantora_async.errors import ExitCode
from phantora_async.report import terminal_report
from phantora_async.virtual_time import Stop
from phantora_async.wording import short_lines

from .fake_rank import FakeRank
from .fake_run import Run, failure_of


async def test_a_sleeping_rank_is_passed_over(two: Run) -> None:
    """Rank 0 waits, unseen, for a message of rank 1, whose clock is far ahead and cannot be told before."""
    message = asyncio.Event()
    clocks: list[int] = []

    async def sleeper(rank: FakeRank) -> None:
        two.processes.awake = False
        await message.wait()
        clocks.append(await rank.clock(after=5))
        rank.bye()

    async def sender(rank: FakeRank) -> None:
        clocks.append(await rank.clock(after=1000))
        two.processes.awake = True
        message.set()
        rank.say(records.HostAdvance.encode(50))
        rank.bye()

    outcome = await two.play(sleeper, sender)
    assert outcome.failure is None
    assert clocks == [1000, 1005]


async def test_all_asleep_is_a_deadlock_after_a_while(two: Run) -> None:
    two.limit(stall_timeout_s=0.2)
    two.processes.awake = False

    async def waits(rank: FakeRank) -> None:
        await rank.hear(records.CLOCK)  # for ever: it has not asked

    outcome = await two.play(waits, waits)
    assert failure_of(outcome).exit_code == ExitCode.STUCK
    assert "asleep" in failure_of(outcome).text


async def test_mismatched_collectives_end_the_run(two: Run) -> None:
    async def program(rank: FakeRank) -> None:
        await rank.join_world()
        rank.collective(NcclKind.ALL_REDUCE if rank.rank else NcclKind.ALL_GATHER, 64)
        await rank.clock()

    outcome = await two.play(program, program)
    assert failure_of(outcome).exit_code == ExitCode.STUCK
    text = failure_of(outcome).text
    assert "rank 0: all_gather #0 of 64 i8 on communicator of ranks 0-1" in text
    assert "rank 1: all_reduce #0 of 64 i8 (sum) on communicator of ranks 0-1" in text
    assert "rank1.log" in text


async def test_a_member_that_waits_for_the_time_still_says_what_it_calls(three: Run) -> None:
    """Rank 1 differs from rank 0, and with its call comes what rank 2 waits for: that it has come to later."""
    called = asyncio.Event()

    async def first(rank: FakeRank) -> None:
        await rank.join_world()
        rank.collective(NcclKind.ALL_GATHER, 64)
        called.set()
        await rank.clock(after=9000)

    async def second(rank: FakeRank) -> None:
        await rank.join_world()
        await called.wait()
        op = records.NcclOp.encode(rank.comm, 0, NcclKind.ALL_REDUCE, 0, 0, 0, 64, 0, 0, 1.0)
        rank.say(records.HostAdvance.encode(2000) + records.NcclLaunch.encode(0, 2, 1, payload=op))
        await rank.clock()

    async def third(rank: FakeRank) -> None:
        await rank.join_world()
        await rank.clock(after=1000)
        rank.collective(NcclKind.ALL_REDUCE, 64)
        await rank.clock()

    text = failure_of(await three.play(first, second, third)).text
    assert "rank 0: all_gather #0" in text
    assert "ranks 1-2: all_reduce #0" in text


async def test_both_sides_of_a_mismatch_are_told_with_their_lines(two: Run) -> None:
    async def program(rank: FakeRank) -> None:
        await rank.join_world()
        line = records.Site.encode(0, 1, 10 + rank.rank, 0, 0, payload=b"/x/train.py\nstep\n\n")
        op = NcclKind.ALL_REDUCE if rank.rank else NcclKind.ALL_GATHER
        part = records.NcclOp.encode(rank.comm, 0, op, 0, 0, -1, 64, 0, 0, 1.0)
        rank.say(line, records.NcclLaunch.encode(0, 2, 1, payload=part, site=1))
        await rank.clock()

    outcome = await two.play(program, program)
    assert "called at /x/train.py:10 in step" in failure_of(outcome).text
    assert "called at /x/train.py:11 in step" in failure_of(outcome).text
    failure = outcome.report["failure"]
    assert failure["kind"] == "mismatch"
    calls = {call["rank"]: (call["call"][:10], call["site"]["line"]) for call in failure["calls"]}
    assert calls == {0: ("all_gather", 10), 1: ("all_reduce", 11)}
    assert failure["text"] == failure_of(outcome).text
    why, _, further = failure_of(outcome).text.partition("\n")
    shown = terminal_report(outcome.report)
    assert why in shown
    assert short_lines(further) in shown


async def test_a_wait_is_told_with_its_line_and_the_missing_call(two: Run) -> None:
    async def waits(rank: FakeRank) -> None:
        await rank.join_world()
        for number, line in ((1, 30), (2, 31)):
            rank.say(records.Site.encode(0, number, line, 0, 0, payload=b"/x/train.py\nstep\n\n"))
        part = records.NcclOp.encode(rank.comm, 0, NcclKind.RECV, 7, 0, 1 - rank.rank, 1 << 20, 0, 0, 1.0)
        rank.say(records.NcclLaunch.encode(0, 2, 1, payload=part, site=1))
        rank.say(records.HostWait.encode(0, 3, 0, 0, site=2))
        await rank.clock()

    outcome = await two.play(waits, waits)
    assert (
        "rank 0: waits at /x/train.py:31 in step for its GPU: stream 2, which is in send/recv #0"
        in failure_of(outcome).text
    )
    assert "called at /x/train.py:30 in step; rank 1 has not called it" in failure_of(outcome).text


async def test_who_says_nothing_for_too_long_ends_the_run(two: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that moves from one look to the next."""
    now_s = [0.0]
    for name, value in (("STALL_S", 0.125), ("FIRST_NOTICE_S", 0.125), ("monotonic", lambda: now_s[0])):
        monkeypatch.setattr(f"phantora_async.liveness.stall_watch.{name}", value)
    two.limit(stall_timeout_s=0.8)
    two.show_every_s = 0.01

    def looked(line: str) -> None:
        now_s[0] += 0.125

    two.watch = looked

    async def asks(rank: FakeRank) -> None:
        await rank.clock(after=5)

    async def polls(rank: FakeRank) -> None:
        while True:
            rank.say(records.HostAdvance.encode(0))
            rank.say(records.Query.encode(0, 1, 0, 0, 3, 0, 0, 0))
            await rank.hear(records.DONE)
            await asyncio.sleep(0.01)

    outcome = await two.play(asks, polls)
    assert failure_of(outcome).exit_code == ExitCode.STUCK
    assert outcome.report["failure"]["kind"] == "stalled"
    assert "for rank 1, which " in failure_of(outcome).text
    assert "rank 0 waits; that is longer than --stall-timeout 0.8" in failure_of(outcome).text
    assert len(two.notices) == 3, "after 0.125, 0.25 and 0.5 s"


async def test_an_interrupted_run_tells_who_waits(two: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phantora_async.liveness.stall_watch.STALL_S", 0.0)
    asked = asyncio.Event()

    async def asks(rank: FakeRank) -> None:
        asking = asyncio.create_task(rank.clock(after=5))
        await asyncio.sleep(0)
        asked.set()
        await asking

    async def silent(rank: FakeRank) -> None:
        await asked.wait()
        two.watch = lambda line: two.coordinator.interrupt() if "1 waiting" in line else None
        await rank.hear(records.CLOCK)

    outcome = await two.play(asks, silent)
    assert failure_of(outcome).exit_code == ExitCode.INTERRUPTED
    assert re.match(r"interrupted while waiting \d+ s for rank 1, which is running\n", failure_of(outcome).text)
    assert "rank 0: waits for the time, which depends on slower ranks" in failure_of(outcome).text


async def test_a_rank_that_ends_while_others_wait_for_it(two: Run) -> None:
    async def waits(rank: FakeRank) -> None:
        await rank.join_world()
        rank.collective(NcclKind.ALL_REDUCE, 64)
        rank.sync()
        await rank.clock()

    async def ends(rank: FakeRank) -> None:
        await rank.join_world()
        rank.bye()

    outcome = await two.play(waits, ends)
    assert failure_of(outcome).exit_code == ExitCode.STUCK
    assert "rank 1 ended without calling all_reduce #0 of 64 i8" in failure_of(outcome).text
    assert "rank 0: waits" in failure_of(outcome).text


async def test_ranks_that_wait_for_each_other(two: Run) -> None:
    async def program(rank: FakeRank) -> None:
        await rank.join_world()
        part = records.NcclOp.encode(rank.comm, 0, NcclKind.RECV, 7, 0, 1 - rank.rank, 1 << 20, 0, 0, 1.0)
        rank.say(records.NcclLaunch.encode(0, 2, 1, payload=part))
        rank.sync()
        await rank.clock()

    outcome = await two.play(program, program)
    assert failure_of(outcome).exit_code == ExitCode.STUCK
    text = failure_of(outcome).text
    assert "deadlock" in text
    assert "rank 0: waits for its GPU: stream 2, which is in send/recv #0 of 1048576 f32 from rank 1 to rank 0" in text
    assert "rank 1 has not called it" in text


async def test_a_fast_rank_is_held_back_and_let_go_when_a_slow_one_sleeps(
    two: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 1 says more than may queue, then sends rank 0, asleep, the message that it waits for."""
    monkeypatch.setattr("phantora_async.ingest.backpressure.RANK_FACTS", 100)
    message = asyncio.Event()
    counts: dict[str, Any] = {}

    async def slow(rank: FakeRank) -> None:
        two.processes.awake = False
        await message.wait()
        two.processes.awake = True
        rank.bye()

    async def fast(rank: FakeRank) -> None:
        for _ in range(400):
            rank.say(records.HostAdvance.encode(10) * 1000)
            await rank._writer.drain()
            if 1 in two.coordinator._connections._backpressure.paused:
                counts["paused"] = True
        message.set()
        rank.bye()

    outcome = await two.play(slow, fast)
    assert outcome.failure is None
    assert counts["paused"]


async def test_while_virtual_time_is_computed_no_rank_is_to_blame(two: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long that takes: a turn of virtual time has always more to do, for longer than the limit of a stall."""
    monkeypatch.setattr("phantora_async.liveness.stall_watch.STALL_S", 0.5)
    two.limit(stall_timeout_s=1.0)
    lines: list[str] = []
    told = asyncio.Event()
    stops: list[Stop] = []
    begun: list[float] = []
    run = two.coordinator._turns._policy.run

    def takes_long(events: int) -> Stop:
        if Stop.STARVED in stops:
            begun.append(time.monotonic())
        long = bool(begun) and not (told.is_set() and time.monotonic() - begun[0] > 1.5)
        stops.append(Stop.BUDGET if long else run(events))
        return stops[-1]

    def watch(line: str) -> None:
        lines.append(line)
        if "virtual time has been computed" in line:
            told.set()

    monkeypatch.setattr(two.coordinator._turns._policy, "run", takes_long)

    async def waits(rank: FakeRank) -> None:
        assert await rank.clock(after=1000) == 1000
        rank.bye()

    two.watch = watch
    outcome = await two.play(waits, waits)
    assert outcome.failure is None
    assert told.is_set()
    assert not [line for line in lines if "for rank" in line]
