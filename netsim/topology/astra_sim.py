"""Import of ASTRA-sim's analytical network description (YAML)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from formats.files import read_text
from formats.values import shown
from netsim.errors import SpecError
from netsim.topology.links import MOST_LINKS, LinkPath, LinkTable
from netsim.topology.topology import Topology
from netsim.units import MAX_GBPS, MAX_LATENCY_NS

GBPS_PER_ASTRA = 8 * (1 << 30) / 1e9
"""ASTRA-sim's bandwidth unit, written GB/s, is 2**30 bytes per second; Gb/s of one such unit."""

MOST_YAML_NBYTES = 256 << 10
"""Parsing takes ten seconds a megabyte."""
KINDS = ("Ring", "FullyConnected", "Switch")


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension: NPUs that differ in this coordinate only are joined by ``kind``. ``links``: (from, to) to link id.

    In a switch dimension, ``links`` has (npu, -1) and (-1, npu) for the links to and from the switch.
    """

    kind: str
    size: int
    stride: int
    links: dict[tuple[int, int], int]

    def steps(self, src: int, dst: int) -> list[int]:
        """Links from one NPU to another of the same line."""
        if self.kind == "Switch":
            return [self.links[src, -1], self.links[-1, dst]]
        if self.kind == "FullyConnected":
            return [self.links[src, dst]]
        a, b = src // self.stride % self.size, dst // self.stride % self.size
        forward = (b - a) % self.size
        by = 1 if forward <= self.size - forward else -1
        found, here = [], src
        while here != dst:
            there = self.neighbour(here, by)
            found.append(self.links[here, there])
            here = there
        return found

    def neighbour(self, npu: int, by: int) -> int:
        """The NPU ``by`` further along the ring of this dimension."""
        at = npu // self.stride % self.size
        return npu + ((at + by) % self.size - at) * self.stride


@dataclass(frozen=True, slots=True)
class DimensionOrder:
    """Routes that settle one coordinate after the other, the first dimension first."""

    dimensions: tuple[Dimension, ...]

    def routes(self, src: int, dst: int) -> Sequence[LinkPath]:
        path: list[int] = []
        for dimension in self.dimensions:
            a = src // dimension.stride % dimension.size
            b = dst // dimension.stride % dimension.size
            if a != b:
                there = src + (b - a) * dimension.stride
                path += dimension.steps(src, there)
                src = there
        return (tuple(path),)


def from_yaml(path: str | Path) -> Topology:
    """The topology in a YAML file with ``topology``, ``npus_count``, ``bandwidth`` (GB/s) and ``latency`` (ns) per
    dimension.

    SpecError naming the field for anything else. Needs PyYAML (the extra ``import``).
    """
    try:
        import yaml
    except ImportError as error:
        raise SpecError("reading ASTRA-sim's YAML needs PyYAML: pip install phantora-async[import]") from error
    try:
        data = yaml.safe_load(read_text(Path(path), MOST_YAML_NBYTES, SpecError))
    except (yaml.YAMLError, ValueError) as error:  # ValueError: of int() and dates
        if isinstance(error, SpecError):
            raise
        raise SpecError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    except RecursionError:
        raise SpecError(f"{path}: not YAML that can be read: too many brackets within each other") from None
    try:
        return build(data)
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from error


def build(data: Any) -> Topology:
    """The topology of a parsed description."""
    if not isinstance(data, dict):
        raise SpecError("expected a mapping with topology, npus_count, bandwidth and latency")
    columns = {}
    for name in ("topology", "npus_count", "bandwidth", "latency"):
        value = data.get(name)
        if not isinstance(value, list) or not value:
            raise SpecError(f"{name}: expected a list with one entry per dimension")
        columns[name] = value
    if len({len(column) for column in columns.values()}) != 1:
        raise SpecError("topology, npus_count, bandwidth and latency differ in length")
    sizes = columns["npus_count"]
    for size in sizes:
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise SpecError(f"npus_count: {shown(size)} is not a positive whole number")
    total = prod(sizes)
    if total > MOST_LINKS:
        raise SpecError(f"npus_count: {shown(total)} NPUs are more than {MOST_LINKS:,}")
    links = LinkTable()
    dimensions: list[Dimension] = []
    stride = 1
    for i, (kind, size) in enumerate(zip(columns["topology"], sizes, strict=True)):
        if kind not in KINDS:
            raise SpecError(f"topology: {shown(kind)} is not one of {', '.join(KINDS)}")
        dimension = Dimension(kind, size, stride, {})
        gbps = _number("bandwidth", columns["bandwidth"][i], "GB/s", MAX_GBPS) * GBPS_PER_ASTRA
        latency_ns = round(_number("latency", columns["latency"][i], "ns", MAX_LATENCY_NS))
        links.expect(total * (size - 1 if kind == "FullyConnected" else min(size, 2)))
        for npu in range(total):
            _join(dimension, npu, i, links, gbps, latency_ns)
        dimensions.append(dimension)
        stride *= size
    router = DimensionOrder(tuple(dimensions))
    return Topology(links.links, [f"npu{i}" for i in range(total)], router, kind="astra-sim")


def _number(name: str, value: object, unit: str, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise SpecError(f"{name}: expected {unit} from 0 to {most:g}, not {shown(value)}")
    return float(value)


def _join(dimension: Dimension, npu: int, number: int, links: LinkTable, gbps: float, latency_ns: int) -> None:
    name = f"npu{npu}:dim{number}"
    if dimension.size == 1:
        return
    if dimension.kind == "Switch":
        dimension.links[npu, -1] = links.add(f"{name}:up", gbps, latency_ns)
        dimension.links[-1, npu] = links.add(f"{name}:down", gbps, latency_ns)
        return
    steps = (1, -1) if dimension.kind == "Ring" else range(1, dimension.size)
    for by in steps:
        there = dimension.neighbour(npu, by)
        if (npu, there) not in dimension.links:
            dimension.links[npu, there] = links.add(f"{name}:to{there}", gbps, latency_ns)
