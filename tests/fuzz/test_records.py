"""Whatever bytes a rank sends: they become facts, or the run fails with one sentence that names the rank."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from emu.contract import records
from emu.contract.records_definition import ENTRIES, NUMBERS, class_name
from phantora_async.errors import RunFailure
from phantora_async.ingest.channel import Channel
from phantora_async.ingest.costs import Costs, CostTable
from phantora_async.ingest.fact_builder import FactBuilder
from profiles import CostModel, load_gpu

from .damage import fuzz

UP = [entry for entry in ENTRIES if entry.macro in ("UP", "ASK") and entry.name != "HELLO"]
KINDS = {"u32": (0, 2**32 - 1), "i32": (-(2**31), 2**31 - 1), "u64": (0, 2**64 - 1), "i64": (-(2**63), 2**63 - 1)}
MODEL = CostModel(load_gpu("h200"))
HELLO = records.Hello.encode(0, records.VERSION, 0, 2, 0, 0, 1, 0, 0, payload=b"node000")


def field(kind: str) -> st.SearchStrategy[Any]:
    if kind == "f64":
        return st.floats()
    return st.one_of(st.integers(0, 3), st.integers(*KINDS[NUMBERS.get(kind, kind)]))


@st.composite
def record(draw: st.DrawFn) -> bytes:
    """Draws one whole record of any kind, with any values."""
    entry = draw(st.sampled_from(UP))
    values = [draw(field(kind)) for kind, _ in entry.fields]
    payload = draw(st.binary(max_size=200)) if entry.has_payload else b""
    encoded: bytes = getattr(records, class_name(entry.name)).encode(
        draw(st.integers(0, 2**40)), *values, payload=payload
    )
    return encoded


@st.composite
def op_launch(draw: st.DrawFn) -> bytes:
    """A launch of NCCL calls with any values."""
    ops = draw(st.lists(st.tuples(*(field(kind) for kind, _ in _fields("NCCL_OP"))), max_size=3))
    payload = b"".join(records.NcclOp.encode(*op) for op in ops) + draw(st.binary(max_size=64))
    return records.NcclLaunch.encode(0, 1, len(ops), payload=payload)


def _fields(name: str) -> tuple[tuple[str, str], ...]:
    return next(entry.fields for entry in ENTRIES if entry.name == name)


class Coordinator:
    """A stand-in for the coordinator to which a channel talks: rank 0 of two, and the records' way to facts."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.fact_builder = FactBuilder(2, Costs(MODEL, CostTable(Path(folder) / "costs", 64)))
        self.failures: list[Exception] = []

    def connected(self, channel: Channel) -> None:
        assert channel.hello.rank >= 0

    def received(self, rank: int, arrived: list[Any], nbytes: int) -> None:
        self.fact_builder.take(0, arrived)
        self.fact_builder.take_answers()

    def closed(self, rank: int) -> None:
        pass

    def failed(self, error: Exception) -> None:
        self.failures.append(error)


def feed(stream: bytes, parts: list[int]) -> list[Exception]:
    coordinator = Coordinator()
    channel = Channel(coordinator)
    begin = 0
    for end in sorted({min(part, len(stream)) for part in parts} | {len(stream)}):
        channel.data_received(stream[begin:end])
        begin = end
        if coordinator.failures:
            break
    return coordinator.failures


def check(failures: list[Exception]) -> None:
    for failure in failures:
        assert isinstance(failure, RunFailure), repr(failure)
        assert "rank" in str(failure)


PARTS = st.lists(st.integers(0, 2000), max_size=4)


@fuzz(600)
@given(stream=st.lists(st.one_of(record(), op_launch()), max_size=6).map(b"".join), parts=PARTS)
def test_records_with_any_values(stream: bytes, parts: list[int]) -> None:
    check(feed(HELLO + stream, parts))


@fuzz(300)
@given(data=st.data(), parts=PARTS)
def test_records_with_wrong_bytes(data: st.DataObject, parts: list[int]) -> None:
    stream = bytearray(HELLO + data.draw(st.lists(record(), min_size=1, max_size=4).map(b"".join)))
    for place, byte in data.draw(st.lists(st.tuples(st.integers(0, len(stream) - 1), st.integers(0, 255)), min_size=1)):
        stream[place] = byte
    check(feed(bytes(stream), parts))


@fuzz(200)
@given(stream=st.binary(max_size=300), parts=PARTS)
def test_any_bytes(stream: bytes, parts: list[int]) -> None:
    check(feed(stream, parts))
