"""The shared cost table, read as the hook library reads it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from emu.contract import records
from emu.contract.records import RecordError
from phantora_async.ingest.costs import Cost, Costs, CostTable


def find(path: Path, key: int) -> records.CostEntry | None:
    """Open addressing from key & (capacity - 1) on."""
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
    return SimpleNamespace(solo_ns=solo_ns, contended_ns=2 * solo_ns, flops=3.0, source=2)


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
        assert (answer.qid, answer.solo_ns) == (11, 8)
    assert asked == ["memset;8"]
    with pytest.raises(RecordError, match="0x2a stands for 'memset;8' and for 'memset;9'"):
        costs.answer(question._replace(payload=b"memset;9"))
    with pytest.raises(RecordError, match="key 0"):
        costs.answer(question._replace(key=0))
