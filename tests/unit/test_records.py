"""emu.contract.records: the Python side of the one definition."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.contract import records, records_stub
from emu.contract.records_definition import DEFINITION, NUMBERS, parse


def test_a_record_has_the_layout_that_the_definition_says() -> None:
    encoded = records.Segment.encode(7, 1, 20, 300, 450, 310, 290, 5)
    assert encoded == struct.pack("<HHIQIIQQQQQ", 18, 0, 64, 7, 1, 20, 300, 450, 310, 290, 5)
    (decoded,), used = records.decode_up(encoded)
    assert used == len(encoded)
    assert isinstance(decoded, records.Segment)
    assert (decoded.kind, decoded.host_ns, decoded.stream, decoded.tail_ns) == (records.SEGMENT, 7, 1, 310)
    assert decoded.payload == b""


def test_parts_are_read_from_a_payload() -> None:
    ops = [records.NcclOp.encode(9, seq, records.NcclKind.ALL_REDUCE, 7, 0, 0, 5, 0, 0, 1.0) for seq in (3, 4)]
    encoded = records.NcclLaunch.encode(0, 1, 2, payload=b"".join(ops))
    (launch,), _ = records.decode_up(encoded)
    assert isinstance(launch, records.NcclLaunch)
    assert [op.seq for op in records.NcclOp.decode_all(launch.payload, 0, launch.nops)] == [3, 4]
    with pytest.raises(records.RecordError, match="do not fit"):
        records.NcclOp.decode_all(launch.payload, 0, 3)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (struct.pack("<HHIQ", 999, 0, 16, 0), "unknown record kind 999"),
        (struct.pack("<HHIQ", 98, 0, 24, 0), "unknown record kind 98"),
        (struct.pack("<HHIQQ", 18, 0, 24, 0, 0), "SEGMENT of 24 bytes, expected 64"),
        (struct.pack("<HHIQ", 23, 0, 8, 0), "HOST_ADVANCE of 8 bytes, expected 16"),
        (struct.pack("<HHIQ", 23, 0, 24, 0), "HOST_ADVANCE of 24 bytes, expected 16"),
        (
            struct.pack("<HHIQIIIIII", 1, 0, 2**31, 0, 1, 0, 1, 0, 0, 0),
            "HELLO of 2147483648 bytes, expected 48 or more",
        ),
    ],
)
def test_what_is_no_record_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(records.RecordError, match=message):
        records.decode_up(data)


def test_an_unpadded_payload_is_padded_on_the_wire() -> None:
    counted = struct.pack("<HHIQ8I", 1, 0, 51, 0, 1, 0, 1, 0, 0, 0, 0, 0) + b"abc" + b"\0" * 5
    found, used = records.decode_up(counted + records.HostAdvance.encode(5))
    assert [record.payload for record in found] == [b"abc", b""]
    assert used == 72


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.binary(max_size=40)), max_size=20), st.integers(0, 400))
def test_any_cut_of_the_stream_gives_the_same_records(sent: list[tuple[int, bytes]], cut: int) -> None:
    stream = b"".join(records.Warning.encode(host_ns, 1, 2, payload=text) for host_ns, text in sent)
    first, used = records.decode_up(stream[:cut])
    rest, used_later = records.decode_up(stream[used:])
    assert used + used_later == len(stream)
    assert [(r.host_ns, r.payload.rstrip(b"\0")) for r in first + rest] == [(h, p.rstrip(b"\0")) for h, p in sent]


def test_every_question_knows_its_reply() -> None:
    assert records.REPLY_OF[records.CLOCK_READ] == records.CLOCK
    assert records.REPLY_OF[records.ELAPSED] == records.ELAPSED_NS
    assert len(records.REPLY_OF) == 7


def test_an_answer_takes_as_many_values_as_it_has_fields() -> None:
    """The engine gives two values; the rest of ELAPSED_NS fills up eight bytes."""
    assert records.answer(records.CLOCK_READ, 7, 900, 1) == records.Clock.encode(7, 900, 1)
    assert records.answer(records.ELAPSED, 7, -5, 1) == records.ElapsedNs.encode(7, -5, 1, 0)
    assert records.answer(records.QUERY, 7, 1, 30) == records.Done.encode(7, 1, 30)


def test_the_definition_says_how_records_are_used() -> None:
    assert records.SEGMENT in records.marked("ROW")
    assert records.MEMORY in records.marked("ROW") & records.marked("REPORT")
    assert records.USAGE in records.marked("PROCESS") - records.marked("REPORT")
    assert records.marked("ROW") | records.marked("HOST_TIME") | records.marked("BESIDE") == records.ENTRY_OF.keys()


def test_the_stub_is_current() -> None:
    kept = Path(records.__file__).with_suffix(".pyi").read_text()
    command = "python -m emu.contract.records_stub > emu/contract/records.pyi"
    assert kept == "\n".join(records_stub.stub()) + "\n", f"run: {command}"


def test_a_payload_is_an_argument() -> None:
    told, silent = parse(
        "/* UP(NONE, 9, PAYLOAD) */ UP(A, 1, PAYLOAD, BESIDE, F(u64, x)) "
        "ASK(B, 2, NO_PAYLOAD, ROW(0), C) /* payload: */"
    )
    assert (told.name, told.number, told.has_payload, told.fields) == ("A", 1, True, (("u64", "x"),))
    assert (silent.name, silent.has_payload, silent.reply, silent.fields) == ("B", False, "C", ())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("UP(A, 1, F(u64, x))", "A: expected PAYLOAD or NO_PAYLOAD after the number"),
        ("UP(A, 1, payload)", "A: expected PAYLOAD or NO_PAYLOAD after the number"),
        ("UP(A, 1, PAYLOAD, BESIDE, F(u65, x))", "A: x: unknown type u65"),
        ("UP(A, 1, PAYLOAD, F(u64, x))", "A: expected one of ROW, HOST_TIME, BESIDE after the payload"),
        ("UP(A, 1, PAYLOAD, ROW(0) BESIDE, F(u64, x))", "A: expected one of ROW, HOST_TIME, BESIDE after the payload"),
        ("UP(A, 1, PAYLOAD, BESIDE SOMETIMES, F(u64, x))", "A: expected one of ROW, HOST_TIME, BESIDE after"),
        ("UP(A, 1, PAYLOAD, ROW(0, y), F(u64, x))", "A: its row has y, which is no field"),
        ("UP(A, 1, PAYLOAD, BESIDE) DOWN(B, 1, PAYLOAD)", "B and A have the same number 1"),
    ],
)
def test_a_malformed_definition_is_refused(text: str, message: str) -> None:
    with pytest.raises(records.RecordError, match=message):
        parse(text)


PROGRAM = r"""
#include "core/records.h"
#include <stdio.h>
int main(void) {
    printf("version %d\n", PH_RECORD_VERSION);
    for (unsigned kind = 0; kind < 200; kind++)
        for (size_t nbytes = 0; nbytes < 200; nbytes++)
            if (ph_record_fits((uint16_t)kind, nbytes)) printf("%u %zu\n", kind, nbytes);
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_c_and_python_agree_on_sizes_and_payloads(tmp_path: Path) -> None:
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(PROGRAM)
    include = f"-I{DEFINITION.parents[1] / 'hook'}"
    subprocess.run(["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", include, "-o", program, source], check=True)
    version, *fits = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    assert version == f"version {records.VERSION}"
    expected = set()
    for entry in (entry for entry in parse(DEFINITION.read_text()) if entry.is_record):
        size = sum(4 if NUMBERS.get(kind, kind) in ("u32", "i32") else 8 for kind, _ in entry.fields)
        expected |= {f"{entry.number} {n}" for n in (range(size, 200) if entry.has_payload else [size])}
    assert set(fits) == expected
