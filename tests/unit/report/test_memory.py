"""Memory by what it holds, and whether it fits: from what ranks tell to the text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from emu.contract import records
from emu.contract.records import HeldKind
from emu.contract.records_definition import RecordError
from phantora_async.ingest.call_sites import Line, Site
from phantora_async.ingest.fact_builder import Placed
from phantora_async.ingest.memory_holders import Growth, HeldMemory, Holder, MissingMemory, StepMemory, from_record
from phantora_async.report.guests import GpuUse, Guest, guest_notes, most_at_once, seats_of
from phantora_async.report.memory import memory_document, memory_notes
from phantora_async.virtual_time import GpuMemory, MemoryPeaks

GIB = 2**30
TORCH = "/venv/lib/python3.11/site-packages/torch"
SITES = {
    1: Site(Line("train.py", 7, "main")),
    2: Site(Line("train.py", 9, "main"), Line(f"{TORCH}/distributed/fsdp/_fully_shard/_fsdp_param.py", 5, "unshard")),
    3: Site(Line("train.py", 9, "main"), Line(f"{TORCH}/distributed/tensor/_dispatch.py", 5, "dispatch")),
}


def rank(number: int, allocated: float, reserved: float, device: float | None = None) -> dict[str, Any]:
    told = {"allocated": allocated, "reserved": reserved, "device": reserved if device is None else device}
    return {"rank": number, "memory": {f"{name}_peak_nbytes": int(gib * GIB) for name, gib in told.items()}}


def holder(kind: HeldKind, gib: float, site: int = 0, op: str = "") -> Holder:
    return Holder(int(gib * GIB), 2, kind, site, op)


def held(*holders: Holder, missing: MissingMemory | None = None) -> dict[int, HeldMemory]:
    return {0: HeldMemory(sum(one.nbytes for one in holders), 0, holders, missing)}


def document(ranks: list[dict[str, Any]], told: list[dict[int, HeldMemory]], ended_well: bool = True) -> dict[str, Any]:
    return memory_document((80 * GIB, 78 * GIB), ranks, told, lambda _, number: SITES.get(number), ended_well)


def in_gib(parts: dict[str, int]) -> dict[str, float]:
    return {name: nbytes / GIB for name, nbytes in parts.items()}


def test_memory_that_depends_on_timing_is_a_range() -> None:
    """Collectives kept 3 of 20 GiB; on rank 1 the 4 MiB of 10 GiB are too few to tell."""
    ranks = [rank(0, 20, 30), rank(1, 10, 10)]
    told = [held(holder(HeldKind.PARAMETERS, 20)), held(holder(HeldKind.PARAMETERS, 10))]
    told[0][0] = replace(told[0][0], by_collectives=3 * GIB)
    told[1][0] = replace(told[1][0], by_collectives=4 << 20)
    memory = document(ranks, told)
    assert (memory["max_allocated_nbytes"], memory["least_allocated_nbytes"]) == (20 * GIB, 17 * GIB)
    assert [one["memory"]["allocated_least_nbytes"] / GIB for one in ranks] == [17, 10]
    at_most, depends = "; allocated 20.00 GiB (17.00 GiB to 20.00 GiB", "when NCCL's watchdog finds collectives done)"
    assert memory_notes(memory)[0].endswith(f"{at_most}: {depends}")
    assert "allocated" not in memory_notes(document(ranks[1:], told[1:]))[0]


def test_the_parts_add_up_to_what_is_in_use() -> None:
    ranks = [rank(0, 20, 30, 31), rank(1, 10, 10)]
    told = [
        held(
            holder(HeldKind.PARAMETERS, 4),
            holder(HeldKind.OPTIMIZER_STATE, 8, 1, "aten::zeros_like"),
            holder(HeldKind.ACTIVATIONS, 5, 1, "aten::mm"),
            holder(HeldKind.TEMPORARIES, 2, 2),
        ),
        held(holder(HeldKind.PARAMETERS, 10)),
    ]
    memory = document(ranks, told)
    assert memory["fullest"]["rank"] == 0
    assert in_gib(memory["fullest"]["parts"]) == {
        "parameters": 4,
        "optimizer state": 8,
        "activations": 5,
        "communication buffers": 2,
        "not told": 1,
        "cached or fragmented": 10,
        "outside PyTorch": 3,
    }
    assert in_gib(ranks[1]["memory"]["parts"]) == {"parameters": 10, "outside PyTorch": 2}
    assert memory["fullest"]["holders"][1] == {
        "part": "optimizer state",
        "nbytes": 8 * GIB,
        "blocks": 2,
        "op": "aten::zeros_like",
        "site": "train.py:7 in main",
    }
    assert memory["verdict"] == {
        "fits": True,
        "rank": 0,
        "needed_nbytes": 33 * GIB,
        "left_nbytes": 47 * GIB,
        "failures": 0,
    }
    assert (memory["capacity_nbytes"], memory["total_nbytes"]) == (78 * GIB, 80 * GIB)
    notes = memory_notes(memory)
    assert notes[0] == (
        "memory: fits: rank 0 needs 33.00 GiB, the allocator's cache included, of 80.00 GiB; 47.00 GiB are left"
    )
    assert notes[1].startswith(
        "  rank 0 at its peak: parameters 4.00 GiB, optimizer state 8.00 GiB, activations 5.00 GiB, comm"
    )
    assert notes[2] == "  8.00 GiB in 2 blocks: optimizer state by aten::zeros_like at train.py:7 in main"


@pytest.mark.parametrize(
    ("kind", "site", "op", "part"),
    [
        (HeldKind.TEMPORARIES, 2, "", "communication buffers"),
        (HeldKind.ACTIVATIONS, 2, "", "communication buffers"),
        (HeldKind.TEMPORARIES, 2, "fsdp::all_gather_copy_in", "communication buffers"),
        (HeldKind.TEMPORARIES, 2, "aten::addmm", "temporaries"),
        (HeldKind.PARAMETERS, 2, "", "parameters"),
        (HeldKind.TEMPORARIES, 3, "", "temporaries"),
        (HeldKind.TEMPORARIES, 1, "", "temporaries"),
        (HeldKind.TEMPORARIES, 0, "", "temporaries"),
        (HeldKind.ACTIVATIONS, 99, "", "activations"),
    ],
)
def test_buffers_of_sharding_are_told_apart_by_their_line(kind: HeldKind, site: int, op: str, part: str) -> None:
    memory = document([rank(0, 1, 1)], [held(holder(kind, 1, site, op))])
    assert [one["part"] for one in memory["fullest"]["holders"]] == [part]


def test_a_run_that_does_not_fit_says_how_much_it_needed_at_least() -> None:
    missing = MissingMemory(8 * GIB, 75 * GIB, 77 * GIB, 1, 3)
    told = [held(holder(HeldKind.ACTIVATIONS, 70)), held(holder(HeldKind.ACTIVATIONS, 75), missing=missing)]
    memory = document([rank(0, 70, 70), rank(1, 75, 77)], told, ended_well=False)
    assert memory["verdict"] == {
        "fits": False,
        "rank": 1,
        "needed_nbytes": 85 * GIB,
        "missing_nbytes": 5 * GIB,
        "asked_nbytes": 8 * GIB,
        "unused_nbytes": 2 * GIB,
        "failures": 3,
        "fragmented": False,
        "site": "train.py:7 in main",
    }
    assert memory_notes(memory)[0] == (
        "memory: does not fit: rank 1 asked for 8.00 GiB at train.py:7 in main and needed at least 85.00 GiB of 80.00 "
        "GiB: 5.00 GiB are missing, or more"
    )


def test_fragmentation_is_said() -> None:
    missing = MissingMemory(8 * GIB, 60 * GIB, 77 * GIB, 0, 1)
    told = [held(holder(HeldKind.ACTIVATIONS, 60), missing=missing)]
    memory = document([rank(0, 60, 77)], told, ended_well=False)
    assert memory["verdict"]["missing_nbytes"] == 0
    fragmentation = (
        "memory: does not fit: rank 0 asked for 8.00 GiB; 17.00 GiB of the allocator's cache are in pieces that are "
        "too small (fragmentation)"
    )
    expandable = "; with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True this request would have fitted"
    assert memory_notes(memory)[0] == fragmentation + expandable
    told[0][0] = replace(told[0][0], expandable=True)
    assert memory_notes(document([rank(0, 60, 77)], told, ended_well=False))[0] == fragmentation


def test_growth_is_part_of_the_verdict() -> None:
    """58 GiB of 78 are left: 29 steps of 2."""
    told = [held(holder(HeldKind.ACTIVATIONS, 20)), held(holder(HeldKind.ACTIVATIONS, 20))]
    told[1][0] = replace(told[1][0], growth=Growth(2 * GIB, 7, True, 1, "aten::mm"))
    memory = document([rank(0, 20, 20), rank(1, 20, 20)], told)
    assert memory["growth"] == {
        "rank": 1,
        "ranks": 1,
        "nbytes": 2 * GIB,
        "steps": 7,
        "equal": True,
        "steps_left": 29,
        "site": "train.py:7 in main",
        "op": "aten::mm",
    }
    assert memory_notes(memory)[0].endswith(
        "58.00 GiB are left; allocated memory grows by 2.00 GiB in each of the last 7 steps, asked for by aten::mm at "
        "train.py:7 in main, and fills the GPU after 29 more"
    )
    assert document([rank(0, 20, 20)], told[:1])["growth"] is None


def placed(**gib: float) -> dict[int, Placed]:
    """Returns what ranks hold by GPU: `gpu0=5` means 5 GiB on the GPU of that number."""
    by_gpu = {int(name.removeprefix("gpu")): int(value * GIB) for name, value in gib.items()}
    return {gpu: Placed(gpu, MemoryPeaks(nbytes, nbytes, nbytes)) for gpu, nbytes in by_gpu.items()}


def with_guests(own: float, *places: dict[int, Placed]) -> dict[str, Any]:
    ranks = [rank(number, own, own) for number in range(len(places))]
    told = [held(holder(HeldKind.PARAMETERS, own, 1)) for _ in places]
    guests = GpuUse(seats_of([len(places)]), places).guests()
    return memory_document((80 * GIB, 78 * GIB), ranks, told, lambda _, number: SITES.get(number), True, guests, GIB)


def test_what_ranks_hold_on_the_gpu_of_another_one_is_counted_there() -> None:
    """70 + 2 of rank 0, 2 x (4 + 1) of its guests: 82 of 80."""
    memory = with_guests(70, placed(gpu0=70), placed(gpu0=4, gpu1=70), placed(gpu0=4, gpu2=70))
    assert memory["guests"] == [
        {
            "server": 0,
            "gpu": 0,
            "owner": 0,
            "ranks": [1, 2],
            "nbytes": 4 * GIB,
            "context_nbytes": GIB,
            "site": "train.py:7 in main",
            "children": False,
        }
    ]
    verdict = {"fits": False, "rank": 0, "needed_nbytes": 82 * GIB, "missing_nbytes": 2 * GIB, "failures": 0}
    assert memory["verdict"] == verdict | {"others_nbytes": 10 * GIB}
    assert in_gib(memory["fullest"]["parts"]) == {"parameters": 70, "outside PyTorch": 2, "other ranks": 10}
    notes = memory_notes(memory)
    assert notes[0] == (
        "memory: does not fit: the GPU of rank 0 would need 82.00 GiB of 80.00 GiB (2.00 GiB are missing), 10.00 GiB "
        "of it for other ranks"
    )
    assert guest_notes(memory["guests"], 1) == [
        "ranks 1-2 hold 4.00 GiB each on GPU 0, which is rank 0's, from train.py:7 in main; a context of 1.00 GiB "
        "each comes with it"
    ]
    assert "on GPU 0 of server 0, which" in guest_notes(memory["guests"], 2)[0]


def test_a_gpu_that_has_room_for_its_guests_fits() -> None:
    memory = with_guests(10, placed(gpu0=10), placed(gpu0=4, gpu1=10))
    assert memory["verdict"] == {
        "fits": True,
        "rank": 0,
        "needed_nbytes": 17 * GIB,
        "left_nbytes": 63 * GIB,
        "failures": 0,
    }


def test_who_has_a_gpu_to_itself_is_nobodys_guest() -> None:
    assert not GpuUse(seats_of([2, 2]), [placed(gpu1=4), placed(gpu0=4), placed(gpu0=4), placed(gpu1=4)]).guests()
    everybody = GpuUse(seats_of([2, 2]), [placed(gpu0=4), placed(gpu0=4), placed(gpu0=4), placed(gpu0=4)]).guests()
    assert [(one.rank, one.owner, one.server, one.gpu) for one in everybody] == [(1, 0, 0, 0), (3, 2, 1, 0)]
    both_away = GpuUse(seats_of([4]), [placed(gpu0=1), placed(gpu3=4), placed(gpu3=4), {}]).guests()
    assert [(one.rank, one.owner) for one in both_away] == [(2, 1)]


def test_ranks_that_share_a_timeline_have_what_its_rank_has_in_their_own_places() -> None:
    """Rank 0 tells for rank 2, and rank 1 for rank 3: each has its own GPU, and 1 and 3 have some of GPU 0, too."""
    told = [placed(gpu0=4), placed(gpu0=1, gpu1=4)]
    found = GpuUse(seats_of([4]), [told[rank % 2] for rank in range(4)], [0, 1, 0, 1]).guests()
    assert [(one.rank, one.owner, one.gpu, one.nbytes) for one in found] == [(1, 0, 0, GIB), (3, 0, 0, GIB)]


def took(at_ns: int, gib: float, child: int = 0, parent: int = 0, gpu: int = 0, ended: int = 0) -> GpuMemory:
    return GpuMemory(at_ns, gpu, int(gib * GIB), child, parent, ended)


def test_memory_of_different_times_is_not_added() -> None:
    """Rank 0 has 5 GiB and gives 4 back before rank 1 comes with 3, later 1, and a context of 1: most is 5, then 1 + 4,
    then 3 + 2. Rank 0's own context is not among these.
    """
    own = [took(0, 5), took(10, 1), took(30, 3)]
    guest = [took(20, 3), took(25, 1), took(40, 0, ended=1)]
    contexts = {(0, 0): 0, (1, 0): GIB}
    assert most_at_once({(0, 0): own, (1, 0): guest}, contexts) == 5 * GIB
    assert most_at_once({(0, 0): own, (1, 0): [took(5, 3)]}, contexts) == 9 * GIB
    assert most_at_once({(0, 0): own, (1, 0): guest[:2]}, contexts) == 5 * GIB
    # At one instant, either may have been first; a process that has ended has no context.
    assert most_at_once({(0, 0): own[:2], (1, 0): [took(10, 3), took(10, 2)]}, contexts) == 5 * GIB
    assert most_at_once({(1, 0): [*guest, took(50, 2)], (0, 0): [took(45, 4)]}, contexts) == 7 * GIB


def test_the_gpu_of_a_rank_needs_what_is_there_at_one_time() -> None:
    """Rank 0: 10 and a context of 2, later 4; rank 1 comes then, with 5 and a context of 1: never more than 12."""
    places = [placed(gpu0=10), placed(gpu0=5, gpu1=10)]
    over_time = [[took(0, 10), took(10, 4)], [took(0, 10, gpu=1), took(20, 5)]]
    use = GpuUse(seats_of([2]), places, None, over_time)
    together = use.together(GIB, 2 * GIB)
    assert together == {0: (12 * GIB, 12 * GIB)}
    ranks = [rank(number, 10, 10) for number in range(2)]
    told = [held(holder(HeldKind.PARAMETERS, 10, 1)) for _ in places]
    args = (80 * GIB, 78 * GIB), ranks, told, lambda _, number: SITES.get(number), True, use.guests(), GIB
    assert memory_document(*args, together)["verdict"]["needed_nbytes"] == 12 * GIB
    # Rank 1 was killed: when it had 5 GiB is not known.
    together = GpuUse(seats_of([2]), places, None, [over_time[0], over_time[1][:1]]).together(GIB, 2 * GIB)
    assert together == {0: (12 * GIB, 18 * GIB)}
    memory = memory_document(*args, together)
    assert memory["verdict"]["needed_nbytes"] == 18 * GIB
    assert memory_notes(memory)[0].startswith("memory: fits: rank 0 needs 12.00 GiB to 18.00 GiB, the allocator's")


def test_processes_that_a_rank_has_started_are_guests_where_they_are() -> None:
    """Two workers of rank 1 use the default GPU, which is rank 0's, and one of rank 0 does so, too."""
    workers = [took(5, 2, child=1, parent=2), took(6, 2, child=2, parent=2), took(7, 3, child=3, parent=1)]
    use = GpuUse(seats_of([2]), [placed(gpu0=4), placed(gpu1=4)], None, [[took(0, 4), *workers], [took(0, 4, gpu=1)]])
    assert use.guests() == [
        Guest(0, 0, 0, 0, 0, 3 * GIB, 3),
        Guest(1, 0, 0, 0, 0, 2 * GIB, 1),
        Guest(1, 0, 0, 0, 0, 2 * GIB, 2),
    ]
    assert use.together(GIB, 2 * GIB) == {0: (16 * GIB, 16 * GIB)}
    ranks = [rank(number, 4, 4) for number in range(2)]
    told = [held(holder(HeldKind.PARAMETERS, 4, 1)) for _ in ranks]
    children = [{(number, 0): told[0][0] for number in (1, 2)}, {}]
    memory = memory_document(
        (80 * GIB, 78 * GIB), ranks, told, lambda _, number: SITES.get(number), True, use.guests(), GIB,
        use.together(GIB, 2 * GIB), children,
    )  # fmt: skip
    assert in_gib(memory["fullest"]["parts"]) == {"parameters": 4, "outside PyTorch": 2, "other ranks": 10}
    assert guest_notes(memory["guests"], 1) == [
        "a process of rank 0 holds 3.00 GiB on GPU 0, beside the rank itself; a context of 1.00 GiB comes with it",
        "2 processes of rank 1 hold 2.00 GiB each on GPU 0, which is rank 0's, from train.py:7 in main; a context of "
        "1.00 GiB each comes with it",
    ]


