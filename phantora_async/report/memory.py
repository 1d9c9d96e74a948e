"""Reports GPU memory: its contents at each rank's peak, by holder, and whether the job fits the GPU.

The caching allocator can give back its unused memory before it fails. So a job fits a GPU for certain if what it
reserves fits, and not at all if what it allocates does not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from emu.contract.records import HeldKind
from phantora_async.ingest.call_sites import Site
from phantora_async.ingest.memory_holders import HeldMemory, Holder, StepMemory
from phantora_async.report.guests import Guest, Together, guests_document
from phantora_async.wording import EXPANDABLE, growth_text, size

Document = dict[str, Any]
PARTS = {
    HeldKind.PARAMETERS: "parameters",
    HeldKind.GRADIENTS: "gradients",
    HeldKind.OPTIMIZER_STATE: "optimizer state",
    HeldKind.ACTIVATIONS: "activations",
    HeldKind.TEMPORARIES: "temporaries",
}
COMMUNICATION, NOT_TOLD, CACHED, OUTSIDE, OTHERS = (
    "communication buffers",
    "not told",
    "cached or fragmented",
    "outside PyTorch",
    "other ranks",
)
ORDER = (*PARTS.values(), COMMUNICATION, NOT_TOLD, CACHED, OUTSIDE, OTHERS)
_BUFFERS = ("/torch/distributed/", "/torch/nn/parallel/")
_NO_BUFFERS = ("/torch/distributed/tensor/", "/torch/distributed/pipelining/")
"""Paths of code that is no communication, although it lies in the folders above: operations on DTensors pass there,
too.
"""
_PACKING = ("aten::_chunk_cat", "aten::cat", "aten::split_with_sizes_copy")
TELLING = 0.001
"""The share of the peak below which a difference is not reported."""
SHOWN = 4
"""The number of holders that the text shows."""
Sites = Callable[[int, int], Site | None]
"""Looks up a call site by a rank and the number of one of its sites."""


def memory_document(
    capacity: tuple[int, int],
    ranks: Sequence[Document],
    held: Sequence[Mapping[int, HeldMemory]],
    sites: Sites,
    ended_well: bool,
    guests: Sequence[Guest] = (),
    context_nbytes: int = 0,
    together: Mapping[int, Together] | None = None,
    held_by_children: Sequence[Mapping[tuple[int, int], HeldMemory]] | None = None,
) -> Document:
    """The report's part on memory. `capacity`: the bytes of a GPU, and how many of them a program can have. `ranks`:
    those of the report; `held`: the holders that each has reported, by device. `ended_well`: the script did, so it has
    done without any allocation that failed. `guests`: ranks with memory on GPUs of others, each with a context of
    `context_nbytes` there; `together`: the use of each GPU with guests, by its owner, None: not known, so that peaks
    of different times are added. `held_by_children`: the holders of processes that ranks have started.
    """
    total, usable = capacity
    devices = [max(of.values(), key=lambda one: one.allocated, default=None) for of in held]
    parts: list[dict[str, int]] = []
    known: dict[tuple[int, ...], dict[str, int]] = {}  # ranks that share a timeline have told one thing
    for rank, device in zip(ranks, devices, strict=True):
        peaks = (id(device), *(rank["memory"][f"{what}_peak_nbytes"] for what in ("allocated", "reserved", "device")))
        if device is None or peaks not in known:
            known[peaks] = _parts(rank["memory"], device, total - usable, _site_of(rank["rank"], sites))
        parts.append(known[peaks])
    # Guests' memory is on the owner's GPU: it counts by what it adds to the most that this GPU must hold at one time.
    others: dict[int, int] = defaultdict(int)
    least: dict[int, int] = {}
    for guest in guests:
        others[guest.owner] += guest.nbytes + context_nbytes
    for owner, one in (together or {}).items():
        own = sum(parts[owner].values())
        others[owner] = max(one.most - own, 0)
        least[owner] = max(one.least, own)
    for owner, nbytes in others.items():
        parts[owner] = parts[owner] | {OTHERS: nbytes}
    for rank, of, device in zip(ranks, parts, devices, strict=True):
        rank["memory"]["parts"] = of
        rank["memory"]["allocated_least_nbytes"] = _least(rank["memory"]["allocated_peak_nbytes"], device)
    # The fullest GPU decides the verdict. Of equally full ones the first rank's is named.
    fullest = max(range(len(ranks)), key=lambda rank: (sum(parts[rank].values()), -rank))
    device = devices[fullest]
    needed = sum(parts[fullest].values())
    used: Document = {"rank": fullest, "needed_nbytes": needed}
    if least.get(fullest, needed) < needed:
        used["least_needed_nbytes"] = least[fullest]
    return {
        "capacity_nbytes": usable,
        "total_nbytes": total,
        "max_allocated_nbytes": max(rank["memory"]["allocated_peak_nbytes"] for rank in ranks),
        "max_reserved_nbytes": max(rank["memory"]["reserved_peak_nbytes"] for rank in ranks),
        "least_allocated_nbytes": max(rank["memory"]["allocated_least_nbytes"] for rank in ranks),
        "verdict": _overfull(total, parts, ended_well) or _verdict(total, usable, used, devices, sites, ended_well),
        "growth": _growth(total, usable, devices, sites),
        "guests": guests_document(
            guests, held, held_by_children or [{}] * len(ranks), lambda rank: _site_of(rank, sites), context_nbytes
        ),
        "fullest": {
            "rank": fullest,
            "parts": parts[fullest],
            "holders": [_holder(one, _site_of(fullest, sites)) for one in device.holders] if device else [],
            "over_step": _over_step(device.over_step) if device and device.over_step else None,
        },
    }


def _site_of(rank: int, sites: Sites) -> Callable[[int], Site | None]:
    return lambda number: sites(rank, number) if number else None


def _least(allocated: int, device: HeldMemory | None) -> int:
    """The peak in bytes if NCCL's watchdog releases every collective's tensors at once."""
    kept = device.by_collectives if device is not None else 0
    return allocated - kept if kept > TELLING * allocated else allocated


def _parts(
    memory: Document, device: HeldMemory | None, context: int, site: Callable[[int], Site | None]
) -> dict[str, int]:
    """The bytes of a GPU by their use, when most of it is in use. They add up to all that its memory holds then."""
    parts: dict[str, int] = defaultdict(int)
    for one in device.holders if device else ():
        parts[_part(one, site(one.site))] += one.nbytes
    allocated, reserved = memory["allocated_peak_nbytes"], memory["reserved_peak_nbytes"]
    rest = {
        NOT_TOLD: allocated - sum(parts.values()),
        CACHED: reserved - allocated,
        OUTSIDE: context + max(memory["device_peak_nbytes"] - reserved, 0),
    }
    return dict(parts) | {name: nbytes for name, nbytes in rest.items() if nbytes > 0}


def _part(holder: Holder, site: Site | None) -> str:
    """The use of a holder's memory. Sharding and data parallelism keep gathered parameters, buckets and the like in
    buffers, which their own code allocates; an operation of ATen that runs below that code belongs to the program.
    """
    by_itself = not holder.op.startswith("aten::") or holder.op in _PACKING
    unnamed = holder.held_as in (HeldKind.ACTIVATIONS, HeldKind.TEMPORARIES)
    if unnamed and by_itself and site is not None and site.via is not None:
        file = site.via.file
        if any(part in file for part in _BUFFERS) and not any(part in file for part in _NO_BUFFERS):
            return COMMUNICATION
    return PARTS[holder.held_as]


def _over_step(step: StepMemory) -> Document:
    """The step with the peak: bytes by use, at points with equally many allocations between them."""
    named = {PARTS[kind]: list(values) for kind, values in step.by_kind.items() if any(values)}
    return {"allocations": step.allocations, "parts": named, "most_nbytes": list(step.most)}


def _holder(holder: Holder, site: Callable[[int], Site | None]) -> Document:
    at = site(holder.site)
    return {
        "part": _part(holder, at),
        "nbytes": holder.nbytes,
        "blocks": holder.blocks,
        "op": holder.op,
        "site": str(at) if at is not None else "",
    }


def _verdict(
    total: int, usable: int, used: Document, devices: Sequence[HeldMemory | None], sites: Sites, ended_well: bool
) -> Document:
    """The verdict. `needed_nbytes`: with the allocator's cache, if the job fits; else without it, as a lower bound."""
    told = [(rank, one) for rank, one in enumerate(devices) if one is not None]
    failed = [(rank, one.missing, one.expandable) for rank, one in told if one.missing is not None]
    failures = sum(missing.failures for _, missing, _ in failed)
    if ended_well or not failed:
        return used | {"fits": True, "left_nbytes": max(total - used["needed_nbytes"], 0), "failures": failures}
    rank, missing, expandable = max(failed, key=lambda one: (one[1].allocated + one[1].nbytes, -one[0]))
    at_least = missing.allocated + missing.nbytes + total - usable
    site = sites(rank, missing.site) if missing.site else None
    return {
        "fits": False,
        "rank": rank,
        "needed_nbytes": at_least,
        "missing_nbytes": max(at_least - total, 0),
        "asked_nbytes": missing.nbytes,
        "unused_nbytes": max(missing.reserved - missing.allocated, 0),
        "fragmented": at_least <= total and not expandable,
        "failures": failures,
        "site": str(site) if site is not None else "",
    }


