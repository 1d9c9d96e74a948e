"""Programs of Triton's compiler in its intermediate representation (TTIR): one operation a line, regions in braces.

Only what decides the work and its results is kept: an operation's name, operands, attributes and types. The text is
that of ``one_line``: locations are dropped, and it travels as one line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

LINE_END = "|"
"""The separator between the lines of a program."""
_LOCATION = re.compile(r"\s*loc\((?:[^()]|\([^()]*\))*\)")
_HEAD = re.compile(r"tt\.func public @(\S+?)\(.*\)\s*(?:->\s*\S+\s*)?(?:attributes\s*\{.*\})?\s*\{$")
_PARAMETER = re.compile(r"%([\w.]+):\s*(!?[\w.]+(?:<(?:[^<>]|<[^<>]*>)*>)?)")
_RESULTS = re.compile(r"^(%[\w.$#-]+(?::\d+)?(?:\s*,\s*%[\w.$#-]+(?::\d+)?)*)\s*=\s*(.*)$")
_NAME = re.compile(r'^"?([a-z_]+\.[\w.]+)"?')
_OPERAND = re.compile(r"%[\w.$-]+(?:#\d+)?")
_ARGUMENT = re.compile(r"(%[\w.$-]+):")
CARRIED = re.compile(r"(%[\w.$-]+) = (%[\w.$-]+(?:#\d+)?)")
"""A value that a loop carries: its name in the body, and its value in the first turn."""
LABEL = "cf.label"
"""Name of the operation that stands where a block of the function begins, to which branches lead; its results are the
block's arguments.
"""
_TYPE = re.compile(r"(?:tensor<((?:\d+x)*)(!tt\.ptr<\w+>|\w+)>|(!tt\.ptr<\w+>|\b(?:i|f|bf)\d+\b|f8E\w+))")
_POINTER = "!tt.ptr<"
_TYPED_BY_CLOSING = ("tt.reduce", "tt.scan")


class TtirError(ValueError):
    """A text that is no program."""


@dataclass(frozen=True, slots=True)
class Type:
    shape: tuple[int, ...]
    element: str
    """`i32`, `f32` ..., also of what a pointer points to."""
    is_pointer: bool


@dataclass(eq=False)
class Operation:
    name: str
    """Without quotes; the line's first word if it is no operation's name."""
    results: tuple[str, ...]
    operands: tuple[str, ...]
    head: str
    """The line that it begins with, but the results."""
    regions: list[list[Operation]] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    """The names of the arguments of its regions' blocks."""
    closings: list[str] = field(default_factory=list)
    """The line that ends each region."""

    @cached_property
    def text(self) -> str:
        """The whole operation but its results and what is in its regions: attributes and types are looked up in it."""
        return " ".join((self.head, *self.closings))

    @cached_property
    def types(self) -> tuple[Type, ...]:
        """The types at the end of the line as the operation prints them: of the operands, then of the results."""
        if self.closings and self.name in _TYPED_BY_CLOSING:
            return read_types(self.closings[-1])
        return read_types(self.head.rpartition(" : ")[2]) if " : " in self.head else ()


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    """Without %."""
    type: str

    @property
    def is_pointer(self) -> bool:
        return "!tt.ptr" in self.type


@dataclass(frozen=True, slots=True)
class Program:
    name: str
    parameters: tuple[Parameter, ...]
    body: tuple[Operation, ...]


def one_line(program: str) -> str:
    """The program as the compiler prints it, without locations and comments, as one line."""
    lines = (_LOCATION.sub("", line).strip() for line in program.replace(LINE_END, "/").replace(";", ",").splitlines())
    return LINE_END.join(line for line in lines if line and not line.startswith(("#", "//")))


def read_types(text: str) -> tuple[Type, ...]:
    found = []
    for dims, element, scalar in _TYPE.findall(text):
        name = element or scalar
        shape = tuple(int(n) for n in dims.split("x") if n)
        is_pointer = name.startswith(_POINTER)
        found.append(Type(shape, name[len(_POINTER) : -1] if is_pointer else name, is_pointer))
    return tuple(found)


def parameters_of(text: str) -> tuple[Parameter, ...]:
    """The parameters of the kernel, in order; none if the text has no public function."""
    head = next((line for line in text.split(LINE_END) if line.startswith("tt.func public")), "")
    return tuple(Parameter(*one) for one in _PARAMETER.findall(head))


def read_program(text: str) -> Program:
    """`text`: as ``one_line`` gives it. Raises TtirError for what is no program."""
    lines = [line for line in text.split(LINE_END) if line]
    for at, line in enumerate(lines):
        if head := _HEAD.match(line):
            body, _ = _block(lines, at + 1, None)
            return Program(head[1], parameters_of(line), tuple(body))
    raise TtirError("Triton program: no public function found")


def _block(lines: Sequence[str], at: int, arguments: list[str] | None) -> tuple[list[Operation], int]:
    """Operations up to the line that closes the block, and the index of that line. `arguments`: gets those of a region;
    None for the function's body, which alone may have several blocks.
    """
    found: list[Operation] = []
    while at < len(lines):
        line = lines[at]
        if line.startswith("}"):
            return found, at
        at += 1
        if line.startswith("^"):
            given = _ARGUMENT.findall(line)
            if arguments is None:
                found.append(Operation(LABEL, tuple(given), (), line))
            else:
                arguments += given
            continue
        operation = _operation(line)
        while line.endswith("{"):  # also `} else {`, `} do {`
            region, at = _block(lines, at, operation.arguments)
            operation.regions.append(region)
            line = lines[at] if at < len(lines) else "}"
            operation.closings.append(line)
            at += 1
        found.append(operation)
    return found, at


def _operation(line: str) -> Operation:
    results: tuple[str, ...] = ()
    if given := _RESULTS.match(line):
        results, line = names_of(given[1]), given[2]
    named = _NAME.match(line)
    return Operation(named[1] if named else line.split(" ", 1)[0], results, tuple(_OPERAND.findall(line)), line)


def names_of(results: str) -> tuple[str, ...]:
    """The names of an operation's results: `%a:2` gives %a#0 and %a#1."""
    names: list[str] = []
    for one in results.split(","):
        name, _, count = one.strip().partition(":")
        names += [f"{name}#{index}" for index in range(int(count))] if count else [name]
    return tuple(names)
