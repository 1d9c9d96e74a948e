"""The records between a rank and the coordinator, as Python classes built from records.def.

For every entry of the definition this module holds, all built at import:

* a constant with the record's number: ``SEGMENT == 18``;
* a named tuple: header, fields, payload. ``Segment`` for SEGMENT, ``NcclOp`` for the STRUCT NCCL_OP (fields only).
  ``Segment.encode(host_ns, stream, ...)`` makes bytes of it; ``encode``'s first argument is the header's last word,
  host_ns for what a rank sends and qid for what it is sent;
* an IntEnum for every group of ENUM entries: ``ScopeKind.EVENT`` for ENUM(SCOPE, EVENT, 2).

Static types are in records.pyi, which ``python -m emu.contract.records_stub`` prints and a test compares.
"""

from __future__ import annotations

import struct
from collections import namedtuple
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Any

from .records_definition import ENTRIES, FIELD_FORMATS, Entry, RecordError, class_name
from .records_definition import VERSION as VERSION

MAX_NBYTES = 1 << 30
"""A longer record is a lost place in the stream, not a record."""

HEADER = struct.Struct("<HHIQ")
QID_BITS = 40
"""Above them, a qid has the number of the process that asks, see HELLO."""
_PEEK = struct.Struct("<HHI").unpack_from


def _encode(kind: int, layout: struct.Struct, word: int, *fields: float, payload: bytes = b"", site: int = 0) -> bytes:
    """Returns one whole record. The header counts the payload's padding too, so that a reader may just add nbytes."""
    padding = -len(payload) % 8
    nbytes = layout.size + len(payload) + padding
    return layout.pack(kind, site, nbytes, word, *fields) + payload + b"\0" * padding


def _record(entry: Entry) -> tuple[type[Any], struct.Struct]:
    layout = struct.Struct(HEADER.format + "".join(FIELD_FORMATS[kind] for kind, _ in entry.fields))
    word = "qid" if entry.macro == "DOWN" else "host_ns"
    fields = ["kind", "site", "nbytes", word, *(name for _, name in entry.fields), "payload"]
    base = namedtuple(class_name(entry.name), fields)  # type: ignore[misc]
    encode = staticmethod(partial(_encode, entry.number, layout))
    return type(class_name(entry.name), (base,), {"__slots__": (), "encode": encode}), layout


def _part(entry: Entry) -> type[Any]:
    layout = struct.Struct("<" + "".join(FIELD_FORMATS[kind] for kind, _ in entry.fields))
    base = namedtuple(class_name(entry.name), [name for _, name in entry.fields])  # type: ignore[misc]

    def decode_all(cls: type[Any], data: bytes, start: int, count: int) -> list[Any]:
        if start + count * layout.size > len(data):
            raise RecordError(f"{entry.name}: {count} of them do not fit {len(data) - start} bytes")
        return [tuple.__new__(cls, layout.unpack_from(data, start + i * layout.size)) for i in range(count)]

    body = {
        "__slots__": (),
        "encode": staticmethod(layout.pack),
        "decode_all": classmethod(decode_all),
        "size": staticmethod(lambda: layout.size),
    }
    return type(class_name(entry.name), (base,), body)


Decoder = tuple[Callable[..., tuple[Any, ...]], int, Callable[[tuple[Any, ...]], Any], bool, str]
"""Unpacks header and fields, their bytes, makes the record, may a payload follow, the record's name."""
_UP: dict[int, Decoder] = {}
_DOWN: dict[int, Decoder] = {}
NAMES: dict[int, str] = {}
"""Record number -> its name in the definition."""
ENTRY_OF: dict[int, Entry] = {}
"""The number of a record that a rank sends -> its entry in the definition."""
REPLY_OF: dict[int, int] = {}
"""An ASK's number -> the number of the DOWN record that answers it."""
WORDS: dict[int, tuple[str, ...]] = {}
"""A record's number -> what the rank does that sends it; for some questions then what it waits for and what it asks."""
_ANSWERS: dict[int, tuple[Callable[..., bytes], int]] = {}
"""An ASK's number -> the encoder of its answer, and how many fields that has."""