def _growth(total: int, usable: int, devices: Sequence[HeldMemory | None], sites: Sites) -> Document | None:
    """The growth of the rank whose memory grows most. `steps_left`: the memory is full after at most so many more steps
    like the last ones.
    """
    grown = {rank: one.growth for rank, one in enumerate(devices) if one is not None and one.growth is not None}
    if not grown:
        return None
    rank = max(grown, key=lambda one: (grown[one].nbytes, -one))
    growth, device = grown[rank], devices[rank]
    assert device is not None
    site = sites(rank, growth.site) if growth.site else None
    return {
        "rank": rank,
        "ranks": sum(one.nbytes == growth.nbytes for one in grown.values()),
        "nbytes": growth.nbytes,
        "steps": growth.steps,
        "equal": growth.equal,
        "steps_left": max(usable - device.allocated, 0) // growth.nbytes,
        "site": str(site) if site is not None else "",
        "op": growth.op,
    }


def _overfull(total: int, parts: Sequence[Mapping[str, int]], ended_well: bool) -> Document | None:
    """A GPU on which other ranks hold so much that its own rank does not fit, even without its cache; None: there is
    none. No rank was told so while it ran: each has seen its own memory alone.
    """
    needed = {rank: sum(of.values()) - of.get(CACHED, 0) for rank, of in enumerate(parts) if OTHERS in of}
    if not needed or not ended_well:
        return None
    rank = max(needed, key=lambda one: (needed[one], -one))
    if needed[rank] <= total:
        return None
    return {
        "fits": False,
        "rank": rank,
        "needed_nbytes": needed[rank],
        "missing_nbytes": needed[rank] - total,
        "others_nbytes": parts[rank][OTHERS],
        "failures": 0,
    }


