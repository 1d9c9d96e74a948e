"""Figures that a report counts over ranks: a process tells for all ranks for which it stands."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from emu.contract import records
from emu.contract.stated_values import StatedValue
from phantora_async.folding import Folding, mesh_of
from phantora_async.folding.mirrored_ranks import MirroredRanks
from phantora_async.ingest.fact_builder import FactBuilder
from phantora_async.ingest.uncomputed_reads import path_of
from phantora_async.report.routing import routing_document
from phantora_async.report.stated_values import (
    checkpoints_document,
    decided_document,
    sizes_document,
    stated_document,
    total_of,
)
from phantora_async.virtual_time import Timelines
from tests.unit.virtual_time.scripted import Script, new_fact_builder

SERVERS = (8, 8)
FOLDING = Folding(mesh_of("dp=16", 16), frozenset((0, 15)))
"""Rank 1 plays 2 to 14."""
VALUE = StatedValue("train.py:3=1", "train.py", 3, "1")


def sent(rank: int) -> list[Any]:
    """Returns what this rank's process sends. Rank 0 warns twice more than others."""
    script = Script(rank, 16)
    for part in (
        records.Warning.encode(0, 0, 5 if rank == 0 else 3, payload=b"a call is not supported"),
        records.Decided.encode(0, 4, payload=b"train.py:9"),
        records.Decided.encode(0, 2, payload=b""),
        records.StatedValue.encode(0, 0, 0, 6, 1),
        records.DataSize.encode(0, 2, 100, 50, payload=b"nonzero\na.py:1\na.py:2"),
        records.Routing.encode(0, 1, 0, 2, 2, 0, payload=struct.pack("<2Q", 3, 1) + b"a.py:3\nRouter\ntopk"),
        records.Checkpoint.encode(0, 0, 100, 90, payload=b"/ckpt/__%d_0.distcp" % rank),
    ):
        script.add(part)
    return records.decode_up(b"".join(script.records))[0]


def told(fact_builder: FactBuilder) -> dict[str, Any]:
    reads, sharing = fact_builder.reads, fact_builder.sharing
    return {
        "warnings": {text: one.by_rank(sharing) for text, one in fact_builder.warnings.items()},
        "decided": decided_document(reads, sharing),
        "checks": total_of(reads.checks.items(), sharing),
        "stated": stated_document([VALUE], reads, sharing),
        "sizes": sizes_document("most", reads, sharing)["places"],
        "routing": routing_document("zipf:1", fact_builder.routing, sharing)["places"],
        "checkpoints": checkpoints_document(reads, sharing),
    }


@pytest.mark.parametrize("shared", [True, False])
def test_all_ranks_are_counted(shared: bool) -> None:
    timelines = Timelines(16, FOLDING if shared else None, SERVERS)
    fact_builder = new_fact_builder(16, timelines)
    ranks = MirroredRanks(FOLDING, timelines, SERVERS, fact_builder.communicators)
    for rank in FOLDING.live:
        fact_builder.take(rank, arrived := sent(rank))
        for one, its in ranks.records_after(rank, arrived):
            fact_builder.take(one, its)
    found = told(fact_builder)
    assert found["warnings"] == {"a call is not supported": {0: 5} | dict.fromkeys(range(1, 16), 3)}
    assert found["decided"] == [{"place": "train.py:9", "reads": 64, "ranks": 16}]
    assert found["checks"] == 32
    (stated,), (size,), (router,) = found["stated"], found["sizes"], found["routing"]
    assert (stated["ranks"], stated["reads"], stated["computed"]) == (16, 96, 16)
    assert (size["ranks"], size["calls"], size["most"], size["chosen"]) == (16, 32, 1600, 800)
    assert (router["ranks"], router["layers"]) == (16, [{"layer": 0, "calls": 16, "loads": [48, 16]}])
    (checkpoint,) = found["checkpoints"]
    assert (checkpoint["path"], checkpoint["files"], checkpoint["ranks"]) == ("/ckpt/", 16, list(range(16)))
    assert (checkpoint["written_nbytes"], checkpoint["uncomputed_nbytes"]) == (1600, 1440)

    whole = new_fact_builder(16)
    for rank in range(16):
        whole.take(rank, sent(rank))
    assert told(whole) == found


def test_a_warning_about_one_rank_is_nobody_else_s() -> None:
    fact_builder = new_fact_builder(16, Timelines(16, FOLDING, SERVERS))
    fact_builder.warn(1, "about the run")
    fact_builder.warn_of(1, "about what the rank did")
    fact_builder.warn(0, "about what the rank did", 2)
    one, other = (found.by_rank(fact_builder.sharing) for found in fact_builder.warnings.values())
    assert one == {1: 1}
    assert other == {0: 2} | dict.fromkeys(range(1, 15), 1)


@pytest.mark.parametrize("shared", [True, False])
def test_another_rank_s_gpu_is_used_by_all_that_would_use_it(shared: bool) -> None:
    """Rank 1 uses the GPU of rank 0 of its server. So does each other rank of the first server. On the second one rank
    9, which is its second, uses that of rank 8, and rank 8 itself uses that of rank 9, whose place it takes.
    """
    timelines = Timelines(16, FOLDING if shared else None, SERVERS)
    fact_builder = new_fact_builder(16, timelines)
    ranks = MirroredRanks(FOLDING, timelines, SERVERS, fact_builder.communicators)
    script = Script(1, 16)
    script.add(records.GpuUsed.encode(0, 0, 0))
    fact_builder.take(1, arrived := records.decode_up(b"".join(script.records))[0])
    for one, its in ranks.records_after(1, arrived):
        fact_builder.take(one, its)
    assert fact_builder.user_of_gpu(0) == 1
    assert fact_builder.user_of_gpu(8) == 9
    assert fact_builder.user_of_gpu(9) == 8
    assert fact_builder.user_of_gpu(10) is None


@pytest.mark.parametrize("shared", [True, False])
def test_memory_of_a_process_that_was_ended_is_that_of_all_whom_it_played(shared: bool) -> None:
    """Each has it on the GPU of its own number."""
    fact_builder = new_fact_builder(16, Timelines(16, FOLDING if shared else None, SERVERS))
    for one in (1, 2, 9) if not shared else (1,):
        fact_builder.memory_at_end(one, [[1, 300, 400, 500]], 1)
    for rank in (1, 2, 9):
        assert fact_builder.rank_info[rank].memory_at_end == (300, 400, 500)
    if not shared:
        assert [fact_builder.rank_info[rank].placed[rank % 8].gpu for rank in (1, 2, 9)] == [1, 2, 1]


@pytest.mark.parametrize(
    ("path", "its"),
    [
        ("/ckpt/__3_0.distcp", "/ckpt/__7_0.distcp"),
        ("/ckpt/rank_03/model.pt", "/ckpt/rank_07/model.pt"),
        ("/ckpt/step3/rank3.pt", "/ckpt/step3/rank7.pt"),
        ("/ckpt/3/step3.pt", "/ckpt/3/step7.pt"),
        ("/ckpt/3/model.pt", "/ckpt/7/model.pt"),
        ("/ckpt/model33.pt", "/ckpt/model33.pt"),
    ],
)
def test_a_file_of_a_rank_s_own(path: str, its: str) -> None:
    assert path_of(path, 3, 7) == its
    assert path_of(path, 3, 3) == path
