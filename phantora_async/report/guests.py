"""Finds memory that processes hold on GPUs beside the rank that owns the GPU, and how full that makes the GPU.

A rank's own GPU is the one of its number on its server. `torch.load` without `map_location`, or `.cuda()` before
`torch.cuda.set_device`, puts a rank's tensors on another one, with a CUDA context beside them. So does a process that a
rank has started, such as a worker of a DataLoader. They are counted there. A rank that has a GPU to itself, whatever
its number, is nobody's guest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from phantora_async.ingest.call_sites import Site
from phantora_async.ingest.fact_builder import Placed
from phantora_async.ingest.memory_holders import HeldMemory
from phantora_async.virtual_time import GpuMemory
from phantora_async.wording import named, size

Document = dict[str, Any]
Gpu = tuple[int, int]
"""A server, and the number of one of its GPUs."""
Holder = tuple[int, int]
"""The rank to which a process belongs, and the number of the process: 0, the rank's own, or a child's."""


@dataclass(frozen=True, slots=True)
class Seat:
    server: int
    gpu: int
    """The number of the rank's own GPU on its server."""


@dataclass(frozen=True, slots=True)
class Guest:
    """The memory of one process on a GPU, beside the rank to which that GPU belongs."""

    rank: int
    """The rank whose process it is; of a child: the rank that has started it."""
    owner: int
    """The rank to which that GPU belongs."""
    server: int
    gpu: int
    device: int
    """The GPU's number in the rank's process; not known of a child."""
    nbytes: int
    """The most bytes that CUDA had given out to the process there."""
    child: int = 0
    """0: the rank's own process; else the number of a process that it has started, among those that use this GPU."""


class Together(NamedTuple):
    """The bytes of a GPU that are in use at most at one time, with all contexts."""

    least: int
    """Without what processes that were killed had taken at an instant that nobody knows."""
    most: int


def seats_of(servers: Sequence[int]) -> list[Seat]:
    """The seat of each rank. `servers`: the number of GPUs in use on each server."""
    return [Seat(server, gpu) for server, gpus in enumerate(servers) for gpu in range(gpus)]


class GpuUse:
    """Says who has used which GPU, for how much memory."""

    def __init__(
        self,
        seats: Sequence[Seat],
        placed: Sequence[Mapping[int, Placed]],
        told_by: Sequence[int] | None = None,
        over_time: Sequence[Sequence[GpuMemory]] | None = None,
    ) -> None:
        """`placed`: the memory that each rank's own process has reported, by device. `told_by`: for each rank, the one
        that has reported it, which is another one where ranks share a timeline; None: each has reported its own.
        `over_time`: what each rank's processes had of GPUs, by instant; None: not known.
        """
        self._seats = seats
        self._ranks_at: dict[Gpu, list[int]] = {}
        """The ranks that have this GPU as their own."""
        for rank, seat in enumerate(seats):
            self._ranks_at.setdefault((seat.server, seat.gpu), []).append(rank)
        self._told_by = told_by if told_by is not None else range(len(seats))
        self._peaks: dict[Gpu, dict[Holder, tuple[int, int]]] = {}
        """By GPU: the most bytes of each process there, and the GPU's number in that process."""
        self._changes: dict[Gpu, dict[Holder, Sequence[GpuMemory]]] = {}
        for rank, of in enumerate(placed):
            for device, one in of.items():
                if one.peaks.device:
                    self._peaks.setdefault(self._gpu(rank, one.gpu), {})[rank, 0] = one.peaks.device, device
        alone: dict[int, tuple[Sequence[GpuMemory], bool]] = {}
        """By teller: its changes, and whether all are of its own process on its own GPU."""
        for rank, changes in enumerate(over_time or ()):
            teller = self._told_by[rank]
            if teller not in alone or alone[teller][0] is not changes:
                own = seats[teller].gpu
                alone[teller] = changes, all(change.gpu == own and not change.child for change in changes)
            if alone[teller][1]:  # thousands of ranks share a timeline: its changes are looked at once
                if changes:
                    seat = seats[rank]
                    self._changes.setdefault((seat.server, seat.gpu), {})[rank, 0] = changes
                continue
            self._add(rank, changes)
        for gpu, processes in self._changes.items():
            for holder, changes in processes.items():
                if holder[1] and (most := max(one.nbytes for one in changes)):
                    self._peaks.setdefault(gpu, {})[holder] = most, 0

    def _add(self, rank: int, changes: Sequence[GpuMemory]) -> None:
        """Adds what a rank's processes had, on whichever GPU."""
        found: dict[tuple[Gpu, Holder], list[GpuMemory]] = {}
        for change in changes:
            gpu, holder = self._gpu(rank, change.gpu), self._holder(rank, change)
            if holder[1] and (not 0 <= holder[0] < len(self._seats) or gpu not in self._ranks_at):
                continue  # nobody writes so: a recording may have anything
            found.setdefault((gpu, holder), []).append(change)
        for (gpu, holder), of in found.items():
            of_gpu = self._changes.setdefault(gpu, {})
            of_gpu[holder] = [*of_gpu.get(holder, ()), *of]

    def _gpu(self, rank: int, gpu: int) -> Gpu:
        seat, teller = self._seats[rank], self._seats[self._told_by[rank]]
        # Each uses its own GPU where the other one uses its own: so do mirrored ranks.
        return seat.server, {teller.gpu: seat.gpu, seat.gpu: teller.gpu}.get(gpu, gpu)

    def _holder(self, rank: int, change: GpuMemory) -> Holder:
        started_by = change.parent - 1
        own = not change.child or started_by == self._told_by[rank]
        return (rank if own else started_by), change.child

    def _owner(self, gpu: Gpu) -> int:
        ranks = [rank for rank, child in self._peaks[gpu] if not child]
        own = self._ranks_at.get(gpu, [])
        # A child is there because the GPU's rank has a process of its own, though this may have taken nothing.
        return min([rank for rank in own if rank in ranks or not ranks] or ranks)

    def guests(self) -> list[Guest]:
        found = []
        for gpu, processes in sorted(self._peaks.items()):
            owner = self._owner(gpu)
            found += [
                Guest(rank, owner, *gpu, device, nbytes, child)
                for (rank, child), (nbytes, device) in sorted(processes.items())
                if (rank, child) != (owner, 0)
            ]
        return found

    def together(self, context_nbytes: int, owners_nbytes: int) -> dict[int, Together]:
        """The use of each GPU that has guests, by its owner. `context_nbytes`: of a process's context;
        `owners_nbytes`: of the owner's, for which room is kept.
        """
        found = {}
        for gpu in {(guest.server, guest.gpu) for guest in self.guests()}:
            owner, changes = self._owner(gpu), self._changes.get(gpu, {})
            contexts = dict.fromkeys(changes, context_nbytes) | {(owner, 0): 0}
            least = owners_nbytes + most_at_once(changes, contexts)
            unknown = 0
            for holder, (nbytes, _) in self._peaks[gpu].items():
                seen = max((one.nbytes for one in changes.get(holder, ())), default=0)
                unknown += max(nbytes - seen, 0)
                unknown += context_nbytes * (holder not in changes and holder != (owner, 0))
            found[owner] = Together(least, least + unknown)
        return found


