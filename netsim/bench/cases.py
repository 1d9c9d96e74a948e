"""Network cases of the format ``netpeer-1``: a topology, flows, and the exact completion times."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netsim.errors import SpecError
from netsim.topology import Link, LinkPath, Topology


@dataclass(frozen=True, slots=True)
class Case:
    """One case; columns are indexed by flow. ``submit_ns`` is None where the case has no late arrivals."""

    name: str
    topology: Topology
    paths: tuple[LinkPath, ...]
    nbytes: tuple[int, ...]
    start_ns: tuple[int, ...]
    submit_ns: tuple[int, ...] | None
    completion_ns: tuple[float, ...]
    spec: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Given:
    """A case states every flow's path, so its topology routes nothing."""

    def routes(self, src: int, dst: int) -> tuple[LinkPath, ...]:
        return ()


def path_names(spec: dict[str, Any], src: int, dst: int, spine: int | None) -> list[str]:
    """Names of the links from one host to another."""
    up, down = f"h{src}:up", f"h{dst}:down"
    if spec["kind"] == "star":
        return [up, down]
    a, b = src // spec["hosts_per_leaf"], dst // spec["hosts_per_leaf"]
    if a == b:
        return [up, down]
    if spec["kind"] == "leafspine":
        return [up, f"l{a}:up", f"l{b}:down", down]
    if spec["kind"] == "leafspine_ecmp":
        return [up, f"l{a}:up{spine}", f"l{b}:down{spine}", down]
    raise SpecError(f"topology kind {spec['kind']!r} is not one of star, leafspine, leafspine_ecmp")


def read(path: Path) -> Case:
    """A case from ``NAME.json.gz``; SpecError if it is not one."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            data = json.load(file)
        if data["format"] != "netpeer-1":
            raise SpecError(f"{path}: format {data['format']!r} is not netpeer-1")
        spec, flows = data["topology"], data["flows"]
        links = [Link(name, float(gbps)) for name, gbps in spec["links"]]
        hosts = [f"h{i}" for i in range(spec["hosts"])]
        topology = Topology(links, hosts, _Given(), kind=spec["kind"])
        ids = {link.name: i for i, link in enumerate(links)}
        spines = flows.get("spine") or [None] * len(flows["src"])
        paths = tuple(
            tuple(ids[name] for name in path_names(spec, src, dst, spine))
            for src, dst, spine in zip(flows["src"], flows["dst"], spines, strict=True)
        )
        submit = flows.get("submit_ns")
        return Case(
            name=data["name"],
            topology=topology,
            paths=paths,
            nbytes=tuple(flows["bytes"]),
            start_ns=tuple(flows["start_ns"]),
            submit_ns=tuple(submit) if submit else None,
            completion_ns=tuple(data["completion_ns"]),
            spec=data,
        )
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise SpecError(f"{path}: not a network case: {error!r}") from error


def find(folder: Path, only: frozenset[str] = frozenset()) -> Iterator[Path]:
    """The case files of a folder, by name."""
    for path in sorted(folder.glob("*.json.gz")):
        if not only or path.name.removesuffix(".json.gz") in only:
            yield path
