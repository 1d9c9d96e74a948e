"""What a family's model answers, and the two bounds every kernel obeys: memory traffic and the floor of a launch."""

from __future__ import annotations

from dataclasses import dataclass

from profiles.gpu import Gpu


@dataclass(frozen=True, slots=True)
class Estimate:
    """Durations are positive and contended_ns is at least solo_ns once rounded by the cost model."""

    solo_ns: float
    contended_ns: float
    flops: float = 0.0


def memory_ns(gpu: Gpu, nbytes: float, *, efficiency: float = 1.0) -> float:
    """Time to move `nbytes` (read and written together), the floor of a launch included.

    Traffic that fits half of the L2 cache moves at the cache's bandwidth: its producer, the kernel before, left it there.
    """
    dram = gpu.memory.bandwidth_gb_per_s * gpu.achieved.memory_fraction
    resident = min(nbytes, gpu.memory.l2_nbytes / 2)
    return (
        gpu.achieved.kernel_floor_ns + resident / gpu.achieved.l2_gb_per_s + (nbytes - resident) / (dram * efficiency)
    )


def streaming(gpu: Gpu, nbytes: float, *, efficiency: float = 1.0, flops: float = 0.0) -> Estimate:
    """A kernel bound by memory: beside NCCL it loses SMs and shares bandwidth."""
    solo = memory_ns(gpu, nbytes, efficiency=efficiency)
    lost = gpu.sm_count / (gpu.sm_count - gpu.nccl_sms)
    return Estimate(solo, solo * lost, flops)