def most_at_once(changes: Mapping[Holder, Sequence[GpuMemory]], contexts: Mapping[Holder, int]) -> int:
    """The most bytes that these processes have at one time, each with its context from its first change to its end.
    Where several change at one instant, no order of them is known: each counts with the most that it has then.
    """
    now: dict[Holder, int] = {}
    most = 0
    inorder = sorted(
        ((one, holder) for holder, of in changes.items() for one in of), key=lambda change: change[0].at_ns
    )
    for _, at_once in groupby(inorder, key=lambda change: change[0].at_ns):
        highest: dict[Holder, int] = {}
        for one, holder in at_once:
            now[holder] = 0 if one.ended else one.nbytes + contexts[holder]
            highest[holder] = max(highest.get(holder, 0), now[holder])
        most = max(most, sum((now | highest).values()))
    return most


def guests_document(
    guests: Sequence[Guest],
    held: Sequence[Mapping[int, HeldMemory]],
    held_by_children: Sequence[Mapping[tuple[int, int], HeldMemory]],
    site_of: Callable[[int], Callable[[int], Site | None]],
    context_nbytes: int,
) -> list[Document]:
    """The guests as JSON. Ranks that hold equally much on one GPU, from one line of the script, share an entry.
    `held_by_children`: by the rank whose GPU it is.
    """
    together: dict[tuple[int, int, int, int, str, bool], list[int]] = {}
    for one in guests:
        teller = one.owner if one.child else one.rank
        memory = held_by_children[teller].get((one.child, one.gpu)) if one.child else held[teller].get(one.device)
        sites = (site_of(teller)(holder.site) for holder in (memory.holders if memory is not None else ()))
        site = next((str(site) for site in sites if site is not None), "")
        key = one.server, one.gpu, one.owner, one.nbytes, site, bool(one.child)
        together.setdefault(key, []).append(one.rank)
    return [
        {
            "server": server,
            "gpu": gpu,
            "owner": owner,
            "ranks": ranks,
            "nbytes": nbytes,
            "context_nbytes": context_nbytes,
            "site": site,
            "children": children,
        }
        for (server, gpu, owner, nbytes, site, children), ranks in sorted(together.items(), key=_in_order)
    ]


def _in_order(entry: tuple[tuple[int, int, int, int, str, bool], list[int]]) -> tuple[Any, ...]:
    """By GPU and rank. Children are numbered as they have come, which is not the same in each run."""
    (server, gpu, _, *others), ranks = entry
    return server, gpu, min(ranks), *others


def guest_notes(guests: Sequence[Mapping[str, Any]], servers: int) -> list[str]:
    """A line of text for each guest."""
    return [_note(one, servers) for one in guests]


def _note(one: Mapping[str, Any], servers: int) -> str:
    ranks = one["ranks"]
    several = len(ranks) > 1
    each = " each" if several else ""
    where = f"GPU {one['gpu']} of server {one['server']}" if servers > 1 else f"GPU {one['gpu']}"
    origin = f", from {one['site']}" if one["site"] else ""
    who = named(sorted(set(ranks)))
    whose = f"which is rank {one['owner']}'s"
    if one.get("children"):
        who = f"{len(ranks)} processes of {who}" if several else f"a process of {who}"
        if set(ranks) == {one["owner"]}:
            whose = "beside the rank itself"
    return (
        f"{who} hold{'' if several else 's'} {size(one['nbytes'])}{each} on {where}, {whose}{origin}; a context of "
        f"{size(one['context_nbytes'])}{each} comes with it"
    )
