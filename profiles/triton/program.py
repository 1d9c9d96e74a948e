"""Reads the text of Triton's intermediate representation: one operation a line, regions in braces.

Only what decides the work is kept: an operation's name, operands, attributes and types. Locations are dropped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from profiles.errors import ProfileError

LINE_END = "|"
_RESULTS = re.compile(r"^(%[\w.#]+(?::\d+)?(?:\s*,\s*%[\w.#]+(?::\d+)?)*)\s*=\s*(.*)$")
_NAME = re.compile(r'^"?([a-z_]+\.[\w.]+)"?')
_OPERAND = re.compile(r"%[\w.]+(?:#\d+)?")


@dataclass(slots=True)
class Operation:
    name: str
    results: tuple[str, ...]
    operands: tuple[str, ...]
    text: str
    """The whole line but the results: attributes and types are looked up in it."""
    regions: list[list[Operation]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Argument:
    name: str
    type: str

    @property
    def is_pointer(self) -> bool:
        return "!tt.ptr" in self.type


@dataclass(frozen=True, slots=True)
class Program:
    name: str
    arguments: tuple[Argument, ...]
    body: tuple[Operation, ...]


@lru_cache(maxsize=512)
def read_program(text: str) -> Program:
    """`text`: TTIR without locations, its lines separated by LINE_END. Raises ProfileError for what is no program."""
    lines = [line for line in text.split(LINE_END) if line]
    for at, line in enumerate(lines):
        if found := re.match(r"tt\.func public @(\S+?)\((.*)\)\s*(?:->\s*\S+\s*)?(?:attributes\s*\{.*\})?\s*\{$", line):
            arguments = re.findall(r"%([\w.]+):\s*((?:!tt\.\w+<(?:[^<>]|<[^<>]*>)*>|[\w]+))", found[2])
            body, _ = _block(lines, at + 1)
            return Program(found[1], tuple(Argument(*one) for one in arguments), tuple(body))
    raise ProfileError("Triton program: no public function found")


def _block(lines: list[str], at: int) -> tuple[list[Operation], int]:
    """Operations up to the line that closes the block; the index of that line."""
    found: list[Operation] = []
    while at < len(lines):
        line = lines[at]
        if line.startswith("}"):
            return found, at
        if line.startswith("^"):
            at += 1
            continue
        operation = _operation(line)
        at += 1
        if line.endswith("{"):
            while True:
                region, at = _block(lines, at)
                operation.regions.append(region)
                closing = lines[at] if at < len(lines) else "}"
                operation.text += " " + closing
                at += 1
                if not closing.endswith("{"):  # `} else {`, `} do {`
                    break
        found.append(operation)
    return found, at


def _operation(line: str) -> Operation:
    results: list[str] = []
    if given := _RESULTS.match(line):
        for one in given[1].split(","):
            name, _, count = one.strip().partition(":")
            results += [f"{name}#{index}" for index in range(int(count))] if count else [name]
        line = given[2]
    name = _NAME.match(line)
    operands = tuple(_OPERAND.findall(line))
    return Operation(name[1] if name else line.split(" ", 1)[0], tuple(results), operands, line)
