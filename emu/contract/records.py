"""The records between a rank and the coordinator, read from records.def, the definition that the C side compiles.

For every entry of the definition this module holds, all built at import:

* a constant with the record's number: ``SEGMENT == 18``;
* a named tuple: header, fields, payload. ``Segment`` for SEGMENT, ``NcclOp`` for the STRUCT NCCL_OP (fields only).
  ``Segment.encode(host_ns, stream, ...)`` makes bytes of it; ``encode``'s first argument is the header's last word,
  host_ns for what a rank sends and qid for what it is sent;
* an IntEnum for every group of ENUM entries: ``ScopeKind.EVENT`` for ENUM(SCOPE, EVENT, 2).

Static types are in records.pyi, which ``python -m emu.contract.records`` prints and a test compares.
Standard library only: this module also runs inside ranks.
"""

from __future__ import annotations

import re
import struct
from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any

DEFINITION = Path(__file__).parent / "records.def"
MAX_NBYTES = 1 << 30
"""A longer record is a lost place in the stream, not a record."""

HEADER = struct.Struct("<HHIQ")
_PEEK = struct.Struct("<HHI").unpack_from
_FORMATS = {"u32": "I", "i32": "i", "u64": "Q", "i64": "q", "f64": "d"}
_ENTRY = re.compile(r"\b(RECORD_VERSION|STRUCT|UP|ASK|DOWN|ENUM)\(((?:[^()]|\([^()]*\))*)\)")
_FIELD = re.compile(r"F\((\w+), (\w+)\)")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


