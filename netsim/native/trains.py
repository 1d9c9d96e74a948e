"""Typed calls of the core with queues (trains.h): the same as those of the fluid core, and what they need beside."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim import native
from netsim.native.core import NEVER, Core, FlowTable, Hops

PARTS = 32
"""The trains of a flow, at least."""
SPAN_NS = 1310
"""The longest train of a flow along a path, at line rate. Both bound the error of order among packets."""
GROUP_SPANS = 6
"""A group's trains may be so many times longer: it has many links. They are well below what marks packets."""

_CALLS = (
    *("free", "add", "renumber", "redirect", "retime", "retract", "capacity", "advance", "next", "flows", "ticks"),
    *("moves", "completion", "segments", "commit", "count"),
)


@dataclass(frozen=True, slots=True)
class TrainRules:
    """The rules for links and senders, in ticks and rate units."""

    packet_nbytes: int
    ack_nbytes: int
    marking: bool
    mark_from: int
    mark_to: int
    alpha_every: int
    cut_every: int
    recover_every: int
    mark_most: float
    alpha_gain: float
    least_rate: int


class TrainCore(Core):
    """A ``trains *``. Arguments are not checked here: the network has done that."""

    def __init__(
        self, capacities: array[int], latencies: Sequence[int], reverse: Sequence[int], span: int, rules: TrainRules
    ) -> None:
        library = native.library()
        calls = {name: getattr(library, f"nt_{name}") for name in _CALLS}
        self._lib: Any = SimpleNamespace(**{f"ns_{name}": call for name, call in calls.items()})
        whole = [rules.packet_nbytes, rules.ack_nbytes, PARTS, span, GROUP_SPANS, int(rules.marking)]
        whole += [rules.mark_from, rules.mark_to, rules.alpha_every, rules.cut_every, rules.recover_every]
        parts = [rules.mark_most, rules.alpha_gain, float(rules.least_rate)]
        self._net = ctypes.c_void_p(
            library.nt_new(
                len(capacities),
                capacities.tobytes(),
                array("q", latencies).tobytes(),
                array("i", reverse).tobytes(),
                array("q", whole).tobytes(),
                array("d", parts).tobytes(),
            )
        )
        self._moved = ctypes.POINTER(native.MovedEnd)()
        self._segments = ctypes.POINTER(native.RateStretch)()

    def add_train(
        self,
        start: int,
        nbytes: int,
        capacity: int | None,
        hops: Hops,
        path_from: Sequence[int],
        order: int,
        port: int | None,
        answer: int,
    ) -> int:
        """Adds a flow along paths, whose hop number ``port`` is the sender's; None: a group that takes its links at
        once. ``answer``: the ticks until a mark is back at the sender.
        """
        return int(
            self._lib.ns_add(
                self._net,
                start,
                nbytes,
                -1 if capacity is None else capacity,
                order,
                port is None,
                port or 0,
                answer,
                hops.count,
                hops.links,
                hops.weights,
                hops.paths,
                max(1, len(path_from)),
                array("q", path_from).tobytes(),
            )
        )

    def renumber(self, gap: int) -> dict[int, int]:
        """Numbers flows anew, so far apart, in the order that they have. Returns each flow's number."""
        return {flow: number for number, flow in self._out(self._lib.ns_renumber(self._net, gap))}

    def play(self, table: FlowTable, submit: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
        """See ``Core.play``; without a port of its own each flow begins at its first link."""
        done = np.full(len(submit), NEVER, np.int64)
        flows: dict[int, int] = {}
        for i in np.argsort(submit, kind="stable").tolist():
            for at, flow in self.advance(max(int(submit[i]), 0)):
                done[flows[flow]] = at
            links = table.links[table.offsets[i] : table.offsets[i + 1]]
            ones, zeros = np.ones(len(links), np.int32).tobytes(), np.zeros(len(links), np.int32).tobytes()
            hops = Hops(len(links), links.tobytes(), ones, zeros)
            flow = self.add_train(int(table.starts[i]), int(table.nbytes[i]), None, hops, (), i, 0, 0)
            flows[flow] = i
        while ties := self.next():
            for at, flow in self.advance(ties[0][0]):
                done[flows[flow]] = at
        for flow, i in flows.items():
            ended = self.completion(flow)
            done[i] = NEVER if ended is None else ended
        most = self.counters()["bytes"]
        self.commit(int(done[done != NEVER].max(initial=0)))
        return done, most
