"""Collects the choices of the routing policy on all ranks, from ROUTING records."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from emu.contract import records
from phantora_async.errors import ProtocolError


class Router(NamedTuple):
    """A part of the model that chooses among candidates by scores, such as a router of a mixture of experts."""

    line: str
    """`file:line` of the script; "" if unknown."""
    module: str
    """The class of the module that chooses; "" if the script chooses while no module is called."""
    operation: str
    chosen: int
    """The number of candidates that each row chooses in each call."""
    candidates: int


class Total(NamedTuple):
    """The choices of one router on one rank, in one layer."""

    calls: int
    loads: tuple[int, ...]
    """The number of times that each candidate was chosen."""


@dataclass(slots=True)
class RoutingLoads:
    """The totals by router, then by layer and rank. A rank numbers the layers that it has."""

    routers: dict[Router, dict[tuple[int, int], Total]] = field(default_factory=dict)

    def take(self, rank: int, record: records.Routing) -> None:
        """Takes a record. Its totals replace those of the one before. Raises ProtocolError."""
        nbytes = record.candidates * 8
        text = record.payload[nbytes:].decode(errors="replace").rstrip("\0").split("\n")
        if len(record.payload) < nbytes or len(text) != 3:
            raise ProtocolError(rank, "ROUTING: a payload of another size")
        loads = struct.unpack(f"<{record.candidates}Q", record.payload[:nbytes])
        line, module, operation = text
        router = Router(line, module, operation, record.chosen, record.candidates)
        self.routers.setdefault(router, {})[record.layer, rank] = Total(record.calls, loads)
