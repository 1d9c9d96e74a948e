"""What the routing policy chose on all ranks, as ROUTING records tell."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from emu.contract import records
from phantora_async.errors import ProtocolError


class Router(NamedTuple):
    """What chooses among candidates by scores, such as a router of a mixture of experts."""

    line: str
    """`file:line` of the script; "" if unknown."""
    module: str
    """The class of the module that chooses; "" if the script does so while no module is called."""
    operation: str
    chosen: int
    """By each row, in each call."""
    candidates: int


class Total(NamedTuple):
    """Of one rank and one router, in one layer."""

    calls: int
    loads: tuple[int, ...]
    """How often each candidate was chosen."""


@dataclass(slots=True)
class RoutingLoads:
    """By router, then by layer and rank. A rank numbers the layers that it has."""

    routers: dict[Router, dict[tuple[int, int], Total]] = field(default_factory=dict)

    def take(self, rank: int, record: records.Routing) -> None:
        """A record's totals replace those of the one before. Raises ProtocolError."""
        nbytes = record.candidates * 8
        text = record.payload[nbytes:].decode(errors="replace").rstrip("\0").split("\n")
        if len(record.payload) < nbytes or len(text) != 3:
            raise ProtocolError(rank, "ROUTING: a payload of another size")
        loads = struct.unpack(f"<{record.candidates}Q", record.payload[:nbytes])
        line, module, operation = text
        router = Router(line, module, operation, record.chosen, record.candidates)
        self.routers.setdefault(router, {})[record.layer, rank] = Total(record.calls, loads)
