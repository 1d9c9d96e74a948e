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
FIELD_FORMATS = {"u32": "I", "i32": "i", "u64": "Q", "i64": "q", "f64": "d"}
"""Types of fields, and what `struct` calls them."""

_MACROS = ("RECORD_VERSION", "STRUCT", "UP", "ASK", "DOWN", "ENUM")
_FIELD = re.compile(r"F\((\w+), (\w+)\)")
_PAYLOAD = {"PAYLOAD": True, "NO_PAYLOAD": False}


class RecordError(ValueError):
    """Raised for bytes that are no record of this definition, or a definition that cannot be read. ``before``: the
    records in front of the faulty bytes.
    """

    def __init__(self, message: str, before: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.before = before


@dataclass(frozen=True, slots=True)
class Entry:
    """One RECORD_VERSION, STRUCT, UP, ASK, DOWN or ENUM of the definition."""

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
    def reply(self) -> str:
        """The name of the DOWN record that answers this ASK."""
        return self.arguments[2]


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
            other = names.setdefault(entry.number, name)
            if other != name:
                raise RecordError(f"records.def: {name} and {other} have the same number {entry.number}")
        entries.append(entry)
    return entries


ENTRIES = parse(DEFINITION.read_text())
VERSION = next(int(entry.name) for entry in ENTRIES if entry.macro == "RECORD_VERSION")
"""A hook library and a coordinator of different versions refuse each other."""


def class_name(name: str) -> str:
    """Returns the name of a record's class: NcclLaunch for NCCL_LAUNCH."""
    return "".join(part.capitalize() for part in name.split("_"))
