"""Reads and writes tables of measured times: text files, also compressed by gzip.

The first line is `phantora-kernel-times 2`. Then come origins, one a line: the word `origin`, and a JSON object of
texts that says where and how times were measured. Then come times, one signature a line, with tabs between: number of
the origin, from 0; on how many executions the times rest; duration alone on the GPU in ns; duration beside a resident
NCCL kernel in ns, or `-`; the signature, in canonical form (`keys.canonical`). Durations are means at the GPU's full
clock. Empty lines and lines that start with `#` are skipped. A signature is in a file once.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from formats.files import read_text
from profiles.errors import ProfileError
from profiles.signature import parse
from profiles.timings.keys import key_of

HEADER = "phantora-kernel-times 2"
MOST_TABLE_NBYTES = 64 << 20
"""The largest table in bytes, some 280,000 signatures."""
ORIGIN = "origin "
Origin = Mapping[str, str]
"""The origin of times, as far as it is known: `gpu`, `driver`, `torch`, `cuda`, `date`, `command` ..."""


@dataclass(frozen=True, slots=True)
class Measured:
    signature: str
    """The signature; in a table its canonical text."""
    solo_ns: int
    """The ns alone on the GPU, at its full clock."""
    contended_ns: int | None
    """The ns beside a resident NCCL kernel; None: not measured."""
    executions: int
    origin: int
    """The number of the origin in ``Table.origins``."""


@dataclass(slots=True)
class Table:
    origins: list[Origin] = field(default_factory=list)
    times: MutableMapping[str, Measured] = field(default_factory=dict)
    """The times by the signature's canonical text (``keys.key_of``)."""

    def add(self, origin: Origin, times: Iterable[Measured]) -> None:
        """Adds times of one origin, whatever origin they name; they replace earlier ones. Raises ProfileError for an
        invalid signature.
        """
        number = len(self.origins)
        self.origins.append(origin)
        for measured in times:
            key = key_of(parse(measured.signature))
            self.times[key] = replace(measured, signature=key, origin=number)


class _Lines(MutableMapping[str, Measured]):
    """The times of a table that is known to be right. A line is parsed when its time is asked for, since a run asks for
    few of them.
    """

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        """The lines without their signatures, by signature."""

    def __getitem__(self, key: str) -> Measured:
        origin, executions, solo_ns, beside_ns = self._values[key].split("\t")
        return Measured(key, int(solo_ns), None if beside_ns == "-" else int(beside_ns), int(executions), int(origin))

    def __setitem__(self, key: str, measured: Measured) -> None:
        self._values[key] = _values(measured)

    def __delitem__(self, key: str) -> None:
        del self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def add(self, line: str) -> None:
        values, _, key = line.rpartition("\t")
        self._values[key] = values


def merged(tables: Iterable[Table]) -> Table:
    """Joins tables into one: of two times for the same work the later table's is taken. Origins without times are left
    out.
    """
    times: dict[str, tuple[Origin, Measured]] = {}
    for table in tables:
        times |= {key: (table.origins[one.origin], one) for key, one in table.times.items()}
    made, numbers = Table(), dict[int, int]()
    for key, (origin, one) in times.items():
        if id(origin) not in numbers:
            numbers[id(origin)] = len(made.origins)
            made.origins.append(origin)
        made.times[key] = replace(one, origin=numbers[id(origin)])
    return made


def load_table(path: str | os.PathLike[str], trusted: bool = False) -> Table:
    """Reads a table. Raises ProfileError naming file and line for anything malformed, cut short or given twice.
    `trusted`: the file is known to be right; its times are not checked, which is many times as fast.
    """
    path = Path(path)
    text = read_text(path, MOST_TABLE_NBYTES, ProfileError)
    if trusted:
        return _trusted(str(path), text)
    lines = text.splitlines(keepends=True)
    if not lines or lines[0].strip() != HEADER:
        raise ProfileError(f"{path}:1: expected the line {HEADER!r}")
    table = Table()
    for number, line in enumerate(lines[1:], start=2):
        where = f"{path}:{number}"
        if not line.strip() or line.startswith("#"):
            continue
        if not line.endswith("\n"):
            raise ProfileError(f"{where}: the file ends within a line")
        if line.startswith(ORIGIN):
            table.origins.append(_origin(where, line.removeprefix(ORIGIN)))
            continue
        measured = _entry(where, line, len(table.origins))
        if measured.signature in table.times:
            raise ProfileError(f"{where}: signature given twice")
        table.times[measured.signature] = measured
    return table


def save_table(path: str | os.PathLike[str], table: Table) -> None:
    """Replaces the file as a whole, or not at all. Raises OSError."""
    path = Path(path)
    lines = [HEADER, *(f"{ORIGIN}{json.dumps(dict(origin), sort_keys=True)}" for origin in table.origins)]
    for one in sorted(table.times.values(), key=lambda one: one.signature):
        lines.append(f"{_values(one)}\t{one.signature}")
    content = "".join(f"{line}\n" for line in lines).encode()
    if path.suffix == ".gz":
        content = gzip.compress(content, mtime=0)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _values(one: Measured) -> str:
    """The line of a time without its signature."""
    beside = "-" if one.contended_ns is None else one.contended_ns
    return f"{one.origin}\t{one.executions}\t{one.solo_ns}\t{beside}"


def _trusted(path: str, text: str) -> Table:
    origins, times = list[Origin](), _Lines()
    for number, line in enumerate(text.splitlines()[1:], start=2):
        if line.startswith(ORIGIN):
            origins.append(_origin(f"{path}:{number}", line.removeprefix(ORIGIN)))
        elif line and not line.startswith("#"):
            times.add(line)
    return Table(origins, times)


def _origin(where: str, text: str) -> Origin:
    try:
        origin = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProfileError(f"{where}: origin: {error}") from None
    if not isinstance(origin, dict) or not all(isinstance(value, str) for value in origin.values()):
        raise ProfileError(f"{where}: origin: expected a JSON object of texts")
    return origin


def _entry(where: str, line: str, origins: int) -> Measured:
    parts = line.rstrip("\n").split("\t", 4)
    if len(parts) != 5:
        raise ProfileError(f"{where}: expected origin, executions, ns alone, ns beside NCCL or '-', and a signature")
    origin, executions, solo_ns = (_whole(where, one) for one in parts[:3])
    contended_ns = None if parts[3] == "-" else _whole(where, parts[3])
    if origin >= origins:
        raise ProfileError(f"{where}: origin {origin}: only {origins} are given before")
    if not executions or not solo_ns:
        raise ProfileError(f"{where}: expected executions and ns alone to be positive")
    if contended_ns is not None and contended_ns < solo_ns:
        raise ProfileError(f"{where}: {contended_ns} ns beside NCCL is less than {solo_ns} ns alone")
    try:
        key = key_of(parse(parts[4]))
    except ProfileError as error:
        raise ProfileError(f"{where}: signature {parts[4][:200]!r}: {error}") from None
    return Measured(key, solo_ns, contended_ns, executions, origin)


def _whole(where: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise ProfileError(f"{where}: expected an integer, found {text[:60]!r}")
    return int(text)
