"""Reads a Triton program (TTIR, one operation a line, as emu.interpreter.triton_programs writes it).

It says whether the program stores integers that follow from integers alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

LINE_END = "|"
INTEGERS = frozenset(("i1", "i8", "i16", "i32", "i64"))
_RESULTS = re.compile(r"^(%[\w.#]+(?::\d+)?(?:\s*,\s*%[\w.#]+(?::\d+)?)*)\s*=\s*(.*)$")
_NAME = re.compile(r'^"?([a-z_]+\.[\w.]+)"?')
_OPERAND = re.compile(r"%[\w.]+(?:#\d+)?")
_TYPE = re.compile(r"(?:tensor<((?:\d+x)*)(!tt\.ptr<\w+>|\w+)>|(!tt\.ptr<\w+>|\b(?:i|f|bf)\d+\b|f8E\w+))")
_HEAD = re.compile(r"tt\.func public @(\S+?)\((.*)\)\s*(?:->\s*\S+\s*)?(?:attributes\s*\{.*\})?\s*\{$")


class NotEvaluated(Exception):
    """The program does what is not evaluated here: what it stores is unknown."""


@dataclass(frozen=True, slots=True)
class Type:
    shape: tuple[int, ...]
    element: str
    """`i32`, `f32` ..., also of what a pointer points to."""
    is_pointer: bool


@dataclass(slots=True)
class Operation:
    name: str
    results: tuple[str, ...]
    operands: tuple[str, ...]
    text: str
    types: tuple[Type, ...]
    """Those that the line ends with: of operands, then of results, as its operation prints them."""
    regions: list[list[Operation]] = field(default_factory=list)
    arguments: tuple[str, ...] = ()
    """Of its regions: what they begin with."""


@dataclass(frozen=True, slots=True)
class Program:
    parameters: tuple[tuple[str, Type], ...]
    body: tuple[Operation, ...]


def read_types(text: str) -> tuple[Type, ...]:
    found = []
    for dims, element, scalar in _TYPE.findall(text):
        name = element or scalar
        shape = tuple(int(n) for n in dims.split("x") if n)
        pointed = name.startswith("!tt.ptr<")
        found.append(Type(shape, name[8:-1] if pointed else name, pointed))
    return tuple(found)


def read_program(text: str) -> Program:
    """Raises NotEvaluated."""
    lines = [line for line in text.split(LINE_END) if line]
    for at, line in enumerate(lines):
        if found := _HEAD.match(line):
            parameters = re.findall(r"%([\w.]+):\s*(!tt\.ptr<\w+>|\w+)", found[2])
            if len(parameters) != found[2].count("%"):
                raise NotEvaluated("a parameter of another type")
            body, _ = _block(lines, at + 1, [])
            return Program(tuple((f"%{name}", read_types(kind)[0]) for name, kind in parameters), tuple(body))
    raise NotEvaluated("no public function")


def _block(lines: Sequence[str], at: int, arguments: list[str]) -> tuple[list[Operation], int]:
    """Operations up to the line that closes the block, and the index of that line."""
    found: list[Operation] = []
    while at < len(lines):
        line = lines[at]
        if line.startswith("}"):
            return found, at
        at += 1
        if line.startswith("^"):
            arguments += re.findall(r"(%[\w.]+):", line)
            continue
        operation = _operation(line)
        if line.endswith("{"):
            inner: list[str] = []
            while True:
                region, at = _block(lines, at, inner)
                operation.regions.append(region)
                closing = lines[at] if at < len(lines) else "}"
                at += 1
                if not closing.endswith("{"):  # `} else {`
                    break
            if operation.name in ("tt.reduce", "tt.scan"):
                operation.types = read_types(closing)
            operation.arguments = tuple(inner)
        found.append(operation)
    return found, at


def _operation(line: str) -> Operation:
    results: list[str] = []
    if given := _RESULTS.match(line):
        for one in given[1].split(","):
            name, _, count = one.strip().partition(":")
            results += [f"{name}#{index}" for index in range(int(count))] if count else [name]
        line = given[2]
    named = _NAME.match(line)
    types = read_types(line.rpartition(" : ")[2]) if " : " in line else ()
    return Operation(named[1] if named else "", tuple(results), tuple(_OPERAND.findall(line)), line, types)


# ---- what is worth evaluating ---------------------------------------------------------------------------------------


def stores_integers(program: Program, evaluated: frozenset[str]) -> bool:
    """Does it store an integer that follows from integers, by operations of `evaluated` alone?"""
    return any(_integer_stores(program.body, set(), evaluated))


def _integer_stores(body: Sequence[Operation], unknown: set[str], evaluated: frozenset[str]) -> Iterator[bool]:
    for operation in body:
        name = operation.name
        if name == "tt.store":
            stored = operation.types[0].element if operation.types else ""
            yield stored in INTEGERS and not unknown.intersection(operation.operands)
            continue
        inner = [*operation.regions]
        if name in ("scf.for", "scf.if"):
            for region in inner:
                yield from _integer_stores(region, unknown, evaluated)
                yielded = region[-1].operands if region and region[-1].name == "scf.yield" else ()
                for result, value in zip(operation.results, yielded, strict=False):
                    if value in unknown:
                        unknown.add(result)
            if name == "scf.for":
                continue
        loads_float = name == "tt.load" and (not operation.types or operation.types[0].element not in INTEGERS)
        if loads_float or name not in evaluated or unknown.intersection(operation.operands):
            unknown.update(operation.results)
