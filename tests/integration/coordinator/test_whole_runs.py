"""Runs that go well: what ranks are answered, what the report has."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import pytest
import uvloop

from emu.contract import records
from emu.contract.records import MarkerKind, NcclKind
from phantora_async.report import terminal_report

from .fake_rank import FakeRank
from .fake_run import Run


async def test_clocks_wait_until_no_rank_can_say_anything_earlier(two: Run) -> None:
    order: list[str] = []
    hold = asyncio.Event()

    async def ahead(rank: FakeRank) -> None:
        order.append(f"ahead {await rank.clock(after=1000)}")
        rank.bye()

    async def behind(rank: FakeRank) -> None:
        rank.say(records.HostAdvance.encode(999))
        await hold.wait()
        order.append("behind goes on")
        rank.say(records.HostAdvance.encode(2))
        rank.bye()

    two.watch = lambda line: hold.set() if "1 waiting" in line else None
    outcome = await two.play(ahead, behind)
    assert outcome.failure is None
    assert order == ["behind goes on", "ahead 1000"]


async def test_data_crosses_at_once_while_virtual_time_stands_still(two: Run) -> None:
    got: list[bytes] = []

    async def program(rank: FakeRank) -> None:
        await rank.join_world()
        rank.collective(NcclKind.ALL_REDUCE, 2, dtype=2, data=struct.pack("<2i", rank.rank + 1, 10), token=7)
        data = await rank.hear(records.DATA)
        assert data.token == 7
        got.append(data.payload)
        rank.sync()
        assert await rank.clock() > 0
        rank.bye()

    outcome = await two.play(program, program)
    assert outcome.failure is None
    assert got == [struct.pack("<2i", 3, 20)] * 2


async def test_costs_are_answered_and_shared(two: Run) -> None:
    async def program(rank: FakeRank) -> None:
        signature = b"gemm;cublasGemmEx;n;n;4096;4096;4096;1;bf16;bf16;bf16;f32;default;aten::mm;"
        cost = await rank.ask(records.Cost.encode(0, 5, 0xABC, payload=signature))
        assert cost.flops == 2 * 4096**3
        table = two.spec.cost_table.read_bytes()
        (header,) = records.CostHeader.decode_all(table, 0, 1)
        assert header.version == records.VERSION
        start = records.CostHeader.size() + (0xABC & (header.capacity - 1)) * records.CostEntry.size()
        (entry,) = records.CostEntry.decode_all(table, start, 1)
        assert (entry.key, entry.solo_ns) == (0xABC, cost.solo_ns)
        rank.bye()

    assert (await two.play(program, program)).failure is None


async def test_signatures_that_nobody_knows_cost_an_estimate_which_the_report_names(two: Run) -> None:
    async def program(rank: FakeRank) -> None:
        texts = [b"nonsense", b"gemm;cublasLtMatmul;t;n;8;8;8;1;other;other;bf16;f32;default;;"]
        for key, text in enumerate(texts, start=1):
            cost = await rank.ask(records.Cost.encode(0, 5, key, payload=text))
            assert (cost.source, cost.solo_ns > 1) == (records.SourceKind.UNRECOGNISED, True)
        rank.launched(k1=1)
        rank.launched(k1=2, k2=1)
        rank.say(records.Counters.encode(0, 11, 0.0, 0, 5, 5, 0, 0))
        rank.bye()

    outcome = await two.play(program, program)
    assert outcome.failure is None
    sources = outcome.report["simulated"]["cost_sources"]
    assert (sources["roofline"], sources["unrecognised"]) == (0.0, 1.0)
    assert {one["signature"]: one["launches"] for one in outcome.report["simulated"]["kernels"]["signatures"]} == {
        "nonsense": 6,
        "gemm;cublasLtMatmul;t;n;8;8;8;1;other;other;bf16;f32;default;;": 2,
    }
    gemm, nonsense = sources["unrecognised_signatures"]
    assert gemm["reason"] == "gemm a: unknown dtype 'other', gemm b: unknown dtype 'other'"
    assert (nonsense["signatures"], nonsense["example"]) == (1, "nonsense")
    text = terminal_report(outcome.report)
    assert "; kernel times: 100.0% not recognised" in text
    assert "0% roofline, 100.0% unrecognised" in terminal_report(outcome.report, verbose=True)
    assert "warning: 1 cost signature is not recognised (unknown kind 'nonsense'; known: kernel" in text
    assert "warning: 1 cost signature is not recognised (gemm a: unknown dtype 'other'" in text


async def test_the_report_has_steps_shares_and_memory(two: Run) -> None:
    async def program(rank: FakeRank) -> None:
        await rank.join_world()
        for key in (1, 2):
            await rank.ask(records.Cost.encode(0, 5, key, payload=f"memset;{key << 20}".encode()))
        for step in range(5):
            rank.say(records.Segment.encode(1000, 1, 10, 4_000_000, 5_000_000, 4_000_000, 0, 0))
            rank.collective(NcclKind.ALL_REDUCE, 1 << 20, dtype=7)
            rank.sync()
            rank.launched(k1=10 + rank.rank, k2=step)
            rank.say(records.Counters.encode(0, 11 * step, 1e12 * step, 0, 5, 5, 0, 0))
            rank.say(records.Marker.encode(0, MarkerKind.STEP, 0))
        rank.say(records.Memory.encode(0, 0, 0, 1 << 30, 2 << 30, 2 << 30))
        rank.bye()

    outcome = await two.play(program, program)
    simulated = outcome.report["simulated"]
    assert simulated["step"]["source"] == "optimizer markers on rank 0"
    assert simulated["step"]["counted"] == 2
    assert simulated["step"]["median_ns"] > 4_001_000
    assert simulated["memory"]["max_reserved_nbytes"] == 2 << 30
    rank = simulated["ranks"][1]
    assert rank["flops"] == 2e12
    window = sum(rank[key] for key in ("compute_ns", "transfer_ns", "peers_ns", "host_bound_ns", "idle_ns"))
    assert window == rank["window_ns"] == 2 * simulated["step"]["median_ns"]
    sources, of_run = simulated["cost_sources"], simulated["cost_sources_whole_run"]
    assert (sources["window"], sources["roofline"]) == ("steps", 1.0)
    assert sources["gpu_ns"] == simulated["kernels"]["gpu_ns"] < of_run["gpu_ns"]
    kernels = simulated["kernels"]
    assert kernels["window"] == "steps"
    launched = {one["signature"]: one["launches"] for one in kernels["signatures"]}
    assert launched == {"memset;1048576": 2 * (10 + 11), "memset;2097152": 2 * (3 + 4)}  # of the last two steps
    assert [group["ranks"] for group in kernels["ranks"]] == [[0], [1]]
    assert sum(one["share"] for one in kernels["signatures"]) == pytest.approx(1.0)


def test_the_same_on_uvloop(two: Run) -> None:
    async def program(rank: FakeRank) -> None:
        await rank.join_world()
        rank.collective(NcclKind.BROADCAST, 3, data=b"" if rank.rank else b"abc", token=rank.rank)
        if rank.rank:
            assert (await rank.hear(records.DATA)).payload[:3] == b"abc"
        rank.sync()
        assert await rank.clock() > 0
        rank.bye()

    assert uvloop.run(two.play(program, program)).failure is None


async def test_two_runs_simulate_the_same_to_the_byte(tmp_path: Path) -> None:
    async def program(rank: FakeRank) -> None:
        await rank.join_world()
        for step in range(20):
            rank.say(records.Segment.encode(500 + rank.rank, 1, 10, 300_000 + step, 400_000, 300_000 + step, 0, 0))
            rank.collective(NcclKind.ALL_GATHER, 100_000 * (1 + step % 3), after=100)
            if (step + rank.rank) % 3 == 0:
                await rank.clock(after=50)
            await asyncio.sleep(0)
        rank.say(records.Warning.encode(0, 1, 1, payload=b"a call is not supported"))
        rank.bye()

    reports = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        outcome = await Run(tmp_path / name, 4).play(*[program] * 4)
        assert outcome.failure is None
        reports.append(outcome.report["simulated"])
    assert reports[0] == reports[1]
    assert reports[0]["warnings"] == [{"text": "a call is not supported", "ranks": [0, 1, 2, 3], "count": 4}]
