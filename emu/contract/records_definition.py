"""Reads records.def, the one definition of the records between a rank and the coordinator.

Standard library only, and quick: ranks read it too, to compare versions with the hook library.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..formats import c_lists

DEFINITION = Path(__file__).parent / "records.def"
NUMBERS = {
    "rank_number": "u32",
    "server_number": "u32",
    "stream_number": "u32",
    "device_number": "u32",
    "scoped_number": "u32",
    "recording_number": "u64",
    "comm_number": "u64",
    "peer_number": "i32",
}
"""Types of fields that are numbers of something, and how they are laid out."""
_FORMATS = {"u32": "I", "i32": "i", "u64": "Q", "i64": "q", "f64": "d"}
FIELD_FORMATS = _FORMATS | {kind: _FORMATS[base] for kind, base in NUMBERS.items()}
"""Types of fields, and what `struct` calls them."""

_MACROS = ("RECORD_VERSION", "STRUCT", "UP", "ASK", "DOWN", "WORDS", "ENUM")
_FIELD = re.compile(r"F\((\w+), (\w+)\)")
_PAYLOAD = {"PAYLOAD": True, "NO_PAYLOAD": False}
_ROW = re.compile(r"ROW\((.+?)\)")
ROW_NUMBERS = (
    "number_of_kernel",
    "calls_of_kernel",
    "number_of_creation",
    "number_of_second_creation",
    "creations_of_step",
    "waits_in_step",
    "further_steps",
    "number_of_totals",
    "number_of_text",
)
"""Values of rows that are no fields of records: virtual time and recordings number in their own ways what rows cannot
hold.
"""
_USES = ("ROW", "HOST_TIME", "BESIDE")
_MARKS = frozenset(
    {*_USES, "REPORT", "STEP", "LIVE", "ONCE", "ROLE", "TEXT", "OWN", "POLL", "PROMISED", "GOES_ON", "PROCESS"}
)


class RecordError(ValueError):
    """Raised for bytes that are no record of this definition, or a definition that cannot be read. ``before``: the
    records in front of the faulty bytes.
    """

    def __init__(self, message: str, before: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.before = before


@dataclass(frozen=True, slots=True)
class Entry:
    """One RECORD_VERSION, STRUCT, UP, ASK, DOWN, WORDS or ENUM of the definition."""

    macro: str
    name: str
    """The record's name; for RECORD_VERSION the number."""
    arguments: tuple[str, ...]
    """The arguments between the name and the fields."""
    fields: tuple[tuple[str, str], ...]
    """The fields, each as (type, name)."""

    @property
    def is_record(self) -> bool:
        return self.macro in ("UP", "ASK", "DOWN")

    @property
    def number(self) -> int:
        """The number of a record, which its header has in ``kind``."""
        return int(self.arguments[0])

    @property
    def has_payload(self) -> bool:
        """True if bytes may follow the fields of this record."""
        return _PAYLOAD[self.arguments[1]]

    @property
    def marks(self) -> frozenset[str]:
        """The words that say how this UP or ASK is used."""
        return frozenset(_ROW.sub("ROW", self.arguments[2]).split())

    @property
    def row(self) -> tuple[str, ...]:
        """The contents of the record's row: the field of the stream, or "0", then fields or ROW_NUMBERS as its values.
        Empty if there is no row.
        """
        found = _ROW.search(self.arguments[2])
        return tuple(found[1].split(", ")) if found is not None else ()

    @property
    def reply(self) -> str:
        """The name of the DOWN record that answers this ASK."""
        return self.arguments[3]


def parse(text: str) -> list[Entry]:
    """Returns the entries in the definition's order. Raises RecordError for a malformed one and for a number given
    twice, ListError for one that does not end.
    """
    entries = []
    names: dict[int, str] = {}
    for macro, (name, *parts) in c_lists.entries(text, *_MACROS):
        arguments = tuple(part for part in parts if not _FIELD.search(part))
        entry = Entry(macro, name, arguments, tuple(_FIELD.findall(" ".join(parts))))
        for kind, field in entry.fields:
            if kind not in FIELD_FORMATS:
                raise RecordError(f"records.def: {name}: {field}: unknown type {kind}")
        if entry.is_record:
            if len(arguments) < 2 or arguments[1] not in _PAYLOAD:
                raise RecordError(f"records.def: {name}: expected PAYLOAD or NO_PAYLOAD after the number")
            if macro != "DOWN":
                _check_use(entry)
            other = names.setdefault(entry.number, name)
            if other != name:
                raise RecordError(f"records.def: {name} and {other} have the same number {entry.number}")
        entries.append(entry)
    return entries


def _check_use(entry: Entry) -> None:
    """Raises RecordError if the entry does not say how virtual time uses the record."""
    if len(entry.arguments) < 3 or not entry.marks <= _MARKS or len(entry.marks.intersection(_USES)) != 1:
        raise RecordError(f"records.def: {entry.name}: expected one of {', '.join(_USES)} after the payload")
    unknown = {*entry.row} - {"0", *ROW_NUMBERS, *(name for _, name in entry.fields)}
    if unknown:
        raise RecordError(f"records.def: {entry.name}: its row has {min(unknown)}, which is no field")


ENTRIES = parse(DEFINITION.read_text())
VERSION = next(int(entry.name) for entry in ENTRIES if entry.macro == "RECORD_VERSION")
"""A hook library and a coordinator of different versions refuse each other."""


def class_name(name: str) -> str:
    """Returns the name of a record's class: NcclLaunch for NCCL_LAUNCH."""
    return "".join(part.capitalize() for part in name.split("_"))
