"""Finds memory that ranks hold on GPUs of other ranks.

A rank's own GPU is the one of its number on its server. `torch.load` without `map_location`, or `.cuda()` before
`torch.cuda.set_device`, puts a rank's tensors on another one, with a CUDA context beside them. They are counted there.
A rank that has a GPU to itself, whatever its number, is nobody's guest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from phantora_async.ingest.call_sites import Site
from phantora_async.ingest.fact_builder import Placed
from phantora_async.ingest.memory_holders import HeldMemory
from phantora_async.wording import named, size

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Seat:
    server: int
    gpu: int
    """The number of the rank's own GPU on its server."""


@dataclass(frozen=True, slots=True)
class Guest:
    """The memory of one rank on the GPU of another one."""

    rank: int
    owner: int
    """The rank to which that GPU belongs."""
    server: int
    gpu: int
    device: int
    """The GPU's number in the rank's process."""
    nbytes: int
    """The most bytes that CUDA had given out to the rank there."""


def seats_of(servers: Sequence[int]) -> list[Seat]:
    """The seat of each rank. `servers`: the number of GPUs in use on each server."""
    return [Seat(server, gpu) for server, gpus in enumerate(servers) for gpu in range(gpus)]


def guests_of(
    seats: Sequence[Seat], placed: Sequence[Mapping[int, Placed]], told_by: Sequence[int] | None = None
) -> list[Guest]:
    """The guests on other ranks' GPUs. `placed`: the memory that each rank has reported, by device. `told_by`: for each
    rank, the one that has reported it, which is another one where ranks share a timeline; None: each has reported its
    own.
    """
    holders: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for rank, (seat, of) in enumerate(zip(seats, placed, strict=True)):
        teller = seat if told_by is None else seats[told_by[rank]]
        for device, one in of.items():
            if one.peaks.device:
                # Each uses its own GPU where the other one uses its own: so do mirrored ranks.
                gpu = {teller.gpu: seat.gpu, seat.gpu: teller.gpu}.get(one.gpu, one.gpu)
                holders.setdefault((seat.server, gpu), []).append((rank, device, one.peaks.device))
    found = []
    for (server, gpu), ranks in sorted(holders.items()):
        own = [rank for rank, _, _ in ranks if seats[rank].gpu == gpu]
        owner = min(own or (rank for rank, _, _ in ranks))
        found += [Guest(rank, owner, server, gpu, device, nbytes) for rank, device, nbytes in ranks if rank != owner]
    return found


def guests_document(
    guests: Sequence[Guest],
    held: Sequence[Mapping[int, HeldMemory]],
    site_of: Callable[[int], Callable[[int], Site | None]],
    context_nbytes: int,
) -> list[Document]:
    """The guests as JSON. Ranks that hold equally much on one GPU, from one line of the script, share an entry."""
    together: dict[tuple[int, int, int, int, str], list[int]] = {}
    for one in guests:
        told = held[one.rank].get(one.device)
        sites = (site_of(one.rank)(holder.site) for holder in (told.holders if told is not None else ()))
        site = next((str(site) for site in sites if site is not None), "")
        together.setdefault((one.server, one.gpu, one.owner, one.nbytes, site), []).append(one.rank)
    return [
        {
            "server": server,
            "gpu": gpu,
            "owner": owner,
            "ranks": ranks,
            "nbytes": nbytes,
            "context_nbytes": context_nbytes,
            "site": site,
        }
        for (server, gpu, owner, nbytes, site), ranks in together.items()
    ]


def guest_notes(guests: Sequence[Mapping[str, Any]], servers: int) -> list[str]:
    """A line of text for each guest."""
    return [_note(one, servers) for one in guests]


def _note(one: Mapping[str, Any], servers: int) -> str:
    ranks = one["ranks"]
    several = len(ranks) > 1
    each = " each" if several else ""
    where = f"GPU {one['gpu']} of server {one['server']}" if servers > 1 else f"GPU {one['gpu']}"
    origin = f", from {one['site']}" if one["site"] else ""
    return (
        f"{named(ranks)} hold{'' if several else 's'} {size(one['nbytes'])}{each} on {where}, which is rank "
        f"{one['owner']}'s{origin}; a context of {size(one['context_nbytes'])}{each} comes with it"
    )