def _build(entries: list[Entry], scope: dict[str, Any]) -> None:
    enums: dict[str, dict[str, int]] = {}
    for entry in entries:
        if entry.macro == "ENUM":
            value, number = entry.arguments
            enums.setdefault(entry.name, {})[value] = int(number)
        elif entry.macro == "STRUCT":
            scope[class_name(entry.name)] = _part(entry)
        elif entry.is_record:
            made, layout = _record(entry)
            decoder = (layout.unpack_from, layout.size, partial(tuple.__new__, made), entry.has_payload, entry.name)
            (_DOWN if entry.macro == "DOWN" else _UP)[entry.number] = decoder
            NAMES[entry.number] = entry.name
            if entry.macro != "DOWN":
                ENTRY_OF[entry.number] = entry
            scope[entry.name] = entry.number
            scope[class_name(entry.name)] = made
    for entry in entries:
        if entry.macro == "WORDS":
            WORDS[scope[entry.name]] = entry.arguments
        elif entry.macro == "ASK":
            REPLY_OF[entry.number] = scope[entry.reply]
            reply = scope[class_name(entry.reply)]
            _ANSWERS[entry.number] = reply.encode, len(reply._fields) - 5  # without the header and the payload
    for name, values in enums.items():
        scope[f"{class_name(name)}Kind"] = IntEnum(f"{class_name(name)}Kind", values)


def _decode(decoders: dict[int, Decoder], data: bytes) -> tuple[list[Any], int]:
    """All whole records of `data`, and the count of bytes they took: what follows is the start of the next one.

    Raises RecordError at bytes that are no record. Trailing zeros of a payload may be padding.
    """
    records: list[Any] = []
    append, find, end = records.append, decoders.get, len(data)
    offset = 0
    while end - offset >= 16:
        kind, _, nbytes = _PEEK(data, offset)
        decoder = find(kind)
        if decoder is None:
            raise RecordError(f"unknown record kind {kind}", tuple(records))
        unpack, size, make, has_payload, name = decoder
        if nbytes == size:
            if offset + size > end:
                break
            append(make((*unpack(data, offset), b"")))
            offset += size
        elif nbytes > size and has_payload and nbytes <= MAX_NBYTES:
            after = offset + nbytes + (-nbytes % 8)
            if after > end:
                break
            append(make((*unpack(data, offset), data[offset + size : offset + nbytes])))
            offset = after
        else:
            expected = f"{size} or more" if has_payload else f"{size}"
            raise RecordError(f"{name} of {nbytes} bytes, expected {expected}", tuple(records))
    return records, offset


def marked(mark: str) -> frozenset[int]:
    """Returns the numbers of all records that a rank sends and that the definition marks with this word."""
    return frozenset(number for number, entry in ENTRY_OF.items() if mark in entry.marks)


def naming(what: str) -> dict[int, tuple[str, ...]]:
    """Returns, for each record that a rank sends and that has fields of this type, such as recording_number, these
    fields.
    """
    found = {number: tuple(n for kind, n in entry.fields if kind == what) for number, entry in ENTRY_OF.items()}
    return {number: names for number, names in found.items() if names}


def answer(question: int, qid: int, *values: int) -> bytes:
    """Encodes the answer to a question of this kind. It takes as many of the values as it has fields, or zeros."""
    encode, nfields = _ANSWERS[question]
    return encode(qid, *(*values, *[0] * nfields)[:nfields])


def process_asking(answer: bytes) -> int:
    """Returns the number of the process that has asked for this encoded answer; -1 if it was not asked for."""
    qid: int = HEADER.unpack_from(answer)[3]
    return qid >> QID_BITS if qid else -1


def nbytes_of(beginning: bytes | bytearray) -> int:
    """Returns the bytes on the wire of the record that begins so; those of a header if even that is incomplete."""
    if len(beginning) < HEADER.size:
        return HEADER.size
    _, _, nbytes = _PEEK(beginning, 0)
    return int(nbytes + (-nbytes % 8))


decode_up = partial(_decode, _UP)
decode_down = partial(_decode, _DOWN)

_build(ENTRIES, globals())
