"""A launcher is told that a rank has failed when virtual time stands at its end, also if other ranks only sleep."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from emu.contract import records
from emu.contract.records import NcclKind
from phantora_async.coordinator.run_end import Outcome

from .fake_rank import FakeRank
from .fake_run import Run, failure_of

Program = Callable[[FakeRank], Awaitable[None]]
DELAY_NS = 100


async def sleeps(rank: FakeRank) -> None:
    """Sleeps until its connection closes."""
    await rank.join_world()
    await rank.hear(records.CLOCK)


async def receives(rank: FakeRank) -> None:
    """Waits to receive what the other one never sends."""
    await rank.join_world()
    part = records.NcclOp.encode(rank.comm, 0, NcclKind.RECV, 7, 0, 1 - rank.rank, 1 << 20, 0, 0, 1.0)
    rank.say(records.HostAdvance.encode(1000), records.NcclLaunch.encode(0, 2, 1, payload=part))
    rank.sync()


async def computes(rank: FakeRank) -> None:
    await rank.join_world()
    rank.say(records.HostAdvance.encode(1000))


async def outcome_when_told(
    two: Run, monkeypatch: pytest.MonkeyPatch, before: Program, meanwhile: Program
) -> tuple[Outcome, list[int]]:
    """Rank 1 fails after `before`, and rank 0 executes `meanwhile`. Nothing is done because of patience. Returns also
    of whose end the launcher was told, which then ends.
    """
    for name in ("standstill", "restarts"):
        monkeypatch.setattr(f"phantora_async.coordinator.{name}.PATIENCE_S", 1e6)
    two.spec = replace(two.spec, launcher=True, restart_delay_ns=DELAY_NS)
    two.coordinator = two._make()
    told: list[int] = []

    async def launcher() -> None:
        async for rank in two.coordinator.ends_to_tell():
            told.append(rank)
            assert two.coordinator.launcher_ended()

    async def fails(rank: FakeRank) -> None:
        await before(rank)
        rank.bye(3)
        await rank._writer.drain()
        rank.close()
        two.coordinator.rank_exited(1, 3, 0, untold=True)

    launching = asyncio.create_task(launcher())
    outcome = await two.play(meanwhile, fails)
    launching.cancel()
    return outcome, told


async def test_while_the_other_one_sleeps(two: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands at the same instant, with a lower number: virtual time waits for it, not for the one that failed."""
    two.processes.awake = False
    outcome, told = await outcome_when_told(two, monkeypatch, computes, sleeps)
    assert told == [1]
    assert failure_of(outcome).exit_code == 3
    assert two.coordinator._timeline.now_ns == 1000 + DELAY_NS


async def test_when_nobody_can_do_anything(two: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that failed had a wait before its end which never ends."""

    async def waits(rank: FakeRank) -> None:
        await receives(rank)
        await rank.clock()

    outcome, told = await outcome_when_told(two, monkeypatch, receives, waits)
    assert told == [1]
    assert failure_of(outcome).exit_code == 3
