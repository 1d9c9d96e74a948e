"""The coordinator over a real Unix socket, with ranks that follow a script."""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop

from emu.contract import records
from emu.contract.records import MarkerKind, NcclKind
from phantora_async.coordinator.coordinator import Coordinator
from phantora_async.coordinator.run_end import Outcome
from phantora_async.errors import ExitCode, RunFailure
from phantora_async.liveness.sleep_detector import Thread
from phantora_async.report import terminal_report
from phantora_async.run_spec import RunSpec
from profiles import load_cluster, load_gpu, load_host

from .fake_rank import FakeRank


class FakeProcesses:
    """All fake ranks live in this process, so /proc would say nothing: tests say who sleeps."""

    def __init__(self) -> None:
        self.awake = True
        self._at_ns = 0

    def threads(self, pid: int) -> dict[int, Thread] | None:
        return {1: Thread("python", True, not self.awake, 0)}

    def now_ns(self) -> int:
        self._at_ns += 1_000_000_000
        return self._at_ns


class Run:
    def __init__(self, folder: Path, world_size: int) -> None:
        cluster = load_cluster("dgx-h200")
        self.spec = RunSpec(
            socket=folder / "socket",
            cost_table=folder / "costs",
            run_dir=folder,
            servers=(world_size,),
            gpu=load_gpu(cluster.gpu),
            cluster=cluster,
            host=load_host(cluster.host),
            host_mode="modelled",
        )
        self.world_size = world_size
        self.processes = FakeProcesses()
        self.watch: Callable[[str], object] = lambda line: None
        """Is given every status line."""
        self.show_every_s = 0.05
        self.notices: list[str] = []
        self.coordinator = self._make()

    def _make(self) -> Coordinator:
        return Coordinator(self.spec, self.processes)

    def limit(self, stall_timeout_s: float) -> None:
        """Before it plays."""
        self.spec = replace(self.spec, stall_timeout_s=stall_timeout_s)
        self.coordinator = self._make()

    async def play(self, *programs: Callable[[FakeRank], Awaitable[None]]) -> Outcome:
        """Runs a program a rank to its end, tells of their exits, returns the outcome."""
        await self.coordinator.serve()
        async with AsyncExitStack() as stack:
            ranks = [
                await stack.enter_async_context(FakeRank(self.spec.socket, rank, self.world_size))
                for rank in range(self.world_size)
            ]

            async def one(rank: FakeRank, program: Callable[[FakeRank], Awaitable[None]]) -> None:
                try:
                    await program(rank)
                except (EOFError, ConnectionError):
                    return
                self.coordinator.rank_exited(rank.rank, 0, 0)

            async def show() -> None:
                while True:
                    await asyncio.sleep(self.show_every_s)
                    status = self.coordinator.status()
                    self.watch(status.line)
                    self.notices += filter(None, [status.notice])

            tasks = [asyncio.create_task(one(*pair)) for pair in zip(ranks, programs, strict=True)]
            showing = asyncio.create_task(show())
            outcome = await self.coordinator.finished()
            showing.cancel()
            self.coordinator.close()
            await asyncio.gather(*tasks)
            assert not showing.done() or showing.cancelled()
        return outcome


def failure_of(outcome: Outcome) -> RunFailure:
    assert outcome.failure is not None
    return outcome.failure


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr("phantora_async.coordinator.run_end.SETTLE_S", 0.01)
    return Run(tmp_path, 2)


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
    assert "0% roofline, 100.0% unrecognised" in text
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
    assert simulated["cost_sources"]["roofline"] == 1.0
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


