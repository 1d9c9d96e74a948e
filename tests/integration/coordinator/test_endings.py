"""How runs end that ranks, or the coordinator itself, do not bring to a good end."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from emu.contract import records
from emu.contract.records import MarkerKind, NcclKind, TraceKind
from phantora_async.errors import ExitCode
from phantora_async.recording import load

from .fake_rank import FakeRank
from .fake_run import Run, failure_of


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


async def test_a_rank_that_does_not_answer_when_the_run_ends_is_named(
    two: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its peak since its last step is not known."""
    monkeypatch.setattr("phantora_async.coordinator.coordinator.STOP_S", 0.25)

    async def answers(rank: FakeRank) -> None:
        two.coordinator.interrupt()
        await rank.hear(records.STOP)
        rank.say(records.Memory.encode(0, 0, 0, 512, 1024, 2048))
        rank.bye()

    async def gets_no_processor(rank: FakeRank) -> None:
        await rank.hear(records.CLOCK)

    outcome = await two.play(answers, gets_no_processor)
    assert failure_of(outcome).exit_code == ExitCode.INTERRUPTED
    (warning,) = outcome.report["simulated"]["warnings"]
    assert warning["ranks"] == [1]
    assert "its memory peak is that of the steps that it has finished" in warning["text"]


async def test_a_rank_may_end_without_saying_so(two: Run) -> None:
    async def silent(rank: FakeRank) -> None:
        await rank.__aexit__(None, None, None)

    async def speaks(rank: FakeRank) -> None:
        assert await rank.clock(after=100) == 100
        rank.bye()

    assert (await two.play(silent, speaks)).failure is None


def launches_of(key: int) -> bytes:
    return records.LaunchCounts.encode(0, 1, 0, payload=records.LaunchCount.encode(key, 1, 0, 0))


def contents_of(key: int) -> bytes:
    return records.SegmentContent.encode(0, 5, 1, 0, payload=records.SegmentCost.encode(key, 1))


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (struct.pack("<HHIQ", 777, 0, 16, 0), "rank 1: .*unknown record kind 777"),
        (records.Segment.encode(0, 9, 1, 1, 1, 1, 0, 0), "rank 1: .*stream 9 was never created"),
        (records.NcclData.encode(0, 5, 0, 1, 0, 0), "rank 1: .*was not announced"),
        (records.CommSplit.encode(0, 1, 77, 0, 0, 0), "rank 1: .*communicator 0x4d is unknown"),
        (records.Cost.encode(0, 1, 0, payload=b"memset;8"), "rank 1: .*COST with key 0"),
        (records.Hello.encode(0, records.VERSION, 1, 2, 0, 1, 1, 0, 0), "rank 1: .*HELLO twice"),
        (records.Memory.encode(0, 0, 0, 1, 1, 2**63), "rank 1: .*MEMORY: 9223372036854775808 bytes"),
        (launches_of(77), "rank 1: .*work of key 0x4d, whose cost no rank has asked for"),
        (contents_of(77), "rank 1: .*work of key 0x4d, whose cost no rank has asked for"),
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


async def test_an_impossible_record_of_a_recording(two: Run, tmp_path: Path) -> None:
    """It is checked when it comes: later there would be nothing but a recording that cannot be written."""
    two.keep_recording(tmp_path / "recording")

    async def bad(rank: FakeRank) -> None:
        rank.say(records.History.encode(0, 1, 0, payload=b"12345678"))
        await rank.hear(records.CLOCK)

    outcome = await two.play(bad, bad)
    assert "impossible record: HISTORY: a payload of another size" in failure_of(outcome).text


async def test_an_impossible_record_of_a_trace(two: Run, tmp_path: Path) -> None:
    two.keep_trace(tmp_path / "trace.json")

    async def bad(rank: FakeRank) -> None:
        entry = records.TraceEntry.encode(TraceKind.LAUNCH, 1, 0, 77, 10, 1, 1)
        rank.say(records.Trace.encode(0, 1, 0, 0, payload=entry))
        await rank.clock(after=10)

    outcome = await two.play(bad, bad)
    assert "impossible record: work of key 0x4d, whose cost no rank has asked for" in failure_of(outcome).text


async def test_another_version_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path, 1)
    await run.coordinator.serve()
    async with FakeRank(run.spec.socket, 0, 1, version=99):
        outcome = await run.coordinator.finished()
    assert failure_of(outcome).exit_code == ExitCode.INTERNAL
    assert "version 99" in failure_of(outcome).text


