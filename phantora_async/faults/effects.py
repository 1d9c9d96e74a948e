"""Computes the effects of faults: paces of GPUs and hosts, capacities of links."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from hashlib import blake2b

from emu.contract.records import DeviceKind
from phantora_async.faults.kinds import (
    DeadGpu,
    DeadNode,
    EccRetry,
    Fault,
    JitteryHost,
    Period,
    SlowGpu,
    SlowHost,
    SlowLoader,
)
from phantora_async.faults.pace import FULL_PACE, NEVER, NO_PACES, Pace, Paces, Parts, slowed

Slow = tuple[int, int, int]
"""A period with less speed: from (ns), until (ns), the share of the full pace."""


def paces_of(faults: Sequence[Fault], servers: Sequence[int]) -> Paces:
    """The paces of GPUs and hosts with these faults. `servers`: the number of GPUs in use on each server."""
    gpus: dict[int, list[Slow]] = {}
    hosts: dict[int, list[Slow]] = {}
    jitters: dict[int, JitteryHost] = {}
    dead_gpus: dict[int, Period] = {}
    dead_nodes: dict[int, Period] = {}
    for fault in faults:
        match fault:
            case SlowGpu():
                gpus.setdefault(fault.rank, []).append((fault.period.from_ns, fault.period.until_ns, fault.share))
            case EccRetry():
                gpus.setdefault(fault.rank, []).append((fault.at_ns, fault.at_ns + fault.for_ns, 0))
            case SlowHost():
                hosts.setdefault(fault.server, []).append((fault.period.from_ns, fault.period.until_ns, fault.share))
            case JitteryHost():
                jitters[fault.server] = fault
            case DeadGpu():
                dead_gpus[fault.rank] = fault.period
            case DeadNode():
                dead_nodes[fault.server] = fault.period
    # Without slow or dead parts there are no paces to look up.
    if not (gpus or hosts or jitters or dead_gpus or dead_nodes):
        return NO_PACES
    of_hosts: dict[int, Pace] = {}
    of_devices: dict[tuple[int, int], Pace] = {}
    for server, ranks in enumerate(_ranks(servers)):
        for rank in ranks:
            dead = dead_nodes.get(server)
            if server in hosts or server in jitters or dead is not None:
                of_hosts[rank] = slowed(hosts.get(server, ()), _parts(jitters.get(server), rank), _dead(dead))
            # A dead server takes its GPUs with it, whatever else was said of them.
            dead = dead_nodes.get(server, dead_gpus.get(rank))
            if rank in gpus or dead is not None:
                pace = slowed(gpus.get(rank, ()), dead=_dead(dead))
                for other in ranks:  # a program may use the GPU of another rank of its server
                    for number in (rank - ranks[0], rank - ranks[0] + DeviceKind.APART):
                        of_devices[other, number] = pace
    return Paces(of_hosts, of_devices)


def dead_gpus(faults: Sequence[Fault]) -> tuple[tuple[int, int, int], ...]:
    """The deaths of GPUs, as ranks are told of them: rank, from (ns), until (ns)."""
    return tuple(
        (fault.rank, fault.period.from_ns, fault.period.until_ns) for fault in faults if isinstance(fault, DeadGpu)
    )


def slow_loaders(faults: Sequence[Fault]) -> tuple[tuple[int, int, int], ...]:
    """The delays of data loaders, as ranks are told of them: rank, nanoseconds, number of batches between two
    delays.
    """
    return tuple((fault.rank, fault.more_ns, fault.every) for fault in faults if isinstance(fault, SlowLoader))


def _dead(period: Period | None) -> tuple[int, int]:
    return (NEVER, NEVER) if period is None else (period.from_ns, period.until_ns)


def _ranks(servers: Sequence[int]) -> Iterable[range]:
    first = 0
    for gpus in servers:
        yield range(first, first + gpus)
        first += gpus


def _parts(fault: JitteryHost | None, rank: int) -> Parts | None:
    return None if fault is None else Parts(fault.every_ns, partial(_drawn, fault.seed, rank, fault.jitter))


def _drawn(seed: int, rank: int, jitter: int, number: int) -> int:
    """The pace in one part of time: a function of its arguments alone, whatever is asked before."""
    digest = blake2b(f"{seed} {rank} {number}".encode(), digest_size=8).digest()
    return FULL_PACE - jitter + int.from_bytes(digest, "little") % (2 * jitter + 1)
