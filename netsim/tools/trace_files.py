"""Reads flow traces from CSV or JSON. Errors name file, line and field.

CSV: a header ``src,dst,bytes,start_ns`` (and optionally ``key``), then one flow a line. JSON: a list, or an object with

    "flows":       [{"src": .., "dst": .., "bytes": .., "start_ns": .., "key": ..}]
    "collectives": [{"op": "all_reduce", "bytes": .., "members": [..], "start_ns": .., "root": 0, "key": ..}]
    "faults":      [{"link": "leaf0:up1", "at_ns": .., "gbps": 0}, {"link": .., "at_ns": .., "latency_ns": ..}]

Endpoints are numbers or names (``node000/gpu3``). Keys must differ; without one, a flow's number is its key.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from formats.files import MOST_DATA_NBYTES, read_text
from formats.json_lines import line_of, parse
from formats.values import shown
from netsim.collectives import OPERATIONS
from netsim.errors import SpecError, TopologyError
from netsim.fields import FieldError, SpecTable
from netsim.tools.trace import Collective, Fault, FlowTrace, Send
from netsim.topology import Topology
from netsim.units import MAX_BYTES, MAX_GBPS, MAX_LATENCY_NS, MAX_NS, MIN_GBPS

REQUIRED = ("src", "dst", "bytes")
COLUMNS = (*REQUIRED, "start_ns", "key")


def read(path: Path, topology: Topology) -> FlowTrace:
    """A trace from a ``.csv`` or ``.json`` file. Raises SpecError."""
    text = read_text(path, MOST_DATA_NBYTES, SpecError)
    if path.suffix.lower() == ".csv":
        rows, numbers = _csv_rows(text, path)
        return _Reader(path, topology, lambda field: numbers[_path(field)[1]]).read({"flows": rows})
    data = parse(text, path, SpecError)
    if isinstance(data, list):
        return _Reader(path, topology, lambda field: line_of(text, _path(field)[1:])).read({"flows": data})
    return _Reader(path, topology, lambda field: line_of(text, _path(field))).read(data)


def _path(field: str) -> list[Any]:
    """The place that a text names: ``flows[3].bytes`` -> ["flows", 3, "bytes"]."""
    return [int(step) if step.isdecimal() else step for step in re.findall(r"[^.\[\]]+", field)]


def _csv_rows(text: str, path: Path) -> tuple[list[dict[str, Any]], list[int]]:
    """The flows as they would stand in JSON, and the line of each."""
    reader = csv.reader(text.removeprefix("\ufeff").splitlines(), strict=True)
    rows: list[dict[str, Any]] = []
    numbers: list[int] = []
    header: list[str] | None = None
    try:
        for fields in reader:
            cells = [cell.strip() for cell in fields]
            if not any(cells):
                continue
            if header is None:
                header = _checked_header(cells, f"{path}:{reader.line_num}")
                continue
            if len(cells) != len(header):
                raise SpecError(f"{path}:{reader.line_num}: expected {len(header)} fields, found {len(cells)}")
            rows.append({name: _cell(cell) for name, cell in zip(header, cells, strict=True)})
            numbers.append(reader.line_num)
    except csv.Error as error:
        raise SpecError(f"{path}:{reader.line_num}: not CSV: {error}") from None
    if header is None:
        raise SpecError(f"{path}:1: empty; the first line names the fields: {','.join(COLUMNS)}")
    return rows, numbers


def _checked_header(names: list[str], where: str) -> list[str]:
    allowed = f"the first line names the fields: {','.join(REQUIRED)}, and start_ns, key if wanted"
    for name in names:
        if name not in COLUMNS:
            raise SpecError(f"{where}: unknown field {shown(name)}; {allowed}")
        if names.count(name) > 1:
            raise SpecError(f"{where}: {name} is there twice; {allowed}")
    for name in REQUIRED:
        if name not in names:
            raise SpecError(f"{where}: {name} is missing; {allowed}")
    return names


def _cell(text: str) -> int | str:
    """A whole number where the text is one. Keys and names of endpoints may be other text."""
    return int(text) if re.fullmatch(r"-?[0-9]{1,300}", text) else text


class _Reader:
    """Makes a trace of tables. `line` finds the line of a field in the file."""

    def __init__(self, path: Path, topology: Topology, line: Callable[[str], int]) -> None:
        self._path = path
        self._topology = topology
        self._endpoints = {name: i for i, name in enumerate(topology.endpoints)}
        self._line = line
        self._keys: dict[str, str] = {}
        """The keys in use, and the entry of each."""

    def read(self, data: object) -> FlowTrace:
        if not isinstance(data, dict):
            raise SpecError(f"{self._path}:1: expected a list of flows, or an object with flows, found {shown(data)}")
        root = SpecTable(data)
        try:
            sends = tuple(self._send(number, table) for number, table in enumerate(root.tables("flows")))
            calls = enumerate(root.tables("collectives"), start=len(sends))
            collectives = tuple(self._collective(number, table) for number, table in calls)
            faults = tuple(self._fault(table) for table in root.tables("faults"))
            root.end()
        except FieldError as error:
            raise SpecError(f"{self._path}:{self._line(error.field)}: {error}") from None
        return FlowTrace(sends, collectives, faults, lambda entry: f"{self._path}:{self._line(entry)}: {entry}")

    def _send(self, number: int, table: SpecTable) -> Send:
        src, dst = (self._endpoint(table, key, table.value(key)) for key in ("src", "dst"))
        return Send(self._key(table, number), src, dst, _nbytes(table), _instant(table, "start_ns"), table.name)

    def _collective(self, number: int, table: SpecTable) -> Collective:
        members = table.value("members")
        if not isinstance(members, list) or not members:
            raise table.error("members", f"expected a list of endpoints, not {shown(members)}")
        return Collective(
            self._key(table, number),
            table.text("op", choices=OPERATIONS),
            _nbytes(table),
            tuple(self._endpoint(table, "members", member) for member in members),
            table.integer("root", 0, least=0, most=len(members) - 1),
            _instant(table, "start_ns"),
            table.name,
        )

    def _fault(self, table: SpecTable) -> Fault:
        try:
            link = self._topology.link_id(table.text("link"))
        except TopologyError as error:
            raise table.error("link", str(error)) from None
        gbps = table.number("gbps", least=0.0, most=MAX_GBPS) if "gbps" in table else None
        if gbps is not None and 0 < gbps < MIN_GBPS:
            raise table.error("gbps", f"{gbps:g} must be 0 (down) or at least {MIN_GBPS:g}")
        latency_ns = table.integer("latency_ns", least=0, most=MAX_LATENCY_NS) if "latency_ns" in table else None
        if gbps is None and latency_ns is None:
            raise table.wrong(table.name, "expected gbps or latency_ns")
        return Fault(link, _instant(table, "at_ns"), gbps, latency_ns, table.name)

    def _endpoint(self, table: SpecTable, key: str, value: object) -> int:
        if isinstance(value, str) and value in self._endpoints:
            return self._endpoints[value]
        last = len(self._endpoints) - 1
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= last:
            return value
        known = f"known ones are 0 to {last}, by name {self._topology.endpoints[0]} to {self._topology.endpoints[last]}"
        raise table.error(key, f"unknown endpoint {shown(value)}; {known}")

    def _key(self, table: SpecTable, number: int) -> str:
        value = table.value("key") if "key" in table else number
        if isinstance(value, bool) or not isinstance(value, int | str) or not str(value).isprintable():
            problem = f"expected a number or text of printable characters, not {shown(value)}"
            raise table.error("key", problem)
        key = f"{value:06d}" if isinstance(value, int) else value
        other = self._keys.setdefault(key, table.name)
        if other != table.name:
            raise table.error("key", f"the key {shown(key)} is that of {other}, too")
        return key


def _nbytes(table: SpecTable) -> int:
    return table.integer("bytes", least=0, most=MAX_BYTES - 1)


def _instant(table: SpecTable, key: str) -> int:
    return table.integer(key, 0, least=0, most=MAX_NS)