def test_processes_of_ranks_that_are_not_there_are_nobodys_guests() -> None:
    """A recording may name any rank as the one that has started a process: here -1 (parent 0), and 2 of two ranks."""
    strangers = [took(5, 2, child=1, parent=0), took(6, 2, child=2, parent=3), took(7, 2, child=3, parent=2, gpu=7)]
    use = GpuUse(seats_of([2]), [placed(gpu0=4), placed(gpu1=4)], None, [[took(0, 4), *strangers], []])
    assert not use.guests()


def test_a_script_that_does_without_fits() -> None:
    missing = MissingMemory(8 * GIB, 75 * GIB, 77 * GIB, 0, 2)
    memory = document([rank(0, 75, 77)], [held(holder(HeldKind.ACTIVATIONS, 75), missing=missing)])
    assert memory["verdict"]["fits"]
    assert memory_notes(memory)[0].endswith("2 requests for memory failed, and the script went on")


def test_ranks_that_told_nothing() -> None:
    memory = document([rank(0, 0, 0)], [{}])
    assert memory["fullest"] == {"rank": 0, "parts": {"outside PyTorch": 2 * GIB}, "holders": [], "over_step": None}
    assert memory_notes(memory) == []
    assert in_gib(document([rank(0, 3, 3)], [{}])["fullest"]["parts"]) == {"not told": 3, "outside PyTorch": 2}
    assert memory_notes({"max_allocated_nbytes": 5}) == []  # of an older version


