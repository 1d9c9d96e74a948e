"""Reads signature.def, the definition that the hook library compiles."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from profiles.errors import ProfileError

PATH = Path(__file__).resolve().parents[2] / "emu" / "contract" / "signature.def"
"""Read as a file, since profiles imports no part of emu. Both packages are installed side by side."""
BASIC_TYPES = ("text", "op", "sizes", "u64", "bool", "grid", "dims", "dims3", "dims4", "dtype")
OTHER = "other"
"""What the hook writes for a number that it knows no dtype, word or flag for."""

_NOT_CODE = re.compile(r"/\*.*?\*/|^#.*?$", re.DOTALL | re.MULTILINE)
_ENTRY = re.compile(r"\b(DTYPE|WORDS|OPEN_WORDS|FLAGS|SIGNATURE)\(((?:[^()]|\([^()]*\))*)\)")
_WORD = re.compile(r"\bW\((\w+), (\d+), (\w+)\)")
_FIELD = re.compile(r"\b(FAMILY|FIELD)\((\w+), (\w+)\)")


@dataclass(frozen=True, slots=True)
class Dtype:
    nbits: int
    cuda: int | None
    """cudaDataType_t"""
    cudnn: int | None
    """cudnnDataType_t"""


@dataclass(frozen=True, slots=True)
class WordSet:
    macro: str
    """WORDS, OPEN_WORDS or FLAGS"""
    numbers: Mapping[str, int]
    """By the word's text."""


@dataclass(frozen=True, slots=True)
class Field:
    type: str
    """One of BASIC_TYPES, or a set of words."""
    name: str
    names_family: bool


@dataclass(frozen=True, slots=True)
class Kind:
    about: str
    fields: tuple[Field, ...]
    """In the order of the text."""


@dataclass(frozen=True, slots=True)
class Definition:
    dtypes: Mapping[str, Dtype]
    words: Mapping[str, WordSet]
    kinds: Mapping[str, Kind]


def read_definition(text: str) -> Definition:
    """Raises ProfileError for an entry that this reader does not understand."""
    dtypes: dict[str, Dtype] = {}
    words: dict[str, WordSet] = {}
    kinds: dict[str, Kind] = {}
    for macro, body in _ENTRY.findall(_NOT_CODE.sub("", text)):
        if macro == "DTYPE":
            _, name, nbits, *numbers = (part.strip() for part in body.split(","))
            cuda, cudnn = (int(number) if int(number) >= 0 else None for number in numbers)
            dtypes[name] = Dtype(int(nbits), cuda, cudnn)
        elif macro == "SIGNATURE":
            name, kind = _kind(body, words)
            kinds[name] = kind
        else:
            words[body.partition(",")[0].strip()] = WordSet(
                macro, {text: int(number) for _, number, text in _WORD.findall(body)}
            )
    return Definition(dtypes, words, kinds)


def _kind(body: str, words: Mapping[str, WordSet]) -> tuple[str, Kind]:
    head = re.match(r'\s*(\w+), "([^"]*)",', body)
    if head is None:
        raise ProfileError(f'{PATH}: SIGNATURE({body[:40]}...): expected a kind and its "description"')
    fields = tuple(Field(kind, name, macro == "FAMILY") for macro, kind, name in _FIELD.findall(body))
    for field in fields:
        if field.type not in BASIC_TYPES and field.type not in words:
            raise ProfileError(f"{PATH}: {head[1]}: {field.name}: unknown type {field.type!r}")
    return head[1], Kind(head[2], fields)


DEFINITION = read_definition(PATH.read_text(encoding="utf-8"))


def table() -> Iterator[str]:
    """The kinds as a table of docs/data/signatures.md. `python -m profiles.signature` prints it."""
    yield "| kind | what it is | fields in order; those in bold name the family |"
    yield "| --- | --- | --- |"
    for name, kind in DEFINITION.kinds.items():
        fields = (f"**{field.name}**" if field.names_family else field.name for field in kind.fields)
        yield f"| `{name}` | {kind.about} | {'; '.join(fields)} |"
