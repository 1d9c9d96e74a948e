"""Runs flow traces, which say what to send when, on a topology without any training script. ``trace_files`` reads
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from netsim.collectives import NcclSettings, Params, plan
from netsim.errors import NetsimError, SpecError
from netsim.simulation.routed import RoutedNetwork
from netsim.topology import Topology


@dataclass(frozen=True, slots=True)
class Send:
    """A flow between two endpoints."""

    key: str
    src: int
    dst: int
    nbytes: int
    start_ns: int
    entry: str = ""
    """The entry's name in the file, for messages: ``flows[3]``."""


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective operation; its groups start after the plan's latency."""

    key: str
    op: str
    nbytes: int
    members: tuple[int, ...]
    root: int
    start_ns: int
    entry: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """A change of a link's capacity or latency from an instant on; None: unchanged."""

    link: int
    at_ns: int
    gbps: float | None
    latency_ns: int | None
    entry: str = ""


@dataclass(frozen=True, slots=True)
class FlowTrace:
    """A whole trace."""

    sends: tuple[Send, ...]
    collectives: tuple[Collective, ...]
    faults: tuple[Fault, ...]
    where: Callable[[str], str] = str
    """Returns the text that messages have for an entry: ``flows.csv:5: flows[3]``."""


STEPS = 1000
"""The number of parts into which the time until the last start is divided. Completions in between need not be asked for
one by one, and progress is reported after each part.
"""


def run(
    trace: FlowTrace,
    topology: Topology,
    params: Params,
    settings: NcclSettings,
    progress: Callable[[int, int], None] = lambda done, flows: None,
) -> tuple[RoutedNetwork, dict[str, int | None]]:
    """Runs the trace. Returns the network after it, and each entry's completion in ns (None: it stalls for ever).
    `progress` is called with the number of flows that are done, and of all.
    """
    net = RoutedNetwork(topology)
    for fault in trace.faults:
        with _located(trace, fault.entry):
            if fault.gbps is not None:
                net.set_capacity(fault.link, fault.at_ns, fault.gbps)
            if fault.latency_ns is not None:
                net.set_latency(fault.link, fault.at_ns, fault.latency_ns)
    parts: dict[str, list[int]] = {}
    done: dict[str, int | None] = {}
    for send in trace.sends:
        with _located(trace, send.entry):
            parts[send.key] = [net.send(send.src, send.dst, send.nbytes, send.start_ns, (send.key, 0)).flow]
    for call in trace.collectives:
        with _located(trace, call.entry):
            made = plan(call.op, call.nbytes, call.members, topology, params, root=call.root, settings=settings)
            done[call.key] = start_ns = call.start_ns + made.latency_ns
            parts[call.key] = [net.add(group, start_ns, (call.key, i)).flow for i, group in enumerate(made.groups)]
    flows = sum(map(len, parts.values()))
    starts_ns = [send.start_ns for send in trace.sends] + [call.start_ns for call in trace.collectives]
    last_start_ns = max(starts_ns, default=0)
    ended = 0
    while (coming := net.next_completion()) is not None:
        ended += len(net.advance(max(coming[0], min(net.now_ns + last_start_ns // STEPS, last_start_ns))))
        progress(ended, flows)
    for key, parts_of in parts.items():
        done[key] = _last(done.get(key), (net.completion_ns(flow) for flow in parts_of))
    return net, done


def _last(least: int | None, ends: Iterable[int | None]) -> int | None:
    """The latest of the ends; None if one of the flows never completes."""
    last = least or 0
    for end in ends:
        if end is None:
            return None
        last = max(last, end)
    return last


@contextmanager
def _located(trace: FlowTrace, entry: str) -> Iterator[None]:
    """A context that puts the entry's place in front of an error's text."""
    try:
        yield
    except NetsimError as error:
        raise SpecError(f"{trace.where(entry)}: {error}" if entry else str(error)) from error
