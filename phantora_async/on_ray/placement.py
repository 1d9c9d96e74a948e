"""Decides which servers of a run go to which nodes of a cluster, by their free processors and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MACHINE_NBYTES = 1 << 30
"""The memory that the first server of a machine takes, in bytes: an interpreter that has imported PyTorch."""
RANK_NBYTES = 96 << 20
"""The memory of a rank with its part of the kernel's tables, in bytes; docs/scale.md has measurements."""


class NoRoom(Exception):
    """The cluster has no room for the run. The message says what is missing."""


@dataclass(frozen=True, slots=True)
class Node:
    """The free resources of one node."""

    name: str
    processors: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class MachinePlace:
    """One machine of the run, with the resources that it asks the cluster for."""

    servers: tuple[int, ...]
    """The numbers of its servers, which follow each other."""
    processors: int
    nbytes: int


def places_of(servers: Sequence[int], nodes: Sequence[Node], machines: int | None) -> list[MachinePlace]:
    """Places the servers. `servers`: the number of GPUs of each; `machines`: their number, None for as many as there is
    room for. No node gets two machines. Ranks are divided in proportion to the free processors, as far as memory
    allows. Raises NoRoom.
    """
    able = [node for node in nodes if node.processors >= 1 and _most_ranks(node) >= max(servers)]
    able.sort(key=lambda node: (-node.processors, -node.nbytes))
    count = min(len(able), len(servers)) if machines is None else machines
    if not able or count > len(able):
        raise NoRoom(
            f"{max(count, 1)} machine{'s' * (count > 1)} needed, but {len(able)} of the cluster's {len(nodes)} nodes "
            f"have a free processor and {_gib(_nbytes(max(servers)))} of free memory"
        )
    chosen = able[:count]
    counts = _divide(servers, chosen)
    places, first = [], 0
    for node, number in zip(chosen, counts, strict=True):
        ranks = sum(servers[first : first + number])
        taken = tuple(range(first, first + number))
        places.append(MachinePlace(taken, min(node.processors, ranks), min(node.nbytes, _nbytes(ranks))))
        first += number
    return places


def _divide(servers: Sequence[int], nodes: Sequence[Node]) -> list[int]:
    """The number of servers that each node gets: at least one. Raises NoRoom."""
    largest = max(servers)
    counts = [1] * len(nodes)
    for _ in range(len(servers) - len(nodes)):
        free = [place for place, node in enumerate(nodes) if (counts[place] + 1) * largest <= _most_ranks(node)]
        if not free:
            raise NoRoom(
                f"{sum(servers)} ranks need {_gib(_nbytes(sum(servers)))} of memory, and {len(nodes)} nodes have "
                f"{_gib(sum(node.nbytes for node in nodes))} free"
            )
        counts[min(free, key=lambda place: (counts[place] + 1) / nodes[place].processors)] += 1
    return counts


def _most_ranks(node: Node) -> int:
    return max(0, node.nbytes - MACHINE_NBYTES) // RANK_NBYTES


def _nbytes(ranks: int) -> int:
    return MACHINE_NBYTES + ranks * RANK_NBYTES


def _gib(nbytes: int) -> str:
    return f"{nbytes / (1 << 30):.1f} GiB"
