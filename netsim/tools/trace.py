"""Flow traces: what to send when, from CSV or JSON, run on a topology without any training script.

CSV: a header ``src,dst,bytes,start_ns`` (and optionally ``key``), then one flow a line. JSON: a list, or an object with

    "flows":       [{"src": .., "dst": .., "bytes": .., "start_ns": .., "key": ..}]
    "collectives": [{"op": "all_reduce", "bytes": .., "members": [..], "start_ns": .., "root": 0, "key": ..}]
    "faults":      [{"link": "leaf0:up1", "at_ns": .., "gbps": 0}, {"link": .., "at_ns": .., "latency_ns": ..}]

Endpoints are numbers or names (``node000/gpu3``). Keys must differ; without one, a flow's number is its key.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netsim.collectives import NcclSettings, Params, plan
from netsim.errors import FlowError, NetsimError, SpecError
from netsim.fields import FieldError, TomlTable
from netsim.simulation.adaptive import routed_network
from netsim.simulation.routed import RoutedNetwork
from netsim.topology import Topology
from netsim.units import MAX_NS


@dataclass(frozen=True, slots=True)
class Send:
    """A flow between two endpoints."""

    key: str
    src: int
    dst: int
    nbytes: int
    start_ns: int


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective operation; its groups start after the plan's latency."""

    key: str
    op: str
    nbytes: int
    members: tuple[int, ...]
    root: int
    start_ns: int


@dataclass(frozen=True, slots=True)
class Fault:
    """A link's capacity or latency from an instant on; None: unchanged."""

    link: int
    at_ns: int
    gbps: float | None
    latency_ns: int | None


@dataclass(frozen=True, slots=True)
class FlowTrace:
    """A whole trace."""

    sends: tuple[Send, ...]
    collectives: tuple[Collective, ...]
    faults: tuple[Fault, ...]


def read(path: Path, topology: Topology) -> FlowTrace:
    """A trace from a ``.csv`` or ``.json`` file; SpecError names the file, the entry and the field."""
    names = {name: i for i, name in enumerate(topology.endpoints)}
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix.lower() == ".csv":
            return _from_tables({"flows": _csv_rows(text)}, topology, names)
        data = json.loads(text)
        return _from_tables({"flows": data} if isinstance(data, list) else data, topology, names)
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}") from error
    except (json.JSONDecodeError, UnicodeDecodeError, csv.Error) as error:
        raise SpecError(f"{path}: {error}") from error
    except NetsimError as error:
        raise SpecError(f"{path}: {error}") from error


def _csv_rows(text: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    reader = csv.DictReader(text.splitlines())
    for row in reader:
        entry: dict[str, Any] = {}
        for name, value in row.items():
            if name is None or value is None:
                raise SpecError(f"line {reader.line_num}: {len(reader.fieldnames or ())} fields expected")
            value = value.strip()
            entry[name.strip()] = int(value) if value.lstrip("-").isdigit() else value
        rows.append(entry)
    return rows


def _endpoint(table: TomlTable, key: str, value: object, names: dict[str, int]) -> int:
    if isinstance(value, str) and value in names:
        return names[value]
    if isinstance(value, int) and 0 <= value < len(names):
        return value
    raise FieldError(table.field(key), f"unknown endpoint {value!r}")


def _instant(table: TomlTable, key: str) -> int:
    at_ns = table.count(key, 0, least=0)
    if at_ns > MAX_NS:
        raise FieldError(table.field(key), f"{at_ns} is beyond the clock's range ({MAX_NS})")
    return at_ns


def _key(table: TomlTable, number: int) -> str:
    value = table.raw("key") if table.has("key") else number
    return f"{value:06d}" if isinstance(value, int) else str(value)


def _from_tables(data: object, topology: Topology, names: dict[str, int]) -> FlowTrace:
    root = TomlTable(data, "")
    sends, collectives, faults = [], [], []
    for i, table in enumerate(root.tables("flows")):
        src, dst = (_endpoint(table, key, table.raw(key), names) for key in ("src", "dst"))
        sends.append(Send(_key(table, i), src, dst, table.count("bytes", least=0), _instant(table, "start_ns")))
        table.end()
    for i, table in enumerate(root.tables("collectives")):
        members = table.raw("members")
        if not isinstance(members, list) or not members:
            raise FieldError(table.field("members"), "expected a list of endpoints")
        collectives.append(
            Collective(
                _key(table, len(sends) + i),
                table.text("op"),
                table.count("bytes", least=0),
                tuple(_endpoint(table, "members", member, names) for member in members),
                table.count("root", 0, least=0),
                _instant(table, "start_ns"),
            )
        )
        table.end()
    for table in root.tables("faults"):
        link = topology.link_id(table.text("link"))
        gbps = table.number("gbps", above=-1e-9) if table.has("gbps") else None
        latency_ns = table.count("latency_ns", least=0) if table.has("latency_ns") else None
        faults.append(Fault(link, _instant(table, "at_ns"), gbps, latency_ns))
        table.end()
    root.end()
    used = Counter([send.key for send in sends] + [call.key for call in collectives])
    for key, times in used.items():
        if times > 1:
            raise FlowError(f"the key {key!r} is used {times} times")
    return FlowTrace(tuple(sends), tuple(collectives), tuple(faults))


def run(
    trace: FlowTrace, topology: Topology, params: Params, settings: NcclSettings
) -> tuple[RoutedNetwork, dict[str, int | None]]:
    """The network after the trace, and each entry's completion in ns (None: it stalls for ever)."""
    net = routed_network(topology)
    for fault in trace.faults:
        if fault.gbps is not None:
            net.set_capacity(fault.link, fault.at_ns, fault.gbps)
        if fault.latency_ns is not None:
            net.set_latency(fault.link, fault.at_ns, fault.latency_ns)
    parts: dict[str, list[int]] = {}
    done: dict[str, int | None] = {}
    for send in trace.sends:
        parts[send.key] = [net.send(send.src, send.dst, send.nbytes, send.start_ns, (send.key, 0)).flow]
    for call in trace.collectives:
        made = plan(call.op, call.nbytes, call.members, topology, params, root=call.root, settings=settings)
        done[call.key] = call.start_ns + made.latency_ns
        start_ns = call.start_ns + made.latency_ns
        parts[call.key] = [net.add(group, start_ns, (call.key, i)).flow for i, group in enumerate(made.groups)]
    while (coming := net.next_completion()) is not None:
        net.advance(coming[0])
    for key, flows in parts.items():
        done[key] = _last(done.get(key), (net.completion_ns(flow) for flow in flows))
    return net, done


def _last(least: int | None, ends: Iterable[int | None]) -> int | None:
    """The latest of the ends; None if one of the flows never completes."""
    last = least or 0
    for end in ends:
        if end is None:
            return None
        last = max(last, end)
    return last
