"""The shared cost table, read as the hook library reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.contract import records
from emu.contract.records import RecordError
from phantora_async.ingest.costs import Costs, CostTable, Unrecognised
from profiles import Cost, CostModel, Source, load_gpu


def find(path: Path, key: int) -> records.CostEntry | None:
    """Finds a key's entry by open addressing, from key & (capacity - 1) on."""
    table = path.read_bytes()
    (header,) = records.CostHeader.decode_all(table, 0, 1)
    assert (header.version, header.entry_nbytes) == (records.VERSION, records.CostEntry.size())
    entries = records.CostEntry.decode_all(table, records.CostHeader.size(), header.capacity)
    slot = key & (header.capacity - 1)
    while entries[slot].key:
        if entries[slot].key == key:
            return entries[slot]
        slot = (slot + 1) & (header.capacity - 1)
    return None


def cost(solo_ns: int) -> Cost:
    return Cost(solo_ns, 2 * solo_ns, 3.0, Source.INTERPOLATED)


def test_entries_that_collide_take_the_next_slots(tmp_path: Path) -> None:
    table = CostTable(tmp_path / "t", 8)
    keys = [7, 15, 23, 2**64 - 1]  # all of slot 7
    for number, key in enumerate(keys):
        assert find(tmp_path / "t", key) is None
        assert table.write(key, cost(number + 1))
    for number, key in enumerate(keys):
        found = find(tmp_path / "t", key)
        assert found is not None
        assert (found.solo_ns, found.contended_ns, found.flops, found.source) == (number + 1, 2 * number + 2, 3.0, 2)


def test_a_full_table_takes_no_more(tmp_path: Path) -> None:
    table = CostTable(tmp_path / "t", 8)
    assert [table.write(key, cost(1)) for key in range(1, 9)] == [True] * 6 + [False] * 2
    assert find(tmp_path / "t", 8) is None


def test_a_signature_is_estimated_once(tmp_path: Path) -> None:
    asked = []

    class Model:
        def cost(self, signature: str) -> Cost:
            asked.append(signature)
            return cost(len(signature))

    costs = Costs(Model(), CostTable(tmp_path / "t", 8))
    question = records.Cost(69, 0, 0, 0, 11, 42, b"memset;8\0\0")
    for _ in range(3):
        (answer,), _ = records.decode_down(costs.answer(question))
        assert isinstance(answer, records.CostOf)
        assert (answer.qid, answer.solo_ns, answer.contended_ns) == (11, 8, 16)
    assert asked == ["memset;8"]
    with pytest.raises(RecordError, match="0x2a stands for 'memset;8' and for 'memset;9'"):
        costs.answer(question._replace(payload=b"memset;9"))
    with pytest.raises(RecordError, match="key 0"):
        costs.answer(question._replace(key=0))


def test_a_cost_s_sources_are_those_of_the_records() -> None:
    assert {one.name: one.value for one in Source} == {one.name: one.value for one in records.SourceKind}


def test_what_the_model_does_not_recognise_costs_an_estimate_and_is_noted(tmp_path: Path) -> None:
    costs = Costs(CostModel(load_gpu("h200")), CostTable(tmp_path / "t", 64))
    f3 = "gemm;cublasLtMatmul;t;n;8;8;{};1;f3;f3;bf16;f32;default;;"
    for key, text in enumerate([f3.format(9), "memset;8", f3.format(7), "what\xff is this", f3.format(8)], start=1):
        encoded = costs.answer(records.Cost(69, 0, 0, 0, 11, key, text.encode("latin-1")))
        (answer,), _ = records.decode_down(encoded)
        assert isinstance(answer, records.CostOf)
        source = Source.ROOFLINE if text == "memset;8" else Source.UNRECOGNISED
        assert (answer.source, answer.solo_ns > 1) == (source, True)
        entry = find(tmp_path / "t", key)
        assert entry is not None
        assert entry.source == source
    assert list(costs.unrecognised.values()) == [
        Unrecognised(3, f3.format(7)),
        Unrecognised(1, "what\ufffd is this"),
    ]
    assert next(iter(costs.unrecognised)) == "gemm a: unknown dtype 'f3', gemm b: unknown dtype 'f3'"
