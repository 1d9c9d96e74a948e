"""Replays with another number of replicas: who does what whom of the recorded ranks did."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from emu.contract import records
from emu.contract.folding import CannotFold, Folding, Mesh
from emu.contract.records import NcclKind
from phantora_async.cli import run
from phantora_async.errors import ExitCode, PathChanged, UsageError
from phantora_async.folding import mesh_of
from phantora_async.recording import Recording, load
from phantora_async.recording.recording import Setup
from phantora_async.replaying.rank_mapping import map_ranks
from phantora_async.replaying.width import Width, check_width, widened
from phantora_async.virtual_time import Timelines
from tests.unit.virtual_time.scripted import FixedNetwork, Script, world_comm

from .recordings import record

FIRST_AND_LAST = frozenset({0, 7})


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """The recording of eight ranks, three steps each: an all-reduce of the world, and a broadcast of rank 7."""
    ranks = [Script(rank, 8, world_comm(8)) for rank in range(8)]
    for script in ranks:
        script.join_world()
        for _ in range(3):
            script.segment(1000, after=10).all_reduce(1 << 20).sync().step()
        script.bye()
    record(ranks, tmp_path, FixedNetwork(), 64)
    return load(tmp_path)


def setup(recording: Recording, mesh: str, apart: frozenset[int] = FIRST_AND_LAST) -> Setup:
    """Changes the recording as if the run had been folded."""
    recording.setup = replace(recording.setup, folding=Folding(mesh_of(mesh, 8), apart))
    return recording.setup


def width_of(recording: Recording, mesh: str, *texts: str, apart: frozenset[int] = FIRST_AND_LAST) -> Width:
    _, width = widened(setup(recording, mesh, apart), texts)
    assert width is not None
    return width


def test_the_first_and_the_last_replica_stay_so(recording: Recording) -> None:
    width = width_of(recording, "dp=4,tp=2", "dp=8")
    assert [width.recorded(rank) for rank in range(16)] == [0, 1, *[2, 3] * 6, 6, 7]
    assert width.now.apart == {0, 15}
    assert width_of(recording, "dp=4,tp=2", "dp=2").now.apart == {0, 3}


def test_a_slower_axis_keeps_its_coordinates(recording: Recording) -> None:
    """Stage 1 begins at rank 8 then, where it began at rank 4."""
    width = width_of(recording, "pp=2,dp=4", "dp=8", apart=frozenset())
    assert [width.recorded(rank) for rank in (0, 7, 8, 15)] == [0, 0, 4, 4]


@pytest.mark.parametrize("size", [4, 16])
def test_turns_of_an_axis_go_on(recording: Recording, size: int) -> None:
    """The fourth GPU of each server of four writes logs."""
    width = width_of(recording, "dp*=8:3+1", f"dp={size}", apart=frozenset())
    assert [width.recorded(rank) for rank in range(size)] == [0, 0, 0, 3] * (size // 4)
    assert str(width.now.mesh) == f"dp*={size}:3+1"
    assert [width.moved(3, (), 0), width.moved(7, (), 0), width.moved(1, (), 0)] == [3, 3, 0]


def test_ranks_that_are_apart_stay_in_their_turn(recording: Recording) -> None:
    """The first and the last one: the others of the last one's turn do what the recorded rank 3 did."""
    width = width_of(recording, "dp*=8:3+1", "dp=16")
    assert [width.recorded(rank) for rank in range(16)] == [0, 1, 1, 3, 1, 1, 1, 3, 1, 1, 1, 3, 1, 1, 1, 7]
    assert width.now.apart == {0, 15}


@pytest.mark.parametrize("size", [2, 10, 13])
def test_a_width_has_whole_turns(recording: Recording, size: int) -> None:
    with pytest.raises(UsageError, match=r"in turns of 4 \(dp\*=8:3\+1\), so its size can change by multiples of 4"):
        widened(setup(recording, "dp*=8:3+1", frozenset()), [f"dp={size}"])


