"""Typed calls of the native core: one object per network; ticks and rate units go in, plain Python objects come out."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from netsim import native

NEVER = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Hops:
    """A flow's links as the core reads them: int32 arrays in bytes."""

    count: int
    links: bytes
    weights: bytes
    paths: bytes


def encode(links: Sequence[tuple[int, int]], path: int = 0) -> Hops:
    """Hops of (link, weight) pairs on one path."""
    return Hops(
        len(links),
        array("i", [link for link, _ in links]).tobytes(),
        array("i", [weight for _, weight in links]).tobytes(),
        array("i", [path] * len(links)).tobytes(),
    )


def without(hops: Hops, less: Sequence[tuple[int, int]]) -> Hops | None:
    """Hops of one path, in the order of their links, less weights of some of them; None if they have less."""
    links, weights = np.frombuffer(hops.links, np.int32), np.frombuffer(hops.weights, np.int32).copy()
    found = np.searchsorted(links, [link for link, _ in less])
    if any(place == len(links) or links[place] != link for place, (link, _) in zip(found, less, strict=True)):
        return None
    np.subtract.at(weights, found, [weight for _, weight in less])
    if weights.min(initial=0) < 0:
        return None
    kept = weights > 0
    count = int(np.count_nonzero(kept))
    if count == len(links):
        return Hops(count, hops.links, weights.tobytes(), hops.paths)
    return Hops(count, links[kept].tobytes(), weights[kept].tobytes(), hops.paths[: 4 * count])


def join(parts: Sequence[Hops]) -> Hops:
    """Hops of several paths of one flow."""
    return Hops(
        sum(p.count for p in parts),
        b"".join(p.links for p in parts),
        b"".join(p.weights for p in parts),
        b"".join(p.paths for p in parts),
    )


@dataclass(frozen=True, slots=True, eq=False)
class FlowTable:
    """Plain flows in columns: flow i crosses ``links[offsets[i]:offsets[i + 1]]`` from tick ``starts[i]`` on."""

    starts: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    offsets: NDArray[np.int64]
    links: NDArray[np.int32]


class Core:
    """A ``netsim *``. Arguments are not checked here: the network has done that."""

    def __init__(self, capacities: array[int]) -> None:
        self._lib = native.library()
        self._net = ctypes.c_void_p(self._lib.ns_new(len(capacities), capacities.tobytes()))
        self._moved = ctypes.POINTER(native.MovedEnd)()
        self._segments = ctypes.POINTER(native.RateStretch)()

    def __del__(self) -> None:
        if getattr(self, "_net", None):
            self._lib.ns_free(self._net)

    def add(self, start: int, nbytes: int, capacity: int | None, hops: Hops, path_from: Sequence[int] = ()) -> int:
        """Adds a flow; ``path_from[p]`` is the tick from which its path p is in force."""
        return int(
            self._lib.ns_add(
                self._net,
                start,
                nbytes,
                -1 if capacity is None else capacity,
                hops.count,
                hops.links,
                hops.weights,
                hops.paths,
                max(1, len(path_from)),
                array("q", path_from).tobytes(),
            )
        )

    def play(self, table: FlowTable, submit: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
        """The completion ticks (NEVER where a flow stalls) of flows handed over at ``submit``, and the most bytes
        held.
        """
        order = np.argsort(submit, kind="stable").astype(np.int32)
        done = np.full(len(submit), NEVER, np.int64)
        most = np.zeros(1, np.int64)
        arrays = (order, submit, table.starts, table.nbytes, table.offsets, table.links, done, most)
        self._lib.ns_play(self._net, len(submit), *(a.ctypes.data for a in arrays))
        return done, int(most[0])

    def retime(self, flow: int, start: int) -> None:
        """Gives the flow another start."""
        self._lib.ns_retime(self._net, flow, start)

    def retract(self, flow: int) -> None:
        """Removes a flow from all time."""
        self._lib.ns_retract(self._net, flow)

    def redirect(self, flow: int, hops: Hops, path_from: Sequence[int]) -> None:
        """Gives the flow these paths from ``path_from[0]`` on; its former paths from then on are dropped."""
        starts = array("q", path_from).tobytes()
        self._lib.ns_redirect(self._net, flow, hops.count, hops.links, hops.weights, hops.paths, len(path_from), starts)

    def set_capacity(self, link: int, at: int, capacity: int) -> None:
        """Sets the link's capacity from ``at`` until its next change."""
        self._lib.ns_capacity(self._net, link, at, capacity)

    def moved(self) -> list[tuple[int, int | None, int | None]]:
        """The completions that the last change of the facts moved, as (flow, tick before, tick after)."""
        count = self._lib.ns_moves(self._net, ctypes.byref(self._moved))
        return [(m.flow, _known(m.before), _known(m.after)) for m in self._moved[:count]]

    def advance(self, to: int) -> list[tuple[int, int]]:
        """Moves the present. Returns the completions in (present, to] as (tick, flow)."""
        return self._out(self._lib.ns_advance(self._net, to))

    def next(self) -> list[tuple[int, int]]:
        """The earliest completions after the present as (tick, flow)."""
        return self._out(self._lib.ns_next(self._net))

    def completion(self, flow: int) -> int | None:
        """The tick of a completion known at the present. Raises KeyError for an unknown flow."""
        at = self._lib.ns_completion(self._net, flow)
        if at < 0:
            raise KeyError(flow)
        return _known(at)

    def segments(self, flow: int) -> list[tuple[int, int, int]]:
        """The flow's history since the horizon as (from tick, rate, path)."""
        count = self._lib.ns_segments(self._net, flow, ctypes.byref(self._segments))
        return [(x.at, x.rate, x.path) for x in self._segments[:count]]

    def commit(self, horizon: int) -> list[int]:
        """Forgets history before the horizon. Returns the flows that were dropped."""
        count = self._lib.ns_commit(self._net, horizon)
        return self._lib.ns_flows(self._net)[:count] if count else []

    def counters(self) -> dict[str, int]:
        """The counters of what the core has done and holds."""
        counters = native.Counters()
        self._lib.ns_count(self._net, ctypes.byref(counters))
        return {name: getattr(counters, name) for name in native.COUNTERS}

    def _out(self, count: int) -> list[tuple[int, int]]:
        if not count:
            return []
        return list(zip(self._lib.ns_ticks(self._net)[:count], self._lib.ns_flows(self._net)[:count], strict=True))


def _known(at: int) -> int | None:
    return None if at == NEVER else at
