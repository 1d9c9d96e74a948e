"""Reports the GPU work of a step, and the memory of the fullest GPU at its peak, by the program's modules
(torch.nn.Module).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from emu.contract.records import HeldKind
from phantora_async.ingest.costs import Costs
from phantora_async.ingest.module_launches import Module, ModuleLaunches
from phantora_async.report.gpu_work import family_of
from phantora_async.report.memory import PARTS

MOST_PARTS = 20_000
"""The most parts that a report lists, those that take most time."""
Document = dict[str, Any]


def modules_document(ranks: Iterable[tuple[ModuleLaunches, int]], costs: Costs, fullest: ModuleLaunches) -> Document:
    """The work of the last whole step for each module and family of kernels: the mean over the ranks that told it.
    `ranks`: what ranks told, with the number of ranks for which each speaks. ``parts``: a module's own work, without
    that of modules within it, the longest first; ``forward_ns`` and ``backward_ns`` as if each kernel were alone.
    ``memory``: what the rank with the `fullest` GPU holds at its peak. ``left_out``: how many of both are not listed.
    """
    told = [(one, count) for one, count in ranks if one.counts]
    many = sum(count for _, count in told)
    families: dict[int, str] = {}
    sums: dict[tuple[Module, str], list[int]] = {}
    for launches, speaks_for in told:
        for count in launches.counts:
            cost = costs.priced(count.key).cost
            if count.key not in families:
                families[count.key] = family_of({"model": cost.model, "signature": costs.priced(count.key).signature})
            part = sums.setdefault((launches.module(count.module), families[count.key]), [0, 0, 0])
            part[1 if count.backward else 0] += (cost.solo_ns * count.launches + count.slowed_ns) * speaks_for
            part[2] += count.launches * speaks_for
    ordered = sorted(sums.items(), key=lambda one: (-one[1][0] - one[1][1], one[0]))
    held = _held(fullest)
    return {
        "ranks": many,
        "parts": [
            {
                "path": list(module.path),
                "class": module.kind,
                "family": family,
                "forward_ns": round(forward_ns / many),
                "backward_ns": round(backward_ns / many),
                "launches": launched / many,
            }
            for (module, family), (forward_ns, backward_ns, launched) in ordered[:MOST_PARTS]
        ],
        "left_out": max(len(ordered) - MOST_PARTS, 0) + max(len(held) - MOST_PARTS, 0),
        "memory": held[:MOST_PARTS],
    }


def _held(fullest: ModuleLaunches) -> list[Document]:
    """The bytes of the fullest of the rank's devices, the most first."""
    device = max(fullest.held.values(), key=lambda held: sum(one.nbytes for one in held), default=())
    sums: dict[tuple[Module, str], list[int]] = {}
    for one in device:
        part = sums.setdefault((fullest.module(one.module), PARTS[HeldKind(one.held_as)]), [0, 0])
        part[0] += one.nbytes
        part[1] += one.blocks
    ordered = sorted(sums.items(), key=lambda one: (-one[1][0], one[0]))
    return [
        {"path": list(module.path), "class": module.kind, "part": part, "nbytes": nbytes, "blocks": blocks}
        for (module, part), (nbytes, blocks) in ordered
    ]


def speakers(launches: Sequence[ModuleLaunches], sharing: Mapping[int, Sequence[int]]) -> list[Any]:
    """The launches of each rank with a process, with the number of ranks that share its timeline."""
    return [(launches[rank], len(members)) for rank, members in sharing.items()]