def test_all_of_a_turn_are_apart(recording: Recording) -> None:
    given = setup(recording, "dp*=8:3+1", frozenset({3, 7}))
    with pytest.raises(UsageError, match=r"all recorded replicas of one of the turns \(dp\*=12:3\+1\) are apart"):
        widened(given, ["dp=12"])


def test_parts_that_may_depend_on_the_width_have_none(recording: Recording) -> None:
    with pytest.raises(UsageError, match=r"ranks along this axis differ \(dp\*=5\+3\)") as caught:
        widened(setup(recording, "dp*=5+3", frozenset()), ["dp=16"])
    assert caught.value.hint == "run the script with this width, with --fold"


def test_a_witness_shows_what_others_do_if_nobody_else_does(recording: Recording) -> None:
    given = setup(recording, "dp=4,tp=2", frozenset({0, 2, 5, 7}))
    assert given.folding is not None
    given = replace(given, folding=replace(given.folding, witnesses=frozenset({2, 5})))
    _, width = widened(given, ["dp=8"])
    assert width is not None
    assert [width.recorded(rank) for rank in range(0, 16, 2)] == [0, 2, 2, 2, 2, 2, 2, 6]
    assert width.now.apart == {0, 15}


@pytest.mark.parametrize(
    ("members", "rank", "image"),
    [
        ((0, 1, 2, 3, 4, 5, 6, 7), 5, tuple(range(16))),
        ((1, 3, 5, 7), 9, (1, 3, 5, 7, 9, 11, 13, 15)),
        ((2, 3), 9, (8, 9)),
        ((0, 2, 4, 6, 1, 3, 5, 7), 0, (*range(0, 16, 2), *range(1, 16, 2))),
    ],
    ids=["world", "replicas", "one replica", "another order"],
)
def test_communicators(recording: Recording, members: tuple[int, ...], rank: int, image: tuple[int, ...]) -> None:
    assert width_of(recording, "dp=4,tp=2", "dp=8").image(members, rank) == image


@pytest.mark.parametrize("members", [(0, 2), (0, 1, 2, 3, 4, 5, 7, 6), (6, 4, 2, 0)])
def test_communicators_that_have_no_image(recording: Recording, members: tuple[int, ...]) -> None:
    with pytest.raises(CannotFold):
        width_of(recording, "dp=4,tp=2", "dp=8").image(members, 0)