def test_the_step_that_has_the_peak() -> None:
    by_kind = {HeldKind.PARAMETERS: (5, 5), HeldKind.GRADIENTS: (0, 0), HeldKind.TEMPORARIES: (0, 9)}
    step = StepMemory(7, by_kind, (5, 20))
    told = {0: HeldMemory(14, 0, (holder(HeldKind.PARAMETERS, 1),), None, step)}
    memory = document([rank(0, 1, 1)], [told])
    assert memory["fullest"]["over_step"] == {
        "allocations": 7,
        "parts": {"parameters": [5, 5], "temporaries": [0, 9]},
        "most_nbytes": [5, 20],
    }
    assert document([rank(0, 1, 1)], [held(holder(HeldKind.PARAMETERS, 1))])["fullest"]["over_step"] is None


def record(entries: int, payload: bytes) -> records.MemoryHeld:
    return records.MemoryHeld(
        records.MEMORY_HELD, 0, 0, 0, 0, entries, 6, 8, 0, 0, 0, 0, 0, 0, 6, 3, 4, 7, 0, 1, 0, 0, 0, 0, payload
    )


def test_a_record_is_read() -> None:
    payload = records.MemoryHolder.encode(4, 2, HeldKind.GRADIENTS, 7, 0)
    payload += records.MemoryHolder.encode(2, 1, HeldKind.ACTIVATIONS, 0, 0) + b"aten::mm\n\n"
    found = from_record(record(2, payload))
    assert found.holders == (Holder(4, 2, HeldKind.GRADIENTS, 7, "aten::mm"), Holder(2, 1, HeldKind.ACTIVATIONS, 0, ""))
    assert (found.allocated, found.reserved, found.missing) == (6, 8, None)
    assert found.growth == Growth(3, 4, True, 7, "")
    assert not found.expandable
    assert from_record(record(2, payload + b"aten::cat\0\0")).growth == Growth(3, 4, True, 7, "aten::cat")


@pytest.mark.parametrize(
    "payload",
    [b"", records.MemoryHolder.encode(4, 2, 9, 7, 0) + b"\n", records.MemoryHolder.encode(4, 2, 1, 7, 0) + b"x"],
    ids=["no entry", "unknown kind", "no line"],
)
def test_an_impossible_record_is_refused(payload: bytes) -> None:
    with pytest.raises(RecordError):
        from_record(record(1, payload))