async def test_all_asleep_is_a_deadlock_after_a_while(two: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phantora_async.coordinator.standstill.PATIENCE_S", 0.2)
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
    assert failure_of(outcome).text in terminal_report(outcome.report)


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
    monkeypatch.setattr("phantora_async.liveness.stall_watch.STALL_S", 0.1)
    monkeypatch.setattr("phantora_async.liveness.stall_watch.FIRST_NOTICE_S", 0.1)
    two.limit(stall_timeout_s=0.5)

    async def asks(rank: FakeRank) -> None:
        await rank.clock(after=5)

    async def polls(rank: FakeRank) -> None:
        while True:
            rank.say(records.HostAdvance.encode(0))
            rank.say(records.Query.encode(0, 1, 0, 3, 0))
            await rank.hear(records.DONE)
            await asyncio.sleep(0.01)

    outcome = await two.play(asks, polls)
    assert failure_of(outcome).exit_code == ExitCode.STUCK
    assert outcome.report["failure"]["kind"] == "stalled"
    assert "for rank 1, which " in failure_of(outcome).text
    assert "rank 0 waits; that is longer than --stall-timeout 0.5" in failure_of(outcome).text
    assert len(two.notices) in (1, 2, 3)


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


@pytest.mark.parametrize(("returncode", "signal", "exit_code"), [(3, 0, 3), (0, 9, 137)])
async def test_a_crash_ends_the_run_with_its_code(two: Run, returncode: int, signal: int, exit_code: int) -> None:
    async def waits(rank: FakeRank) -> None:
        await rank.clock(after=10)

    async def crashes(rank: FakeRank) -> None:
        if returncode:
            rank.bye(returncode, b"ValueError: no such luck")
        two.coordinator.rank_exited(rank.rank, returncode, signal)

    outcome = await two.play(waits, crashes)
    assert failure_of(outcome).exit_code == exit_code
    assert "rank 1" in failure_of(outcome).text
    assert "rank1.log" in failure_of(outcome).text


async def test_ranks_that_have_ended_are_told_when_all_have(two: Run) -> None:
    """Until then they wait for bytes that they have promised to others."""
    order: list[str] = []

    async def early(rank: FakeRank) -> None:
        rank.bye()
        await asyncio.wait_for(rank.hear(records.STOP), 20)
        order.append("told")

    async def late(rank: FakeRank) -> None:
        for turn in range(1, 6):  # the other's BYE has been executed, and it would have heard
            assert await rank.clock(after=100) == 100 * turn
        order.append("says BYE")
        rank.bye()
        await asyncio.wait_for(rank.hear(records.STOP), 20)

    assert (await two.play(early, late)).failure is None
    assert order == ["says BYE", "told"]


async def test_a_rank_may_end_without_saying_so(two: Run) -> None:
    async def silent(rank: FakeRank) -> None:
        await rank.__aexit__(None, None, None)

    async def speaks(rank: FakeRank) -> None:
        assert await rank.clock(after=100) == 100
        rank.bye()

    assert (await two.play(silent, speaks)).failure is None


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (struct.pack("<HHIQ", 777, 0, 16, 0), "rank 1: .*unknown record kind 777"),
        (records.Segment.encode(0, 9, 1, 1, 1, 1, 0, 0), "rank 1: .*stream 9 was never created"),
        (records.NcclData.encode(0, 5, 0, 1, 0, 0), "rank 1: .*was not announced"),
        (records.CommSplit.encode(0, 1, 77, 0, 0, 0), "rank 1: .*communicator 0x4d is unknown"),
        (records.Cost.encode(0, 1, 0, payload=b"memset;8"), "rank 1: .*COST with key 0"),
        (records.Hello.encode(0, records.VERSION, 1, 2, 0, 1, 1, 0, 0), "rank 1: .*HELLO twice"),
    ],
)
async def test_impossible_records_end_the_run_naming_the_rank(two: Run, sent: bytes, message: str) -> None:
    async def good(rank: FakeRank) -> None:
        await rank.clock(after=10)

    async def bad(rank: FakeRank) -> None:
        rank.say(records.HostAdvance.encode(5), sent)
        await rank.hear(records.CLOCK)

    outcome = await two.play(good, bad)
    assert failure_of(outcome).exit_code == ExitCode.INTERNAL
    assert re.match(message, failure_of(outcome).text)


async def test_another_version_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path, 1)
    await run.coordinator.serve()
    async with FakeRank(run.spec.socket, 0, 1, version=99):
        outcome = await run.coordinator.finished()
    assert failure_of(outcome).exit_code == ExitCode.INTERNAL
    assert "version 99" in failure_of(outcome).text


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


async def test_an_error_of_our_own_ends_the_run(two: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(rank: int, arrived: list[Any]) -> list[Any]:
        raise ZeroDivisionError("a bug")

    async def program(rank: FakeRank) -> None:
        await rank.clock()

    monkeypatch.setattr(two.coordinator._fact_builder, "take", broken)
    outcome = await two.play(program, program)
    assert failure_of(outcome).exit_code == ExitCode.INTERNAL
    assert "ZeroDivisionError: a bug" in failure_of(outcome).text
    assert "test_coordinator.py" in failure_of(outcome).text


@pytest.mark.parametrize("exit_code", [ExitCode.INTERNAL, ExitCode.DISCONNECTED])
async def test_a_rank_that_emulation_ended_says_why(two: Run, exit_code: ExitCode) -> None:
    async def waits(rank: FakeRank) -> None:
        await rank.clock(after=10)

    async def ends(rank: FakeRank) -> None:
        two.coordinator.rank_exited(rank.rank, int(exit_code), 0)

    failure = failure_of(await two.play(waits, ends))
    assert failure.exit_code == exit_code
    assert f"rank 1 (server 0) ended with exit code {exit_code:d}: {exit_code.meaning}; its log is" in failure.text


@pytest.mark.parametrize("first", ["end of file", "exit"])
async def test_a_rank_that_ends_without_a_word_in_either_order(two: Run, first: str) -> None:
    """C's `exit` or `exec`: whether the end of its records or its exit is seen first, it has ended."""
    ended = asyncio.Event()

    async def vanishes(rank: FakeRank) -> None:
        rank.say(records.HostAdvance.encode(10))
        if first == "exit":
            two.coordinator.rank_exited(rank.rank, 0, 0)
        rank.close()
        while two.coordinator._connections.connected(rank.rank):
            await asyncio.sleep(0)
        two.coordinator.rank_exited(rank.rank, 0, 0)
        ended.set()

    async def goes_on(rank: FakeRank) -> None:
        await ended.wait()
        await rank.clock(after=1000)
        rank.bye()

    outcome = await two.play(vanishes, goes_on)
    assert outcome.failure is None