# ---- text ------------------------------------------------------------------------------------------------------------


def memory_notes(memory: Mapping[str, Any]) -> list[str]:
    """The notes on memory for the terminal; none for a report without this part, or a run without GPU memory."""
    verdict, fullest = memory.get("verdict"), memory.get("fullest")
    if verdict is None or fullest is None or not memory["max_allocated_nbytes"]:
        return []
    notes = [f"memory: {_verdict_text(verdict, memory.get('total_nbytes', 0))}{range_text(memory)}"]
    known = {name: fullest["parts"][name] for name in ORDER if name in fullest["parts"]}
    parts = ", ".join(f"{name} {size(nbytes)}" for name, nbytes in (known | fullest["parts"]).items())
    notes.append(f"  rank {fullest['rank']} at its peak: {parts}")
    if growth := memory.get("growth"):
        notes[0] += f"; {growth_text(growth)}"
    named = [one for one in fullest["holders"] if one["op"] or one["site"]]
    notes += [f"  {_holder_text(one)}" for one in named[:SHOWN]]
    return notes


def range_text(memory: Mapping[str, Any]) -> str:
    """The range of the peak of allocated memory; empty if it does not depend on timing, or is not in the report."""
    most = memory["max_allocated_nbytes"]
    least = memory.get("least_allocated_nbytes", most)
    if least == most:
        return ""
    return f"; allocated {size(most)} ({size(least)} to {size(most)}: when NCCL's watchdog finds collectives done)"


def _verdict_text(verdict: Mapping[str, Any], total: int) -> str:
    rank, failures = verdict["rank"], verdict.get("failures", 0)
    if verdict["fits"]:
        least = verdict.get("least_needed_nbytes")
        needed = f"{size(least)} to " if least is not None else ""
        text = (
            f"fits: rank {rank} needs {needed}{size(verdict['needed_nbytes'])}, the allocator's cache included, of "
            f"{size(total)}; {size(verdict.get('left_nbytes', 0))} are left"
        )
        failed = f"{failures} request{'s' * (failures != 1)} for memory failed"
        return f"{text}; {failed}, and the script went on" if failures else text
    if others := verdict.get("others_nbytes", 0):
        return (
            f"does not fit: the GPU of rank {rank} would need {size(verdict['needed_nbytes'])} of {size(total)} "
            f"({size(verdict['missing_nbytes'])} are missing), {size(others)} of it for other ranks"
        )
    at = f" at {verdict['site']}" if verdict.get("site") else ""
    text = f"does not fit: rank {rank} asked for {size(verdict.get('asked_nbytes', 0))}{at}"
    if missing := verdict.get("missing_nbytes", 0):
        needed = f"{size(verdict['needed_nbytes'])} of {size(total)}"
        return f"{text} and needed at least {needed}: {size(missing)} are missing, or more"
    unused = size(verdict.get("unused_nbytes", 0))
    text += f"; {unused} of the allocator's cache are in pieces that are too small (fragmentation)"
    if verdict.get("fragmented"):
        text += f"; with {EXPANDABLE} this request would have fitted"
    return text


def _holder_text(one: Mapping[str, Any]) -> str:
    by = f" by {one['op']}" if one["op"] else ""
    at = f" at {one['site']}" if one["site"] else ""
    return f"{size(one['nbytes'])} in {one['blocks']} block{'s' * (one['blocks'] != 1)}: {one['part']}{by}{at}"
