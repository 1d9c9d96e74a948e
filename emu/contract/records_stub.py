"""Prints records.pyi, the static types of the classes that records.py builds: `python -m emu.contract.records_stub`."""

from __future__ import annotations

from collections.abc import Iterator

from .records_definition import ENTRIES, Entry, class_name

TYPES = {"f64": "float"}
"""Python types of fields' types that are not int."""


def stub() -> Iterator[str]:
    """Yields the lines of records.pyi."""
    yield from ("# Printed by `python -m emu.contract.records_stub`; do not edit.", "# ruff: noqa", "# fmt: off")
    yield from ("from enum import IntEnum", "from typing import Any, Final, NamedTuple", "")
    yield from ("from .records_definition import Entry, RecordError as RecordError", "")
    yield from ("MAX_NBYTES: Final[int]", "VERSION: Final[int]")
    yield from ("NAMES: Final[dict[int, str]]", "REPLY_OF: Final[dict[int, int]]", "")
    yield "WORDS: Final[dict[int, tuple[str, ...]]]"
    yield "ENTRY_OF: Final[dict[int, Entry]]"
    yield "def class_name(name: str) -> str: ..."
    yield "def marked(mark: str) -> frozenset[int]: ..."
    yield "def naming(what: str) -> dict[int, tuple[str, ...]]: ..."
    yield "def answer(question: int, qid: int, *values: int) -> bytes: ..."
    yield "def process_asking(answer: bytes) -> int: ..."
    yield "def nbytes_of(beginning: bytes | bytearray) -> int: ..."
    numbered = [entry for entry in ENTRIES if entry.is_record]
    for macros, union in ((("UP", "ASK"), "Up"), (("DOWN",), "Down")):
        yield f"{union} = {' | '.join(class_name(entry.name) for entry in numbered if entry.macro in macros)}"
        yield f"def decode_{union.lower()}(data: bytes) -> tuple[list[{union}], int]: ..."
    yield from (f"{entry.name}: Final = {entry.number}" for entry in numbered)
    for entry in ENTRIES:
        if entry.is_record or entry.macro == "STRUCT":
            yield from ("", *_class(entry))
    enums: dict[str, list[str]] = {}
    for entry in ENTRIES:
        if entry.macro == "ENUM":
            enums.setdefault(entry.name, []).append(" = ".join(entry.arguments))
    for name, values in enums.items():
        yield from ("", f"class {class_name(name)}Kind(IntEnum):")
        yield from (f"    {value}" for value in values)


def _class(entry: Entry) -> Iterator[str]:
    arguments = [f"{name}: {TYPES.get(kind, 'int')}" for kind, name in entry.fields]
    fields = arguments
    if entry.is_record:
        word = f"{'qid' if entry.macro == 'DOWN' else 'host_ns'}: int"
        fields = ["kind: int", "site: int", "nbytes: int", word, *arguments, "payload: bytes"]
        arguments = [word, *arguments, "*", "payload: bytes = ...", "site: int = ..."]
    yield f"class {class_name(entry.name)}(NamedTuple):"
    clash = "  # type: ignore[assignment]"  # with tuple.count
    yield from (f"    {field}{clash if field.startswith('count:') else ''}" for field in fields)
    yield from ("    @staticmethod", f"    def encode({', '.join(arguments)}) -> bytes: ...  # noqa: E501")
    if not entry.is_record:
        yield from ("    @staticmethod", "    def size() -> int: ...", "    @classmethod")
        yield f"    def decode_all(cls, data: bytes, start: int, count: int) -> list[{class_name(entry.name)}]: ..."


if __name__ == "__main__":
    print("\n".join(stub()))
