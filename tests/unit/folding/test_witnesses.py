"""Witnesses: their op streams are held against those of the ranks that would play them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from struct import pack

import pytest

from emu.contract import records
from emu.contract.records import NcclKind
from phantora_async.errors import NotFoldable
from phantora_async.folding import Folding, mesh_of
from phantora_async.folding.witnesses import SMALL_BLOCKS_NBYTES, SMALL_COPY_NBYTES, Witnesses
from phantora_async.ingest.costs import Priced
from phantora_async.ingest.fact_builder import FactBuilder
from phantora_async.virtual_time import Timelines
from profiles import Cost, Source
from tests.unit.folding.test_mirror import DP, MESH, TP, init, members_of
from tests.unit.virtual_time.scripted import Script, new_fact_builder

SERVERS = (8,)
REPRESENTATIVE, WITNESS = 2, 4
"""The ranks of these numbers both have the first place of the axis tp."""
FOLDING = Folding(MESH, frozenset((0, 7, WITNESS)), frozenset((WITNESS,)))
ADD, COPY = 5, 6
"""Keys of costs."""


@dataclass
class Run:
    witnesses: Witnesses
    fact_builder: FactBuilder
    scripts: dict[int, Script]

    def send(self, rank: int) -> None:
        """Sends what the script holds."""
        script = self.scripts[rank]
        arrived, _ = records.decode_up(b"".join(script.records))
        script.records.clear()
        self.witnesses.look(rank, arrived)

    def both(self, write: Callable[[Script, int], object]) -> None:
        """Writes and sends the records of the representative, then those of the witness."""
        for rank in (REPRESENTATIVE, WITNESS):
            write(self.scripts[rank], rank)
            self.send(rank)

    def message(self) -> str:
        with pytest.raises(NotFoldable) as found:
            self.witnesses.check()
        return str(found.value)


@pytest.fixture
def run() -> Run:
    return run_of(FOLDING)


@pytest.fixture
def similar() -> Run:
    """Ranks of a role need only make the same calls."""
    return run_of(replace(FOLDING, similar=True))


def run_of(folding: Folding) -> Run:
    fact_builder = new_fact_builder(8)
    price = Cost(10, 10, 0.0, Source.MEASURED)
    fact_builder.costs.known[ADD] = Priced("memset;1000000", price)
    fact_builder.costs.known[COPY] = Priced(f"memset;{SMALL_COPY_NBYTES}", price)
    for number, kind in ((1, DP), (2, TP)):
        for rank in range(8):
            if number == 1:
                fact_builder.take(rank, records.decode_up(Script(rank, 8).records[0])[0])
            fact_builder.take(rank, records.decode_up(init(rank, number, members_of(kind, rank), servers=SERVERS))[0])
    witnesses = Witnesses(folding, Timelines(8, servers=SERVERS), fact_builder.communicators, fact_builder.costs)
    found = Run(witnesses, fact_builder, {rank: Script(rank, 8) for rank in (REPRESENTATIVE, WITNESS)})
    told(found, 77, launched(ADD, 3), launched(COPY, 1))
    return found


def launched(key: int, launches: int) -> bytes:
    return records.SegmentCost.encode(key, launches)


def told(run: Run, number: int, *costs: bytes) -> None:
    content = records.SegmentContent.encode(0, number, len(costs), 0, payload=b"".join(costs))
    run.both(lambda script, rank: script.add(content))


def comm(run: Run, kind: str, rank: int) -> int:
    members = members_of(kind, rank)
    (found,) = [one.id for one in run.fact_builder.communicators.by_id.values() if one.members == members]
    return found


def test_ranks_that_do_the_same_on_their_own_communicators_are_equal(run: Run) -> None:
    def write(script: Script, rank: int) -> None:
        for kind in (DP, TP):
            script.comm = comm(run, kind, rank)
            script.segment(10, content=77).all_reduce(100)
        script.send(1, 5).wait(script.record(), stream=2).sync(stream=1).bye()

    run.both(write)
    run.witnesses.check()
    assert run.witnesses.document()["compared_calls"] == 9
    assert run.witnesses.document()["host_apart_ns"] == 0


def test_where_segments_end_and_who_copies_little_does_not_matter(run: Run) -> None:
    told(run, 78, launched(ADD, 1))
    told(run, 79, launched(ADD, 2), launched(COPY, 9))

    def write(script: Script, rank: int) -> None:
        if rank == WITNESS:
            script.segment(4, content=78).segment(6, content=79)
        else:
            script.segment(10, content=77)
        script.sync()

    run.both(write)
    run.witnesses.check()


@pytest.mark.parametrize(("nbytes", "equal"), [(7_231, True), (4_000, True), (100, False), (20_000, False)])
def test_objects_that_are_copied_may_differ_in_length(run: Run, nbytes: int, equal: bool) -> None:
    """By 4,096 bytes, or an eighth. A rank has the first copy, the other one the other; both have kernels, too."""
    price = Cost(10, 10, 0.0, Source.MEASURED)
    for key, size in ((8, 7_207), (9, nbytes)):
        run.fact_builder.costs.known[key] = Priced(f"copy;h2d;{size};pageable", price)
    told(run, 78, launched(ADD, 1), launched(8, 1))
    told(run, 79, launched(ADD, 1), launched(9, 1))
    run.both(lambda script, rank: script.segment(10, content=79 if rank == WITNESS else 78).sync())
    if equal:
        run.witnesses.check()
    else:
        with pytest.raises(NotFoldable) as found:
            run.witnesses.check()
        assert [side.call.partition(", after ")[2] for side in found.value.sides] == [
            f"{size:,} bytes between host and GPU" for size in (7_207, nbytes)
        ]


def test_larger_objects_may_differ_by_a_share(run: Run) -> None:
    price = Cost(10, 10, 0.0, Source.MEASURED)
    for key, size in ((8, 800_000), (9, 890_000), (10, 1_100_000)):
        run.fact_builder.costs.known[key] = Priced(f"copy;d2h;{size};pageable", price)
        told(run, key, launched(key, 1))
    run.both(lambda script, rank: script.segment(10, content=9 if rank == WITNESS else 8).sync())
    run.witnesses.check()
    run.both(lambda script, rank: script.segment(10, content=10 if rank == WITNESS else 8).sync())
    assert "is a witness, and does not do what" in run.message()


def test_other_kernels_are_named_with_both_sides(run: Run) -> None:
    told(run, 78, launched(ADD, 5))
    run.both(lambda script, rank: script.segment(10, content=78 if rank == WITNESS else 77).sync())
    message = run.message()
    assert "rank 4 is a witness, and does not do what rank 2 does, which would play it (tp 0)" in message
    assert "ranks 2: launches no such work; the latest call before" in message
    assert "ranks 4: launches 2 x memset 1,000,000 bytes; the latest call before" in message


@pytest.mark.parametrize(
    ("own", "text"),
    [
        (lambda script: script.all_reduce(101), "ranks 4: all_reduce of 101 i8 on ranks 0-6:2"),
        (lambda script: script.launch(script.op(NcclKind.ALL_GATHER, 100)), "ranks 4: all_gather of 100 i8"),
        (lambda script: script.sync(), "ranks 4: waits for GPU work"),
        (lambda script: script.clock(), "ranks 4: reads the clock"),
        (lambda script: script.segment(10, content=77).all_reduce(100), "ranks 4: launches 3 x memset 1,000,000 bytes"),
        (lambda script: script.all_reduce(100, stream=3), "ranks 4: all_reduce of 100"),
        (lambda script: script.bye(), "ranks 4: ends"),
    ],
)
def test_other_calls_end_the_run(run: Run, own: Callable[[Script], object], text: str) -> None:
    def write(script: Script, rank: int) -> None:
        script.comm = comm(run, DP, rank)
        own(script) if rank == WITNESS else script.all_reduce(100)

    run.both(write)
    message = run.message()
    assert text in message
    assert "ranks 2: all_reduce of 100 i8 on ranks 0-6:2" in message


def test_a_peer_must_be_the_one_that_has_the_same_place(run: Run) -> None:
    """Rank 2 sends to the next replica, so rank 4 must send to rank 6."""

    def write(script: Script, rank: int) -> None:
        script.comm = comm(run, DP, rank)
        script.send({REPRESENTATIVE: 2, WITNESS: 1}[rank], 100)

    run.both(write)
    assert "ranks 4: send of 100 i8 to rank 2 on ranks 0-6:2" in run.message()


@pytest.mark.parametrize(("by_distance", "equal"), [(True, True), (False, False)])
def test_a_group_s_messages_go_to_their_peers_in_any_order(run: Run, by_distance: bool, equal: bool) -> None:
    """Each rank goes through the replicas from the first one on. What it sends to a replica must depend on how far away
    that is, and not on its number.
    """

    def write(script: Script, rank: int) -> None:
        script.comm = comm(run, DP, rank)
        own = {REPRESENTATIVE: 1, WITNESS: 2}[rank]
        amounts = [100 * (1 + (peer - own) % 4 if by_distance else 1 + peer) for peer in range(4)]
        kinds = (NcclKind.SEND, NcclKind.RECV)
        script.launch(*[script.op(kind, amounts[peer], peer=peer) for peer in range(4) for kind in kinds])

    run.both(write)
    if equal:
        run.witnesses.check()
    else:
        assert "send of 100 i8 to rank 0 on ranks 0-6:2" in run.message()


def split(parent: int, color: int, seq: int, each_its_own: int, *part: int) -> bytes:
    told = pack(f"<{2 + len(part)}I", each_its_own, len(part), *part)
    return records.CommSplit.encode(1, 70 + seq, parent, color, 0, seq, payload=told)


@pytest.mark.parametrize("each_its_own", [False, True])
def test_parts_of_a_split(run: Run, each_its_own: bool) -> None:
    """`new_group` asks all ranks about each part, `split_group` each about its own."""

    def write(script: Script, rank: int) -> None:
        parent = comm(run, DP, rank)
        if each_its_own:
            script.add(split(parent, 40 + rank, 0, 1, rank))
        else:
            for seq, member in enumerate((0, 2, 4, 6)):
                script.add(split(parent, 40 + seq if member == rank else -1, seq, 0, member))

    run.both(write)
    run.witnesses.check()
    run.both(lambda script, rank: script.add(split(comm(run, DP, rank), -1, 4, 0, rank)))
    assert "ranks 4: splits a communicator of ranks 4" in run.message()


def test_peaks_of_memory_may_differ_by_control_data_alone(run: Run) -> None:
    def write(more_nbytes: int) -> Callable[[Script, int], object]:
        return lambda script, rank: script.add(
            records.Memory.encode(0, 0, 0, 1000 + more_nbytes * (rank == WITNESS), 5000, 6000)
        )

    run.both(write(SMALL_BLOCKS_NBYTES - 1))
    run.witnesses.check()
    assert run.witnesses.document()["memory_apart_nbytes"] == SMALL_BLOCKS_NBYTES - 1
    run.both(write(SMALL_BLOCKS_NBYTES))
    assert "has a peak of 2,098,152 bytes of allocated memory" in run.message()


def test_host_times_may_differ_and_are_told(run: Run) -> None:
    run.both(lambda script, rank: script.sync(after=50 if rank == WITNESS else 20))
    run.witnesses.check()
    assert run.witnesses.document()["host_apart_ns"] == 30


def test_ranks_that_are_apart_for_themselves_differ_with_a_warning() -> None:
    """Rank 6 of the role of rank 2; rank 0 may do anything."""
    folding = Folding(MESH, frozenset((0, 6)))
    fact_builder = new_fact_builder(8)
    witnesses = Witnesses(folding, Timelines(8, servers=SERVERS), fact_builder.communicators, fact_builder.costs)
    run = Run(witnesses, fact_builder, {0: Script(0, 8).clock().clock(), 2: Script(2, 8).sync(), 6: Script(6, 8)})
    run.scripts[6].sync().clock().sync()
    for rank in (0, 2, 6):
        run.send(rank)
    assert witnesses.document()["warnings"] == []
    run.scripts[2].sync()
    run.send(2)
    witnesses.check()
    run.scripts[6].all_reduce(5)  # what follows is not compared
    run.scripts[2].segment(9).sync()
    for rank in (6, 2):
        run.send(rank)
    (warning,) = witnesses.document()["warnings"]
    assert warning.startswith("rank 6 reads the clock, but rank 2 waits for GPU work. Rank 6 is apart and plays nobody")


def test_a_communicator_that_has_no_image_is_told() -> None:
    fact_builder = new_fact_builder(8)
    folding = replace(FOLDING, mesh=mesh_of("dp=4,tp=2", 8))
    witnesses = Witnesses(folding, Timelines(8, servers=SERVERS), fact_builder.communicators, fact_builder.costs)
    witnesses.look(REPRESENTATIVE, records.decode_up(init(2, 0, (2, 4), servers=SERVERS))[0])
    with pytest.raises(NotFoldable, match="2 of the 4 coordinates of the folded axis dp"):
        witnesses.check()


def test_similar_ranks_differ_by_numbers(similar: Run) -> None:
    """A set of 1,000,000 bytes takes 10 ns. The witness has two more before its call, and one less after it."""
    told(similar, 78, launched(ADD, 5))
    told(similar, 79, launched(ADD, 2))

    def write(script: Script, rank: int) -> None:
        first, second = (78, 79) if rank == WITNESS else (77, 77)
        script.comm = comm(similar, DP, rank)
        script.segment(10, content=first)
        if rank == WITNESS:
            script.sync(after=30)
        script.all_reduce(100).segment(10, content=second).bye()

    similar.both(write)
    similar.witnesses.check()
    (difference, _) = similar.witnesses.document()["differences"]
    assert difference == {
        "rank": WITNESS,
        "played_by": REPRESENTATIVE,
        "launches": 7,
        "played_launches": 6,
        "gpu_ns": 70,
        "played_gpu_ns": 60,
        "differing_launches": 3,
        "differing_gpu_ns": 30,
        "host_waits": 1,
        "played_host_waits": 0,
        "host_ns": 30,
        "memory_nbytes": 0,
    }


def test_of_similar_ranks_one_may_launch_nothing_on_a_stream(similar: Run) -> None:
    def write(script: Script, rank: int) -> None:
        script.comm = comm(similar, DP, rank)
        script.segment(10, stream=1, content=77)
        if rank == WITNESS:
            script.segment(10, stream=2, content=77)
        script.all_reduce(100)

    similar.both(write)
    similar.witnesses.check()
    (difference, _) = similar.witnesses.document()["differences"]
    assert (difference["launches"], difference["played_launches"], difference["differing_launches"]) == (6, 3, 3)


def test_similar_ranks_make_the_same_calls(similar: Run) -> None:
    def write(script: Script, rank: int) -> None:
        script.comm = comm(similar, DP, rank)
        script.all_reduce(101 if rank == WITNESS else 100)

    similar.both(write)
    assert "ranks 4: all_reduce of 101 i8 on ranks 0-6:2" in similar.message()
