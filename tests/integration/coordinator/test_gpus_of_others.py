"""Ranks that no process becomes because another rank's process has their GPU, and ranks that end without a word."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from emu.contract import records

from .fake_rank import FakeRank
from .fake_run import Run, failure_of

MIB = 1 << 20


@pytest.mark.parametrize("visited", [True, False])
async def test_a_rank_that_nobody_becomes(two: Run, monkeypatch: pytest.MonkeyPatch, visited: bool) -> None:
    """The report says that its GPU is not used only where it is so, and the wait is short where another process has
    it."""
    monkeypatch.setattr("phantora_async.coordinator.turns.VISITED_S", 0.0)
    patience_s = 1e6 if visited else 0.0
    monkeypatch.setattr("phantora_async.coordinator.standstill.PATIENCE_S", patience_s)
    monkeypatch.setattr("phantora_async.liveness.bystanders.Bystanders.work", lambda _: False)
    two.spec = replace(two.spec, launcher=True)
    two.coordinator = two._make()
    two.processes.awake = False
    await two.coordinator.serve()
    async with FakeRank(two.spec.socket, 0, 2) as rank:
        if visited:
            rank.say(records.GpuUsed.encode(0, 1, 0))
        assert await rank.clock(after=1000) >= 1000
        rank.bye()
        for number in (0, 1):
            two.coordinator.rank_exited(number, 0, 0)
        outcome = await asyncio.wait_for(two.coordinator.finished(), 60)
        two.coordinator.close()
    assert outcome.failure is None
    warnings = [one["text"] for one in outcome.report["simulated"]["warnings"]]
    assert any("no process has used this GPU" in text for text in warnings) is not visited
    use = outcome.report["simulated"]["gpu_use"]
    of_another = {"text": "a process of rank 0 used the GPU of this number", "ranks": [1]}
    assert (of_another in use["causes"]) is visited


async def test_memory_of_a_rank_that_is_killed(two: Run) -> None:
    """The rank used two GPUs, and what it had most of one is said."""

    async def waits(rank: FakeRank) -> None:
        await rank.clock(after=10)

    async def ends(rank: FakeRank) -> None:
        two.coordinator.rank_took(1, [[1, 300 * MIB, 320 * MIB, 320 * MIB], [0, 0, 0, 8 * MIB]])
        two.coordinator.rank_exited(1, 0, 9)

    outcome = await two.play(waits, ends)
    text = failure_of(outcome).text
    assert "it had allocated at most 300.0 MiB of a GPU (320.0 MiB with what it had cached)" in text
    memory = outcome.report["simulated"]["ranks"][1]["memory"]
    assert memory["allocated_peak_nbytes"] == 300 * MIB
    assert memory["reserved_peak_nbytes"] == memory["device_peak_nbytes"] == 320 * MIB


@pytest.mark.parametrize("answers", [True, False])
async def test_memory_of_ranks_that_a_failed_run_leaves_behind(
    two: Run, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    """Rank 0 has told nothing, as it came to no step's end: its server is asked. A server that does not answer is not
    waited for.
    """
    monkeypatch.setattr("phantora_async.coordinator.coordinator.ASK_S", 60.0 if answers else 0.0)

    async def serve() -> None:
        async for rank in two.coordinator.memory_to_ask():
            asked.append(rank)
            if answers:
                two.coordinator.rank_took(rank, [[0, 300 * MIB, 320 * MIB, 320 * MIB]])

    async def waits(rank: FakeRank) -> None:
        await rank.clock(after=10)

    async def ends(rank: FakeRank) -> None:
        two.coordinator.rank_exited(1, 1, 0)

    asked: list[int] = []
    server = asyncio.create_task(serve())
    outcome = await two.play(waits, ends)
    server.cancel()
    assert asked == [0]
    memory = [rank["memory"]["allocated_peak_nbytes"] for rank in outcome.report["simulated"]["ranks"]]
    assert memory == [300 * MIB if answers else 0, 0]


async def test_nonsense_about_memory_is_refused(two: Run) -> None:
    async def waits(rank: FakeRank) -> None:
        await rank.clock(after=10)

    async def ends(rank: FakeRank) -> None:
        two.coordinator.rank_took(1, [[1, 2, 3, 1 << 60]])

    assert "memory at its end" in failure_of(await two.play(waits, ends)).text