@pytest.mark.parametrize(
    "sent",
    [
        records.NcclData.encode(0, 5, 0, 1, 0, 0),
        struct.pack("<HHIQ", records.NCCL_DATA, 0, 1 << 29, 0),
        struct.pack("<HHIQ", records.HELLO, 0, 1 << 29, 0),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
async def test_a_process_that_is_no_rank_is_named(tmp_path: Path, sent: bytes) -> None:
    """At its first 16 bytes, however long it says that its record is."""
    run = Run(tmp_path, 1)
    await run.coordinator.serve()
    _, writer = await asyncio.open_unix_connection(str(run.spec.socket))
    writer.write(sent)
    outcome = await run.coordinator.finished()
    writer.close()
    assert failure_of(outcome).text == (
        f"process {os.getpid()}, which is no rank yet, sent an impossible record: something else than HELLO"
    )


@pytest.mark.parametrize(
    ("rank", "world_size", "process", "said"),
    [
        (1, 2, 0, "rank 1: .*a second process says it is this rank"),
        (2, 2, 0, "rank 2: .*there are 2 ranks"),
        (1, 3, 7, "rank 1: .*it expects 3 ranks, but the run has 2"),
    ],
)
async def test_a_rank_that_cannot_be_ends_the_run(
    two: Run, rank: int, world_size: int, process: int, said: str
) -> None:
    async def good(rank: FakeRank) -> None:
        await rank.clock(after=10)

    async def bad(_: FakeRank) -> None:
        reader, writer = await asyncio.open_unix_connection(str(two.spec.socket))
        writer.write(
            records.Hello.encode(0, records.VERSION, rank, world_size, 0, 0, 1, process, 0, payload=b"node000")
        )
        await reader.read()
        writer.close()

    assert re.search(said, failure_of(await two.play(good, bad)).text)


async def test_connections_that_say_nothing_do_not_keep_ranks_out(two: Run) -> None:
    await two.coordinator.serve()
    silent = [socket.socket(socket.AF_UNIX) for _ in range(300)]
    for end in silent:
        end.setblocking(False)
        while end.connect_ex(str(two.spec.socket)):
            await asyncio.sleep(0)
    two.coordinator.serve = done  # type: ignore[method-assign]

    async def good(rank: FakeRank) -> None:
        assert await rank.clock(after=100) == 100
        rank.bye()

    assert (await two.play(good, good)).failure is None
    assert len(two.coordinator._arrivals.channels) <= 2 + 64 + 2
    for end in silent:
        end.close()


async def done() -> None:
    pass


async def test_an_error_of_our_own_ends_the_run(two: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(rank: int, arrived: list[Any]) -> list[Any]:
        raise ZeroDivisionError("a bug")

    async def program(rank: FakeRank) -> None:
        await rank.clock()

    monkeypatch.setattr(two.coordinator._fact_builder, "take", broken)
    outcome = await two.play(program, program)
    assert failure_of(outcome).exit_code == ExitCode.INTERNAL
    assert "ZeroDivisionError: a bug" in failure_of(outcome).text
    assert "test_endings.py" in failure_of(outcome).text


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


BUDGETS = {"--max-allocated": "allocated", "--max-memory": "memory"}


def steps_with_peaks(*peaks_of_0: int) -> Callable[[FakeRank], Awaitable[None]]:
    """A step for each peak of rank 0, in GiB allocated; all reserve twice as much, and rank 1 stays at 1 GiB."""

    async def program(rank: FakeRank) -> None:
        await rank.join_world()
        for gib in peaks_of_0:
            rank.collective(NcclKind.ALL_REDUCE, 1 << 20, dtype=7, after=1000)
            rank.sync()
            peak = (1 if rank.rank else gib) << 30
            rank.say(records.Memory.encode(0, 0, 0, peak, 2 * peak, 2 * peak))
            rank.say(records.Marker.encode(0, MarkerKind.STEP, 0))
        await rank.clock()
        rank.bye()

    return program


@pytest.mark.parametrize(
    ("limits", "option", "text"),
    [
        ({"allocated": (3 << 30) - 1}, "--max-allocated", "rank 0 has allocated 3.00 GiB of 3.00 GiB so far"),
        ({"reserved": 5 << 30}, "--max-memory", "rank 0 has reserved 6.00 GiB of 5.00 GiB so far"),
        ({"allocated": 1 << 40, "reserved": 5 << 30, "steps": 3}, "--max-memory", "rank 0 has reserved 6.00 GiB"),
    ],
)
async def test_a_limit_of_memory_ends_the_run_after_the_step_that_exceeds_it(
    two: Run, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int], option: str, text: str
) -> None:
    monkeypatch.setattr("phantora_async.coordinator.coordinator.STOP_S", 0.0)  # these ranks do not answer
    two.limit_memory(**limits)
    outcome = await two.play(*[steps_with_peaks(1, 3, 4, 4)] * 2)
    assert outcome.failure is None
    stopped = outcome.report["stopped"]
    assert stopped["option"] == option
    assert f"stopped after step 2 by {option}: {text}" in stopped["text"]
    assert stopped["over_budget"] == {"figure": BUDGETS[option], "rank": 0, "step": 2}
    ranks = outcome.report["simulated"]["ranks"]
    assert [rank["steps"] for rank in ranks] == [2, 2], "rank 1 waits for rank 0 in the third"
    assert [rank["memory"]["allocated_peak_nbytes"] for rank in ranks] == [3 << 30, 1 << 30]


@pytest.mark.parametrize(
    "limits",
    [{"allocated": 4 << 30, "reserved": 8 << 30}, {}, {"allocated": 3 << 30, "steps": 3}],
    ids=["just at the limit", "no limit", "in the last step"],
)
async def test_a_run_within_its_limits_of_memory_is_not_cut_short(two: Run, limits: dict[str, int]) -> None:
    two.limit_memory(**limits)
    outcome = await two.play(*[steps_with_peaks(1, 3, 4)] * 2)
    assert outcome.failure is None
    assert outcome.report["stopped"] is None
    assert [rank["steps"] for rank in outcome.report["simulated"]["ranks"]] == [3, 3]


async def test_steps_that_are_too_slow_end_the_run_when_the_median_is_certain(
    two: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps 4 to 8 of eight count: three of these decide, however far the ranks have come meanwhile."""
    monkeypatch.setattr("phantora_async.coordinator.coordinator.STOP_S", 0.0)  # these ranks do not answer
    two.limit_step(1000, steps=8)
    outcome = await two.play(*[steps_with_peaks(*[1] * 9)] * 2)
    assert outcome.failure is None
    over = outcome.report["stopped"]["over_budget"]
    assert (over["figure"], over["rank"], over["step"]) == ("step", 0, 6)
    assert over["at_least_ns"] > 1000
    assert outcome.report["stopped"]["text"].startswith("stopped after step 6 by --max-step-time: 3 of the 5 steps")


async def test_a_run_whose_steps_are_fast_enough_is_not_cut_short(two: Run) -> None:
    two.limit_step(1 << 40, steps=8)
    outcome = await two.play(*[steps_with_peaks(*[1] * 8)] * 2)
    assert outcome.failure is None
    assert [rank["steps"] for rank in outcome.report["simulated"]["ranks"]] == [8, 8]
    assert "over_budget" not in (outcome.report["stopped"] or {})


async def test_what_ranks_tell_at_an_end_that_an_option_sets_is_recorded(two: Run, tmp_path: Path) -> None:
    """Their calls do not fit together any more: rank 1 ends without the one that rank 0 waits in."""
    signature = b"gemm;cublasGemmEx;n;n;4096;4096;4096;1;bf16;bf16;bf16;f32;default;aten::mm;"
    recorded = tmp_path / "recording"

    async def program(rank: FakeRank) -> None:
        await rank.join_world()
        await rank.ask(records.Cost.encode(0, 5, 7, payload=signature))
        rank.say(records.HostAdvance.encode(5000))
        if rank.rank == 0:
            rank.collective(NcclKind.ALL_REDUCE, 1)
        await rank.hear(records.STOP)
        if rank.rank == 0:
            return  # its process ends without a word
        count = records.LaunchCount.encode(7, 3, 0, 0)
        rank.say(records.LaunchCounts.encode(0, 1, 0, payload=count), records.Bye.encode(0, 0, 0))

    two.keep_recording(recorded)
    two.end_at(1000)
    outcome = await two.play(program, program)
    assert (outcome.failure, outcome.unrecorded) == (None, "")
    (told,) = (one for one in load(recorded).side(1) if one.kind == records.LAUNCH_COUNTS)
    assert records.LaunchCount.decode_all(told.payload, 0, 1)[0].launches == 3
