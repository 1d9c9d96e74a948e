"""Finds answers that another machine would have given differently, as far as they are known before virtual time
runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from typing import Any

from emu.contract import records
from emu.contract.records import MarkerKind
from phantora_async.errors import PathChanged
from phantora_async.recording import Recording
from phantora_async.replaying.attribute_reads import AttributeRead, other_reads
from phantora_async.replaying.site_lines import line_of
from phantora_async.run_spec import RunSpec
from profiles import CALL_KINDS, Gpu

QUERIES, MEMORY, WIDTH, ATTRIBUTES = "queries", "memory", "width", "attributes"
MAY_CHANGE = (QUERIES, MEMORY, WIDTH, ATTRIBUTES)
"""The kinds of answers that stop a replay, unless the user allows that they change."""
Allowed = Set[str]
_ALLOC = CALL_KINDS.index("alloc")
_ATTENTION = re.compile(r"^(sdpa|windowed|packed);|flash_fwd|flash_bwd|fmha_cutlass")
"""Finds the signatures of attention by cuDNN, FlashAttention and CUTLASS."""


def check_memory(recording: Recording, spec: RunSpec, allowed: Allowed) -> None:
    """Raises PathChanged if a request for memory, or a question about it, would have been answered otherwise."""
    then, now = recording.setup.gpu.memory, spec.gpu.memory
    if (then.total_nbytes, then.reserved_nbytes) == (now.total_nbytes, now.reserved_nbytes) or MEMORY in allowed:
        return
    usable = now.total_nbytes - now.reserved_nbytes
    for rank in recording.own:
        asked = recording.memory(rank)
        if asked.peak_nbytes > usable:
            raise _changed(
                recording,
                rank,
                0,
                "memory (cudaMalloc)",
                f"{asked.peak_nbytes:,} bytes in all, given",
                f"{usable:,} bytes at most",
            )
        if asked.failures:
            raise _changed(recording, rank, asked.failed_site, "memory (cudaMalloc)", "refused", "perhaps given")
        if asked.looked_site is not None:
            question = "how much memory is free (cudaMemGetInfo)"
            raise _changed(
                recording, rank, asked.looked_site, question, f"of {then.total_nbytes:,}", f"of {now.total_nbytes:,}"
            )


def check_attributes(recording: Recording, spec: RunSpec, allowed: Allowed) -> list[AttributeRead]:
    """The script's own reads of its GPU that differ now. Raises PathChanged unless that is allowed."""
    found = list(other_reads(recording, spec.gpu))
    if found and ATTRIBUTES not in allowed:
        raise PathChanged(
            f"the replay leaves the recorded path: rank {found[0].rank} asked at {found[0].line} for the GPU's "
            f"{found[0].attribute}; recorded: {found[0].then}, now: {found[0].now}",
            "what the script does on another GPU is not recorded: run it; or replay with --allow attributes, if it "
            "decides nothing by the answer",
        )
    return found


def _changed(recording: Recording, rank: int, site: int, asked: str, then: str, now: str) -> PathChanged:
    return PathChanged(
        f"the replay leaves the recorded path: rank {rank} asked at {line_of(recording, rank, site)} for {asked}; "
        f"recorded: {then}, now: {now}",
        "what the script does after another answer is not recorded: run it; or replay with --allow memory, if the "
        "answer decides nothing",
    )


def attributes(recording: Recording, gpu: Gpu) -> dict[str, tuple[int, int]]:
    """The device attributes that have changed: PyTorch reads all of them when it starts. `check_attributes` has those
    that the script itself has read.
    """
    then = dict(recording.setup.gpu.attributes)
    changed = {
        attribute.name.lower(): (then[attribute], value)
        for attribute, value in gpu.attributes
        if attribute in then and then[attribute] != value
    }
    if recording.setup.gpu.sm_count != gpu.sm_count:
        changed["multiprocessor_count"] = recording.setup.gpu.sm_count, gpu.sm_count
    return changed


def memory_calls(recording: Recording, rank: int, first: int, last: int) -> int:
    """The number of times that the rank asked CUDA for memory, pinned memory included, in these recorded steps.
    PyTorch's allocators do so while the GPU still works on what they could use again. The first step is step 1.
    """
    works, lists = recording.dictionary.works, recording.dictionary.lists
    rows = recording.stream(rank).rows
    marked = rows["values"][rows["kind"] == records.MARKER, 0].tolist()
    ends_step = MarkerKind.NAMED if MarkerKind.NAMED in marked else MarkerKind.STEP
    markers = iter(marked)
    step = calls = 0
    for launches, work, kind, _ in recording.history(rank).tolist():
        if first <= step + 1 <= last:
            of_launches = (launch.work for launch in lists[launches]) if kind == records.SEGMENT else (work,)
            calls += sum(dict(works[one].counts).get(_ALLOC, 0) for one in of_launches if one in works)
        step += kind == records.MARKER and next(markers, None) == ends_step
    return calls


def grid_share(report: dict[str, Any], sm_count: int) -> float:
    """The share of the GPU time of kernels that have as many blocks as the recorded GPU has SMs, or a multiple: another
    GPU would be given other grids.
    """
    kernels = report["simulated"]["kernels"]
    chosen_ns = sum(one["total_ns"] for one in kernels["signatures"] if _blocks(one["signature"]) % sm_count == 0)
    return chosen_ns / kernels["gpu_ns"] if kernels["gpu_ns"] else 0.0


def attention_by(gpu: Gpu) -> str:
    """The implementation of attention that PyTorch prefers on a GPU of this capability (`priority_order` and
    `check_flash_attention_hardware_support` in its sdp_utils.cpp).
    """
    if gpu.cc_major in (9, 10) and gpu.cc_minor in (0, 3):
        return "cuDNN"
    return "FlashAttention" if gpu.cc_major >= 8 else "memory-efficient attention"


def attention_remarks(recorded: Gpu, now: Gpu, share: float) -> Iterator[str]:
    """Says what attention keeps of the recorded GPU. `share`: of the GPU time, which attention takes."""
    before, after = attention_by(recorded), attention_by(now)
    if before != after and share:
        yield (
            f"PyTorch prefers {before} on {recorded.name} and {after} on {now.name}: attention keeps the kernels that "
            f"were recorded, {share:.1%} of GPU time, unless the script chooses them; a run there has others"
        )
    elif (recorded.cc_major, recorded.cc_minor) != (now.cc_major, now.cc_minor) and share:
        yield (
            f"PyTorch may call other operators around attention on a GPU of capability {now.cc_major}.{now.cc_minor} "
            f"than on one of {recorded.cc_major}.{recorded.cc_minor}: the host does what was recorded"
        )


def attention_share(report: dict[str, Any]) -> float:
    """The share of the GPU time that attention takes."""
    kernels = report["simulated"]["kernels"]
    attention_ns = sum(one["total_ns"] for one in kernels["signatures"] if _ATTENTION.search(one["signature"]))
    return attention_ns / kernels["gpu_ns"] if kernels["gpu_ns"] else 0.0


def _blocks(signature: str) -> int:
    """The number of blocks of a kernel's grid; 1 for work without a grid."""
    kind, *fields = signature.split(";")
    if kind not in ("kernel", "strided", "triton", "grouped"):
        return 1
    blocks = 1
    for size in fields[1].split(","):
        blocks *= int(size)
    return blocks