class RecordError(ValueError):
    """Bytes that are no record of this definition. ``before``: the records in front of them."""

    def __init__(self, message: str, before: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.before = before


@dataclass(frozen=True, slots=True)
class Entry:
    """One RECORD_VERSION, STRUCT, UP, ASK, DOWN or ENUM line of the definition."""

    macro: str
    name: str
    words: tuple[str, ...]
    fields: tuple[tuple[str, str], ...]
    """(type, name)"""
    has_payload: bool
    """The comment after the entry says ``payload:``."""


def parse(text: str) -> list[Entry]:
    """Entries in the definition's order. Raises RecordError for an unknown field type."""
    comments = [(found.start(), found.end()) for found in _COMMENT.finditer(text)]
    places = [
        found for found in _ENTRY.finditer(text) if not any(start <= found.start() < end for start, end in comments)
    ]
    entries = []
    for found, after in zip(places, [*places[1:], None], strict=True):
        fields = tuple(_FIELD.findall(found[2]))
        for kind, name in fields:
            if kind not in _FORMATS:
                raise RecordError(f"records.def: {name}: unknown type {kind}")
        words = tuple(word.strip() for word in _FIELD.sub("", found[2]).split(",") if word.strip())
        comment = text[found.end() : after.start() if after else len(text)]
        entries.append(Entry(found[1], words[0], words, fields, "payload:" in comment))
    return entries


def class_name(name: str) -> str:
    """NCCL_LAUNCH -> NcclLaunch"""
    return "".join(part.capitalize() for part in name.split("_"))


def _encode(kind: int, layout: struct.Struct, word: int, *fields: float, payload: bytes = b"", site: int = 0) -> bytes:
    """One whole record. The header counts the payload's padding too, so that a reader may just add nbytes."""
    padding = -len(payload) % 8
    nbytes = layout.size + len(payload) + padding
    return layout.pack(kind, site, nbytes, word, *fields) + payload + b"\0" * padding


def _record(entry: Entry, word: str) -> tuple[type[Any], struct.Struct]:
    layout = struct.Struct(HEADER.format + "".join(_FORMATS[kind] for kind, _ in entry.fields))
    fields = ["kind", "site", "nbytes", word, *(name for _, name in entry.fields), "payload"]
    base = namedtuple(class_name(entry.name), fields)  # type: ignore[misc]
    encode = staticmethod(partial(_encode, int(entry.words[1]), layout))
    return type(class_name(entry.name), (base,), {"__slots__": (), "encode": encode}), layout


def _part(entry: Entry) -> type[Any]:
    layout = struct.Struct("<" + "".join(_FORMATS[kind] for kind, _ in entry.fields))
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
_UP: dict[int, Decoder] = {}
_DOWN: dict[int, Decoder] = {}
NAMES: dict[int, str] = {}
"""Record number -> its name in the definition."""
REPLY_OF: dict[int, int] = {}
"""An ASK's number -> the number of the DOWN record that answers it."""
VERSION: int


def _build(entries: list[Entry], scope: dict[str, Any]) -> None:
    enums: dict[str, dict[str, int]] = {}
    for entry in entries:
        if entry.macro == "RECORD_VERSION":
            scope["VERSION"] = int(entry.name)
        elif entry.macro == "ENUM":
            enums.setdefault(entry.name, {})[entry.words[1]] = int(entry.words[2])
        elif entry.macro == "STRUCT":
            scope[class_name(entry.name)] = _part(entry)
        else:
            number = int(entry.words[1])
            if number in NAMES:
                raise RecordError(f"records.def: {entry.name} and {NAMES[number]} have the same number {number}")
            made, layout = _record(entry, "qid" if entry.macro == "DOWN" else "host_ns")
            decoder = (layout.unpack_from, layout.size, partial(tuple.__new__, made), entry.has_payload, entry.name)
            (_DOWN if entry.macro == "DOWN" else _UP)[number] = decoder
            NAMES[number] = entry.name
            scope[entry.name] = number
            scope[class_name(entry.name)] = made
    for entry in entries:
        if entry.macro == "ASK":
            REPLY_OF[int(entry.words[1])] = scope[entry.words[2]]
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


decode_up = partial(_decode, _UP)
decode_down = partial(_decode, _DOWN)

_build(parse(DEFINITION.read_text()), globals())


def stub() -> Iterator[str]:
    """Lines of records.pyi."""
    types = {"f64": "float"}
    entries = parse(DEFINITION.read_text())
    yield from ("# Printed by `python -m emu.contract.records`; do not edit.", "# ruff: noqa", "# fmt: off")
    yield "from collections.abc import Iterator"
    yield from ("from enum import IntEnum", "from pathlib import Path", "from typing import Any, Final, NamedTuple", "")
    yield from ("DEFINITION: Final[Path]", "MAX_NBYTES: Final[int]", "VERSION: Final[int]")
    yield from ("NAMES: Final[dict[int, str]]", "REPLY_OF: Final[dict[int, int]]", "")
    yield from ("class RecordError(ValueError):", "    before: tuple[Any, ...]")
    yield from ("    def __init__(self, message: str, before: tuple[Any, ...] = ...) -> None: ...", "")
    yield from ("def class_name(name: str) -> str: ...", "def stub() -> Iterator[str]: ...")
    numbered = [entry for entry in entries if entry.macro in ("UP", "ASK", "DOWN")]
    for macros, union in ((("UP", "ASK"), "Up"), (("DOWN",), "Down")):
        names = " | ".join(class_name(entry.name) for entry in numbered if entry.macro in macros)
        yield f"{union} = {names}"
        yield f"def decode_{union.lower()}(data: bytes) -> tuple[list[{union}], int]: ..."
    yield from (f"{entry.name}: Final = {entry.words[1]}" for entry in numbered)
    for entry in entries:
        if entry.macro in ("RECORD_VERSION", "ENUM"):
            continue
        word = {"STRUCT": "", "DOWN": "qid"}.get(entry.macro, "host_ns")
        arguments = [f"{name}: {types.get(kind, 'int')}" for kind, name in entry.fields]
        fields = arguments
        if word:
            fields = ["kind: int", "site: int", "nbytes: int", f"{word}: int", *arguments, "payload: bytes"]
            arguments = [f"{word}: int", *arguments, "*", "payload: bytes = ...", "site: int = ..."]
        yield from ("", f"class {class_name(entry.name)}(NamedTuple):")
        clash = "  # type: ignore[assignment]"
        yield from (f"    {field}{clash if field.startswith('count:') else ''}" for field in fields)
        yield from ("    @staticmethod", f"    def encode({', '.join(arguments)}) -> bytes: ...  # noqa: E501")
        if not word:
            yield from ("    @staticmethod", "    def size() -> int: ...", "    @classmethod")
            yield f"    def decode_all(cls, data: bytes, start: int, count: int) -> list[{class_name(entry.name)}]: ..."
    enums: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.macro == "ENUM":
            enums.setdefault(entry.name, []).append(entry)
    for name, values in enums.items():
        yield from ("", f"class {class_name(name)}Kind(IntEnum):")
        yield from (f"    {value.words[1]} = {value.words[2]}" for value in values)


if __name__ == "__main__":
    print("\n".join(stub()))
