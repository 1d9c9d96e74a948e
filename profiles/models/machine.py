"""The GPU that is available to one kernel: alone, or beside NCCL's resident kernel, which holds SMs and takes memory
bandwidth.

Every family's model is a function of a Machine, so that the contended cost is the same physics with less of everything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from profiles.descriptions.gpu import L2_REACH, Gpu
from profiles.kernel_names.kernel_name import KernelName
from profiles.signature import Kernel

LANES_PER_CYCLE = 128  # four schedulers, one warp instruction of 32 lanes each: every NVIDIA SM since Volta
COLD = 0.05  # share of the traffic that is never there: weights, which no kernel touched lately
BLOCK_CYCLES = 1.19  # cycles of the full clock between two blocks that the GPU hands out: Hopper, whatever the kernel
LEFT_BESIDE_NCCL = 0.0  # share of the L2 cache's contents that is left beside a collective of megabytes
OVERLAP = 4.0  # exponent that joins two resources used at once: 1 would add their times, infinity take the longer


@dataclass(frozen=True, slots=True)
class Machine:
    gpu: Gpu
    sms: int
    memory_gb_per_s: float
    l2_gb_per_s: float
    left_in_l2: float = 1.0
    """The share of the data that a kernel would find in the L2 cache if no other kernel used it and that is still
    there.
    """

    @classmethod
    def alone(cls, gpu: Gpu) -> Machine:
        achieved = gpu.achieved
        return cls(gpu, gpu.sm_count, gpu.memory.bandwidth_gb_per_s * achieved.memory_fraction, achieved.l2_gb_per_s)

    @classmethod
    def beside_nccl(cls, gpu: Gpu) -> Machine:
        """The machine beside NCCL: its channels take one SM each; its copies take their share of the memory's
        bandwidth, and of the cache's; and the data that passes through the cache drives out what was there.
        """
        whole = cls.alone(gpu)
        left = 1.0 - gpu.nccl.memory_share
        return cls(
            gpu, gpu.sm_count - gpu.nccl.sms, whole.memory_gb_per_s * left, whole.l2_gb_per_s * left, LEFT_BESIDE_NCCL
        )

    def loaded_ns(self, latency_ns: float) -> float:
        """The latency of a load on this machine: it grows as the bandwidth that is left shrinks."""
        whole = self.gpu.memory.bandwidth_gb_per_s * self.gpu.achieved.memory_fraction
        return latency_ns * whole / self.memory_gb_per_s

    def streamed_ns(self, nbytes: float, *, blocks: int | None = None) -> float:
        """The time of `memory_ns` for a kernel that writes as it reads: its writes go to the cache, which leaves the
        memory to the reads, so it finds more of its bytes in the cache than a kernel that mostly reads.
        """
        return self.memory_ns(nbytes, blocks=blocks, reach=self.gpu.achieved.l2_reach)

    def memory_ns(
        self, nbytes: float, *, blocks: int | None = None, cold: float = COLD, reach: float = L2_REACH
    ) -> float:
        """The time to read and write `nbytes` in all, by `blocks` thread blocks (None: enough to fill the GPU).

        The chance that data is still in the L2 cache, where the kernel before left it, falls linearly with the
        traffic and is gone at `reach` times the cache's size; a share `cold` of it never is there. Few blocks cannot
        draw the whole bandwidth: an SM has a limit of its own.
        """
        cold = 1.0 - self.left_in_l2 * (1.0 - min(cold + nbytes / (reach * self.gpu.memory.l2_nbytes), 1.0))
        ns = nbytes * (cold / self.memory_gb_per_s + (1 - cold) / max(self.l2_gb_per_s, self.memory_gb_per_s))
        if blocks is not None:
            ns = max(ns, nbytes / (max(1, min(blocks, self.sms)) * self.gpu.achieved.sm_gb_per_s))
        return ns

    def dealt_out_ns(self, blocks: int) -> float:
        """The time in which so many blocks are handed out, one after another, to all SMs."""
        return blocks * BLOCK_CYCLES / (self.gpu.sm_clock_khz * 1e-6)

    def issue_ns(self, instructions: float) -> float:
        """The time to issue so many per-thread instructions, spread over the SMs."""
        return instructions / (self.sms * LANES_PER_CYCLE * self.gpu.sm_clock_khz * 1e-6)

    def tensor_flops_per_ns(self, dtype: str) -> float:
        """The FLOP/ns that one SM's tensor cores sustain in a large product; without tensor cores for the dtype, those
        of its vector units.
        """
        achieved = self.gpu.achieved
        fraction = achieved.vector_fraction if dtype in ("f32", "f64") else achieved.tensor_fraction
        return self.gpu.peak_flops(dtype) * fraction / self.gpu.sm_count * 1e-9

    def quantised(self, blocks: int) -> float:
        """The work of the busiest SM over the average, for `blocks` of equal work."""
        return ceil(blocks / self.sms) * self.sms / max(blocks, 1)


def overlapped(*times_ns: float, exponent: float = OVERLAP) -> float:
    """The time of work that uses several resources at once: at least the longest, at most the sum."""
    longest = max(times_ns)
    if longest <= 0:
        return 0.0
    total = sum((one / longest) ** exponent for one in times_ns)
    return float(longest * total ** (1 / exponent))


Model = Callable[[Machine, Kernel, KernelName], float]
"""Computes the time of a kernel launched by name, without the floor of a launch."""


@dataclass(frozen=True, slots=True)
class Estimate:
    solo_ns: float
    contended_ns: float
    flops: float = 0.0
    """The useful floating-point operations, for MFU."""
    model: str = ""
    """The model's name, under which its error is known (profiles.models.errors)."""
    kernels: int = 1
    """The number of kernels and fills that the work consists of."""
    nbytes: float = 0.0
    """The bytes that the work must read and write at least once; 0: not known."""
    peak: str = ""
    """The dtype whose peak rate bounds `flops`."""
    is_chain: bool = False
    """True if steps that wait for each other decide the time, not bytes."""
    unknown: str = ""
    """Names the properties of the work that the model does not know and has assumed."""
    at_least: bool = False
    """True if it is a lower bound, since sizes of the work are not known."""


def both(
    gpu: Gpu,
    ns: Callable[[Machine], float],
    flops: float = 0.0,
    *,
    model: str,
    kernels: int = 1,
    nbytes: float = 0.0,
    peak: str = "",
) -> Estimate:
    """A model evaluated alone and beside NCCL; the floor of one launch is added here."""
    floor = gpu.achieved.kernel_floor_ns
    alone, beside = floor + ns(Machine.alone(gpu)), floor + ns(Machine.beside_nccl(gpu))
    return Estimate(alone, beside, flops, model, kernels, nbytes, peak)