@pytest.mark.parametrize(
    ("texts", "apart", "message"),
    [
        (["dp"], FIRST_AND_LAST, "expected AXIS=SIZE"),
        (["dp=0"], FIRST_AND_LAST, "expected AXIS=SIZE"),
        (["tp=4"], FIRST_AND_LAST, "no folded axis of that name, only dp"),
        (["dp=1"], FIRST_AND_LAST, "replicas and more are apart"),
        (["dp=5"], FIRST_AND_LAST, "10 ranks do not fill servers of 8 GPUs"),
        (["dp=8"], frozenset({0, 2, 4, 6}), "all 4 recorded replicas are apart"),
    ],
)
def test_widths_that_are_none(recording: Recording, texts: list[str], apart: frozenset[int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        widened(setup(recording, "dp=4,tp=2", apart), texts)


def test_a_run_that_was_not_folded_has_no_width(recording: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", str(recording.folder), "--width", "dp=16"]) == ExitCode.USAGE
    assert "record a run with --fold" in capsys.readouterr().err


def test_every_rank_of_the_wider_run_is_simulated_or_shares_a_timeline(recording: Recording) -> None:
    """An all-reduce of the world remains one, with more members."""
    (comm,) = recording.comms.values()
    recording.comms[comm.id] = replace(comm, devices=tuple(range(8)))
    given, width = widened(setup(recording, "dp=8"), ["dp=16"])
    assert width is not None
    timelines = Timelines(16, given.folding, given.servers)
    found = map_ranks(recording, given.servers, timelines, width)
    assert found.own == timelines.own == (0, 1, 15)
    (comm,) = found.comms.values()
    assert (comm.members, comm.callers, comm.offsets) == (tuple(range(16)), (0, 1, 15), (0,))
    assert comm.devices == (*range(8), *range(8))
    assert [len(one.members) for one in found.creations] == [16]
    each = map_ranks(recording, given.servers, Timelines(16), width)
    assert each.own == tuple(range(16))
    assert each.stream(9) is each.stream(3)


def test_calls_counted_over_all_ranks_are_of_their_number(recording: Recording) -> None:
    """Ranks that share timelines, or no longer do, are as many as they were."""
    given = setup(recording, "dp=8")
    recording.report = recording.report | {"calls": {"window": "steps"}}
    for timelines in (Timelines(8, given.folding, given.servers), Timelines(8)):
        assert map_ranks(recording, given.servers, timelines).report == recording.report
    wide, width = widened(given, ["dp=16"])
    found = map_ranks(recording, wide.servers, Timelines(16, wide.folding, wide.servers), width)
    assert found.report == {"kernel_times": [], "logged": []}


def changed(recording: Recording, **values: int) -> None:
    """Changes the calls of all kernels."""
    recording.kernels = [tuple(call._replace(**values) for call in kernel) for kernel in recording.kernels]


def test_messages_along_a_folded_axis_need_the_timelines_that_they_had(recording: Recording) -> None:
    """Messages that are parts of a gather need them too. Who sends in the place of whom, if other ranks share
    timelines, is not known.
    """
    given = setup(recording, "dp=8")
    changed(recording, op=NcclKind.SEND, sender=0, receiver=1)
    found = map_ranks(recording, given.servers, Timelines(8), None)
    assert (found.own, found.kernels) == (tuple(range(8)), recording.kernels)
    with pytest.raises(UsageError, match="a communicator has 2 of the 8 coordinates of the folded axis dp"):
        map_ranks(recording, given.servers, Timelines(8, given.folding, given.servers), None)


@pytest.fixture
def exchanging(recording: Recording) -> Recording:
    """The recording of rank 0 of eight: it shares its timeline with all others, and exchanges messages with rank 1."""
    given = setup(recording, "dp*=4,cp*=2", apart=frozenset())
    recording.setup = replace(given, share_timelines=True)
    recording.__dict__.pop("timelines")
    recording._ranks = {0: recording._ranks[0]}
    changed(recording, op=NcclKind.SEND, sender=0, receiver=1, callers=1)
    return recording


def messages(recording: Recording, rank: int) -> set[tuple[int, int, int]]:
    """The sender, the receiver and how many of them call, of each message of a rank."""
    rows, (comm,) = recording.stream(rank).rows, recording.comms_of(rank)
    numbers = {int(number) for number in rows["values"][rows["kind"] == records.NCCL_LAUNCH, 0]}
    calls = {call for number in numbers for call in recording.kernels[number]}
    return {(comm.members[one.sender], comm.members[one.receiver], one.callers) for one in calls}


def test_ranks_that_no_longer_share_a_timeline_send_each_other_messages(exchanging: Recording) -> None:
    given = exchanging.setup
    assert given.folding is not None
    found = map_ranks(exchanging, given.servers, Timelines(8), None)
    assert [messages(found, rank) for rank in range(8)] == [{(rank, rank ^ 1, 2)} for rank in range(8)]
    slow = Timelines(8, given.folding, given.servers, (5,))
    found = map_ranks(exchanging, given.servers, slow, None)
    assert {rank: messages(found, rank) for rank in slow.own} == {
        0: {(0, 1, 2)},
        1: {(1, 0, 2)},
        4: {(4, 5, 2)},
        5: {(5, 4, 2)},
    }


def test_more_replicas_of_ranks_that_exchange_messages(exchanging: Recording) -> None:
    wide, width = widened(exchanging.setup, ["dp=16"])
    timelines = Timelines(32, wide.folding, wide.servers)
    assert messages(map_ranks(exchanging, wide.servers, timelines, width), 0) == {(0, 1, 1)}
    found = map_ranks(exchanging, wide.servers, Timelines(32), width)
    assert [messages(found, rank) for rank in (0, 1, 31)] == [{(0, 1, 2)}, {(1, 0, 2)}, {(31, 30, 2)}]


def test_ranks_that_exchange_messages_stay_two(exchanging: Recording) -> None:
    wide, width = widened(exchanging.setup, ["cp=4"])
    with pytest.raises(UsageError, match="a rank sends along cp, which has 4 ranks now"):
        map_ranks(exchanging, wide.servers, Timelines(16, wide.folding, wide.servers), width)


def test_shards_stop_the_replay(recording: Recording) -> None:
    width = width_of(recording, "dp=8", "dp=16")
    check_width(recording, width, frozenset())
    changed(recording, op=NcclKind.REDUCE_SCATTER)
    with pytest.raises(PathChanged, match=r"rank 0 calls reduce_scatter with a part of .* for each rank along dp at"):
        check_width(recording, width, frozenset())
    check_width(recording, width, frozenset({"width"}))


def test_shards_along_another_axis_do_not(recording: Recording) -> None:
    changed(recording, op=NcclKind.REDUCE_SCATTER)
    comm = next(iter(recording.comms.values()))
    recording.comms[comm.id] = replace(comm, members=(0, 1, 2, 3))
    check_width(recording, width_of(recording, "dp=2,tp=4", "dp=4", apart=frozenset()), frozenset())


def test_broadcasts_of_several_members_stop_the_replay(recording: Recording) -> None:
    width = width_of(recording, "dp=8", "dp=16")
    changed(recording, op=NcclKind.BROADCAST, root=3)
    check_width(recording, width, frozenset())
    call = recording.kernels[0][0]
    recording.kernels.append((call._replace(root=4),))
    rows = recording.stream(0).rows.copy()
    last = (rows["kind"] == records.NCCL_LAUNCH).nonzero()[0][-1]
    rows["values"][last, 0] = len(recording.kernels) - 1
    recording._streams[recording.key_of(0)] = replace(recording.stream(0), rows=rows)
    with pytest.raises(PathChanged, match="broadcast"):
        check_width(recording, width, frozenset())


@pytest.mark.parametrize(("root", "moved"), [(0, 0), (7, 15), (3, 1)])
def test_roots_move_with_those_who_were_it(recording: Recording, root: int, moved: int) -> None:
    changed(recording, op=NcclKind.BROADCAST, root=root)
    given, width = widened(setup(recording, "dp=8"), ["dp=16"])
    found = map_ranks(recording, given.servers, Timelines(16, given.folding, given.servers), width)
    launched = found.stream(0).rows["kind"] == records.NCCL_LAUNCH
    kernels = {int(number) for number in found.stream(0).rows["values"][launched, 0]}
    assert {call.root for number in kernels for call in found.kernels[number]} == {moved}


def test_one_broadcast_of_each_member_remains_so(recording: Recording) -> None:
    (call,) = recording.kernels[0]
    recording.kernels[0] = tuple(call._replace(op=NcclKind.BROADCAST, root=root) for root in range(8))
    given, width = widened(setup(recording, "dp=8"), ["dp=16"])
    found = map_ranks(recording, given.servers, Timelines(16, given.folding, given.servers), width)
    assert [call.root for call in found.kernels[-1]] == list(range(16))


def test_members_are_looked_at_once_however_many_ranks_ask(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    width = width_of(recording, "dp=4,tp=2", "dp=64")
    world = tuple(range(8))
    looks = 0
    coordinate = Mesh.coordinate

    def counted(mesh: Mesh, rank: int, axis: int) -> int:
        nonlocal looks
        looks += 1
        return coordinate(mesh, rank, axis)

    monkeypatch.setattr(Mesh, "coordinate", counted)
    images = [width.image(world, 0)]
    first = looks
    images += [width.image(world, rank) for rank in range(1, 128)]
    assert all(image is images[0] for image in images)
    assert len(images[0]) == 128
    assert looks == first
