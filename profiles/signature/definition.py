"""Reads signature.def, the definition that the hook library compiles."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from formats.c_lists import entries
from profiles.errors import ProfileError

PATH = Path(__file__).resolve().parents[2] / "emu" / "contract" / "signature.def"
"""The definition's file. It is read as a file, since profiles imports no part of emu. Both packages are installed side
by side.
"""
BASIC_TYPES = ("text", "op", "sizes", "u64", "bool", "grid", "dims", "dims3", "dims4", "dtype")
OTHER = "other"
"""The word that the hook writes for a number for which it knows no dtype, word or flag."""

_WORD = re.compile(r"\bW\((\w+), (\d+), (\w+)\)")
_FIELD = re.compile(r"\b(FAMILY|FIELD)\((\w+), (\w+)\)")


@dataclass(frozen=True, slots=True)
class Dtype:
    nbits: int
    cuda: int | None
    """The value of cudaDataType_t."""
    cudnn: int | None
    """The value of cudnnDataType_t."""


@dataclass(frozen=True, slots=True)
class WordSet:
    macro: str
    """The kind of set: WORDS, OPEN_WORDS or FLAGS."""
    numbers: Mapping[str, int]
    """The numbers by the word's text."""


@dataclass(frozen=True, slots=True)
class Field:
    type: str
    """The field's type: one of BASIC_TYPES, or a set of words."""
    name: str
    names_family: bool


@dataclass(frozen=True, slots=True)
class Kind:
    about: str
    fields: tuple[Field, ...]
    """The fields in the order of the text."""


@dataclass(frozen=True, slots=True)
class Definition:
    dtypes: Mapping[str, Dtype]
    words: Mapping[str, WordSet]
    kinds: Mapping[str, Kind]


def read_definition(text: str) -> Definition:
    """Reads the definition. Raises ProfileError for an unknown type, ListError for an entry that does not end."""
    dtypes: dict[str, Dtype] = {}
    words: dict[str, WordSet] = {}
    kinds: dict[str, Kind] = {}
    for macro, arguments in entries(text, "DTYPE", "WORDS", "OPEN_WORDS", "FLAGS", "SIGNATURE"):
        if macro == "DTYPE":
            _, name, nbits, *numbers = arguments
            cuda, cudnn = (int(number) if int(number) >= 0 else None for number in numbers)
            dtypes[name] = Dtype(int(nbits), cuda, cudnn)
        elif macro == "SIGNATURE":
            name, about, *parts = arguments
            kinds[name] = Kind(about, _fields(name, " ".join(parts), words))
        else:
            name, *parts = arguments
            words[name] = WordSet(macro, {text: int(number) for _, number, text in _WORD.findall(" ".join(parts))})
    return Definition(dtypes, words, kinds)


def _fields(kind: str, text: str, words: Mapping[str, WordSet]) -> tuple[Field, ...]:
    fields = tuple(Field(type_, name, macro == "FAMILY") for macro, type_, name in _FIELD.findall(text))
    for field in fields:
        if field.type not in BASIC_TYPES and field.type not in words:
            raise ProfileError(f"{PATH}: {kind}: {field.name}: unknown type {field.type!r}")
    return fields


DEFINITION = read_definition(PATH.read_text(encoding="utf-8"))


def table() -> Iterator[str]:
    """The kinds as a table of docs/data/signatures.md. `python -m profiles.signature` prints it."""
    yield "| kind | what it is | fields in order; those in bold name the family |"
    yield "| --- | --- | --- |"
    for name, kind in DEFINITION.kinds.items():
        fields = (f"**{field.name}**" if field.names_family else field.name for field in kind.fields)
        yield f"| `{name}` | {kind.about} | {'; '.join(fields)} |"
