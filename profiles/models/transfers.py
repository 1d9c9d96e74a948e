"""Copies and memory fills."""

from __future__ import annotations

from dataclasses import replace

from profiles.descriptions.gpu import Gpu
from profiles.models.machine import Estimate, both
from profiles.signature import Copy, Memset

DEVICE_COPY_START_NS = 100.0
PEER_START_NS = 2_000.0  # estimate: a copy engine's way to another GPU's memory
SLOW_NBYTES = 400_000  # the first bytes over PCIe go at half the rate: measured 19 us for 440 KB, 83 us for 4.1 MB
DEVICE_COPY_RATE = 0.93  # share of a streaming kernel's bandwidth
FILL = 0.93  # share of a copy's time per byte: pure writes need no turnaround of the memory bus
FILL_FLOOR = 0.85  # share of a kernel's floor: the driver's own kernel has no arguments to fetch


def copy(gpu: Gpu, what: Copy) -> Estimate:
    """Copy engines move data over PCIe, which NCCL over NVLink does not slow. Copies on the device stream memory. Those
    between GPUs go over NVLink, where there is one; that others use it then is not modelled.
    """
    if what.direction == "p2p":
        ns = PEER_START_NS + what.nbytes / (gpu.peer_gb_per_s or gpu.pcie.pinned_gb_per_s)
        return Estimate(ns, ns, model="copy between GPUs", nbytes=float(what.nbytes))
    if what.direction == "d2d":
        nbytes = 2.0 * what.nbytes
        return both(
            gpu,
            lambda machine: DEVICE_COPY_START_NS + machine.streamed_ns(nbytes) / DEVICE_COPY_RATE,
            model="copy on the device",
            nbytes=nbytes,
        )
    rate = gpu.pcie.pinned_gb_per_s if what.memory == "pinned" else gpu.pcie.pageable_gb_per_s
    ns = gpu.pcie.latency_ns + (what.nbytes + min(what.nbytes, SLOW_NBYTES)) / rate
    return Estimate(ns, ns, model=f"copy, {what.memory}")


def memset(gpu: Gpu, what: Memset) -> Estimate:
    found = both(gpu, lambda machine: FILL * machine.memory_ns(what.nbytes), model="memory fill", nbytes=what.nbytes)
    less = gpu.achieved.kernel_floor_ns * (1 - FILL_FLOOR)
    return replace(found, solo_ns=found.solo_ns - less, contended_ns=found.contended_ns - less)
