"""Finds which attributes of its GPU the script itself has read, and what another GPU would have answered.

Libraries read attributes, too, to choose kernels: these choices are as recorded. The script may decide anything by
them: how large a batch is, which model it builds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from emu.contract import records
from phantora_async.recording import Recording
from phantora_async.replaying.site_lines import line_of
from profiles import Gpu

AMPERE = 8
_BY_NAME: dict[str, Callable[[Gpu], object]] = {
    "name": lambda gpu: gpu.device_name,
    "gcnArchName": lambda gpu: gpu.device_name,
    "total_memory": lambda gpu: f"{gpu.memory.total_nbytes:,}",
    "capability": lambda gpu: f"{gpu.cc_major}.{gpu.cc_minor}",
    "bf16_supported": lambda gpu: gpu.cc_major >= AMPERE,
    "power_limit": lambda gpu: f"{gpu.power_limit_w} W",
    "clocks": lambda gpu: f"{gpu.sm_clock_khz} and {gpu.memory.clock_khz} kHz",
    "properties": lambda gpu: f"those of an {gpu.device_name}",
}
_ATTRIBUTES = {
    "major": "COMPUTE_CAPABILITY_MAJOR",
    "minor": "COMPUTE_CAPABILITY_MINOR",
    "multi_processor_count": "MULTIPROCESSOR_COUNT",
    "max_threads_per_multi_processor": "MAX_THREADS_PER_MULTIPROCESSOR",
    "max_threads_per_block": "MAX_THREADS_PER_BLOCK",
    "regs_per_multiprocessor": "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "shared_memory_per_block": "SHARED_MEMORY_PER_BLOCK",
    "shared_memory_per_block_optin": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "shared_memory_per_multiprocessor": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "warp_size": "WARP_SIZE",
    "L2_cache_size": "L2_CACHE_SIZE",
    "clock_rate": "CLOCK_RATE",
    "memory_clock_rate": "MEMORY_CLOCK_RATE",
    "memory_bus_width": "GLOBAL_MEMORY_BUS_WIDTH",
    "is_integrated": "INTEGRATED",
    "is_multi_gpu_board": "MULTI_GPU_BOARD",
}
"""The names that PyTorch has for CUDA's attributes."""
NUMBERED = "attr."


class AttributeRead(NamedTuple):
    """A read by the script, in one of its lines, of an attribute that differs on this GPU."""

    rank: int
    line: str
    attribute: str
    then: str
    now: str

    def __str__(self) -> str:
        return f"{self.attribute} at {self.line}, where it was {self.then} and now would be {self.now}"


def value_of(gpu: Gpu, attribute: str) -> object:
    """The value that the GPU answers; None where a description does not say it."""
    if attribute in _BY_NAME:
        return _BY_NAME[attribute](gpu)
    known = dict(gpu.attributes)
    number = attribute.removeprefix(NUMBERED)
    return next(
        (value for one, value in known.items() if one.name == _ATTRIBUTES.get(attribute) or str(one.value) == number),
        None,
    )


def other_reads(recording: Recording, gpu: Gpu) -> Iterator[AttributeRead]:
    """Yields the differing reads of ranks that have timelines of their own, each rank's in order."""
    if gpu == recording.setup.gpu:
        return
    for rank in recording.own:
        for record in recording.side(rank):
            if record.kind == records.ATTRIBUTE_READ:
                name = record.payload.rstrip(b"\0").decode(errors="replace")
                then, now = value_of(recording.setup.gpu, name), value_of(gpu, name)
                if then != now:
                    yield AttributeRead(rank, line_of(recording, rank, record.at_site), name, str(then), str(now))


def as_json(read: AttributeRead) -> dict[str, Any]:
    return read._asdict()
