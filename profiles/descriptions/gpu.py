"""A GPU as the emulation and the cost model need it, read from one TOML file.

Units: bytes, kilohertz as CUDA reports clocks, TFLOP/s = 1e12/s dense (no sparsity), GB/s = 1e9 bytes/s.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from profiles.descriptions.catalog import read
from profiles.descriptions.cuda_attributes import Attribute
from profiles.descriptions.device_attributes import attributes
from profiles.descriptions.fields import MOST_NBYTES, Fields
from profiles.descriptions.slowest import largest_of
from profiles.errors import ProfileError

MOST_SMS = 10_000
MOST_WINDOW_MS = 1_000
MOST_LINKS = 18
"""NVML numbers no more."""
MOST_WATTS = 100_000
MOST_SPREAD = 0.5
CONTEXT_NBYTES = 645_464_064
"""The bytes of a context where a file has none. Measured on an H200 (2026-11-28, PyTorch 2.11): the bytes that a
process takes of another one's GPU beside its first tensor there; its first matrix product takes 71,303,168 more.
"""
PEAK_DTYPES = ("f64", "f32", "tf32", "f16", "bf16", "f8", "i8")
OPTIONAL_PEAKS = {"f4": "f8"}
"""The peaks that a file may leave out, each with the one that applies then."""


@dataclass(frozen=True, slots=True)
class Memory:
    total_nbytes: int
    """The total that cudaMemGetInfo reports."""
    reserved_nbytes: int
    """The bytes that a context, the libraries' code and NCCL's buffers take: the program can never allocate them."""
    context_nbytes: int
    """The part of these that each further process takes that uses the GPU: a context, the libraries' code."""
    bandwidth_gb_per_s: float
    clock_khz: int
    bus_width_bits: int
    l2_nbytes: int


@dataclass(frozen=True, slots=True)
class Limits:
    threads_per_sm: int
    blocks_per_sm: int
    shared_nbytes_per_sm: int
    shared_nbytes_per_block_optin: int
    async_engines: int


@dataclass(frozen=True, slots=True)
class Pcie:
    """Copies between host and device: the rates of large ones, and the time before the first byte."""

    pinned_gb_per_s: float
    pageable_gb_per_s: float
    latency_ns: int


@dataclass(frozen=True, slots=True)
class Achieved:
    """The shares of the datasheet's peaks that real kernels reach; docs/costs.md says how each was found."""

    memory_fraction: float
    """The share of the memory's bandwidth that a large streaming kernel gets."""
    l2_gb_per_s: float
    """The bandwidth of data that fits the L2 cache."""
    l2_reach: float
    """The factor on the L2 cache's size from which on the traffic of a kernel that writes as it reads finds nothing in
    it.
    """
    tensor_fraction: float
    """The share of the tensor cores' peak that a large GEMM's main loop sustains: at the full clock if the GPU's power
    is described, else at the clock that power allows.
    """
    vector_fraction: float
    """The share of the peak that arithmetic outside the tensor cores sustains."""
    sm_gb_per_s: float
    """The bandwidth that one SM can draw by itself, which bounds kernels of few blocks."""
    kernel_floor_ns: int
    """The duration of a kernel that does next to nothing."""
    launch_gap_ns: int
    """The time between the end of a kernel and the start of the next one, which waits in the stream's queue."""
    graph_gap_ns: int
    """The time between the end of a node of a CUDA graph and the start of the next one."""
    uncertainty: float
    """The factor by which the models' errors are larger than on an H200."""


ON_PCIE = "pcie"
"""The name of the cluster of a GPU whose description names none."""
L2_REACH = 1.2
"""The value of `l2_reach` for a file that does not state it."""
NOT_MEASURED = 2.5
"""The uncertainty of a GPU on which no kernel has been measured: that of the worst one that was."""


@dataclass(frozen=True, slots=True)
class NcclKernel:
    """The resources that NCCL's resident kernel takes from the kernels beside it."""

    sms: int
    """Its channels, which hold one SM each."""
    memory_share: float
    """The share of the memory's bandwidth that its copies use."""


@dataclass(frozen=True, slots=True)
class Power:
    """The GPU's power, by which its clock follows the kernels."""

    product_w: int
    """The watts that large matrix products would draw at the full clock. They exceed the limit, so the clock falls."""
    idle_w: int
    """The watts between kernels, while the clock is still up."""
    nccl_w: int
    """The watts while only NCCL's kernels run: they move data or wait. The clock does not take them into account."""
    window_ns: int
    """The time over which the draw is averaged."""
    spread: float = 0.0
    """The standard deviation of the power of GPUs of one kind for the same work, as a share of the mean."""
    among: int = 1
    """The number of GPUs for whose hungriest one this stands, since the others wait for it."""

    @property
    def hunger(self) -> float:
        """The power that it draws, relative to the mean GPU."""
        return 1 + self.spread * largest_of(self.among)


@dataclass(frozen=True, slots=True)
class Gpu:
    name: str
    device_name: str
    cc_major: int
    cc_minor: int
    sm_count: int
    sm_clock_khz: int
    """The highest clock that it reports. Under load it is lower: `achieved` has the rates of products."""
    power_limit_w: int
    """The default limit of the board."""
    nvlinks: int
    """The number of its NVLinks, which servers with NVSwitch use."""
    memory: Memory
    limits: Limits
    pcie: Pcie
    achieved: Achieved
    nccl: NcclKernel
    power: Power | None
    """The GPU's power; None: not described. Then the clock stays, and `Achieved.tensor_fraction` includes what power
    costs products.
    """
    peaks: tuple[tuple[str, float], ...]
    """The FLOP/s by dtype of PEAK_DTYPES, and of OPTIONAL_PEAKS where the file has them."""
    attributes: tuple[tuple[Attribute, int], ...]
    """The values of all device attributes that CUDA defines, except the PCI ids of a board."""
    path: Path
    peer_gb_per_s: float | None = None
    """The GB/s at which it reads another GPU's memory, where a cluster says so; None: as over PCIe."""
    servers: str = ON_PCIE
    """The name of the cluster of servers that it is sold in."""

    @property
    def products_by_warp_groups(self) -> bool:
        """True if tensor cores take operands from shared memory for four warps at once: Hopper and Blackwell of data
        centres. Those of 12.x work for one warp, as Ampere's and Ada's.
        """
        return 9 <= self.cc_major < 12

    def peak_flops(self, dtype: str) -> float:
        """Dense FLOP/s of the fastest unit for products of this dtype, as the datasheet says; the figure that MFU
        divides by.

        Raises ProfileError for a dtype that no unit multiplies.
        """
        key = "f8" if dtype.startswith("f8") else "i8" if dtype in ("u8", "b8") else dtype
        known = dict(self.peaks)
        if found := known.get(key) or known.get(OPTIONAL_PEAKS.get(key, "")):
            return found
        raise ProfileError(f"{self.path}: peak_tflops: no figure for dtype {dtype!r}; known: {', '.join(PEAK_DTYPES)}")

    def device_file_lines(self) -> list[str]:
        """The lines of the hook's device file, without those that the run decides (device_count, limits, host
        model).
        """
        return [
            f"device_name={self.device_name}",
            f"memory_nbytes={self.memory.total_nbytes}",
            f"reserved_nbytes={self.memory.reserved_nbytes}",
            f"context_nbytes={self.memory.context_nbytes}",
            f"sm_count={self.sm_count}",
            f"cc_major={self.cc_major}",
            f"cc_minor={self.cc_minor}",
            f"launch_gap_ns={self.achieved.launch_gap_ns}",
            f"graph_gap_ns={self.achieved.graph_gap_ns}",
            f"power_limit_w={self.power_limit_w}",
            *self._power_lines(),
            *(f"attr.{attribute.value}={value}" for attribute, value in self.attributes),
        ]

    def _power_lines(self) -> list[str]:
        if self.power is None:
            return []
        return [f"power_window_ns={self.power.window_ns}", f"power_idle={self.idle_thousandths}"]

    @property
    def idle_thousandths(self) -> int:
        """The power that it draws when it waits, in thousandths of its limit, as the hook library has it; 0 if not
        described.
        """
        if self.power is None:
            return 0
        return round(1000 * self.power.hunger * self.power.idle_w / self.power_limit_w)

    def one_of(self, count: int) -> Gpu:
        """The GPU that decides how long a job on so many of them takes: at its power limit, the one that draws most."""
        if self.power is None or not self.power.spread:
            return self
        return replace(self, power=replace(self.power, among=count))


def load_gpu(name_or_path: str | os.PathLike[str]) -> Gpu:
    """Reads a shipped GPU by name or a user's file by path. Raises UnknownProfile or ProfileError."""
    top = read("gpu", name_or_path)
    gpu = _gpu(top)
    top.texts("also", [])  # `catalog` reads it
    top.end()
    if gpu.memory.reserved_nbytes >= gpu.memory.total_nbytes:
        raise ProfileError(f"{top.path}: memory.reserved_nbytes: expected less than total_nbytes")
    if gpu.nccl.sms >= gpu.sm_count:
        raise ProfileError(f"{top.path}: nccl.sms: expected less than sm_count")
    return gpu


def _gpu(top: Fields) -> Gpu:
    capability = top.text("compute_capability")
    if not (version := re.fullmatch(r"([0-9]{1,2})\.([0-9])", capability)):
        raise top.error("compute_capability", f'expected text like "9.0", found {capability!r}')
    memory, limits, peaks, pcie, achieved, nccl = (
        top.table(key) for key in ("memory", "limits", "peak_tflops", "pcie", "achieved", "nccl")
    )
    found = Memory(
        total_nbytes=memory.integer("total_nbytes", least=1, most=MOST_NBYTES),
        reserved_nbytes=(reserved := memory.integer("reserved_nbytes", most=MOST_NBYTES)),
        context_nbytes=memory.integer("context_nbytes", min(CONTEXT_NBYTES, reserved), most=MOST_NBYTES),
        bandwidth_gb_per_s=memory.number("bandwidth_gb_per_s"),
        clock_khz=memory.integer("clock_khz", least=1),
        bus_width_bits=memory.integer("bus_width_bits", least=1),
        l2_nbytes=memory.integer("l2_nbytes", least=1),
    )
    bounds = Limits(
        threads_per_sm=limits.integer("threads_per_sm", least=32),
        blocks_per_sm=limits.integer("blocks_per_sm", least=1),
        shared_nbytes_per_sm=limits.integer("shared_nbytes_per_sm", least=1),
        shared_nbytes_per_block_optin=limits.integer("shared_nbytes_per_block_optin", least=1),
        async_engines=limits.integer("async_engines", 3, least=1),
    )
    sm_count = top.integer("sm_count", least=1, most=MOST_SMS)
    sm_clock_khz = top.integer("sm_clock_khz", least=1)
    major, minor = int(version[1]), int(version[2])
    known = attributes(
        cc=(major, minor),
        sm_count=sm_count,
        sm_clock_khz=sm_clock_khz,
        memory_clock_khz=found.clock_khz,
        bus_width_bits=found.bus_width_bits,
        l2_nbytes=found.l2_nbytes,
        threads_per_sm=bounds.threads_per_sm,
        blocks_per_sm=bounds.blocks_per_sm,
        shared_nbytes_per_sm=bounds.shared_nbytes_per_sm,
        shared_nbytes_per_block_optin=bounds.shared_nbytes_per_block_optin,
        async_engines=bounds.async_engines,
    )
    return Gpu(
        name=top.path.stem,
        device_name=top.text("device_name"),
        cc_major=major,
        cc_minor=minor,
        sm_count=sm_count,
        sm_clock_khz=sm_clock_khz,
        power_limit_w=top.integer("power_limit_w", least=1, most=MOST_WATTS),
        nvlinks=top.integer("nvlinks", 0, most=MOST_LINKS),
        memory=found,
        limits=bounds,
        pcie=Pcie(
            pinned_gb_per_s=pcie.number("pinned_gb_per_s"),
            pageable_gb_per_s=pcie.number("pageable_gb_per_s"),
            latency_ns=pcie.integer("latency_ns", least=1),
        ),
        achieved=Achieved(
            memory_fraction=achieved.number("memory_fraction", most=1.0),
            l2_gb_per_s=achieved.number("l2_gb_per_s"),
            l2_reach=achieved.number("l2_reach", L2_REACH),
            tensor_fraction=achieved.number("tensor_fraction", most=1.0),
            vector_fraction=achieved.number("vector_fraction", most=1.0),
            sm_gb_per_s=achieved.number("sm_gb_per_s"),
            kernel_floor_ns=achieved.integer("kernel_floor_ns", least=1),
            launch_gap_ns=achieved.integer("launch_gap_ns", 0),
            graph_gap_ns=achieved.integer("graph_gap_ns", 0),
            uncertainty=achieved.number("uncertainty", NOT_MEASURED),
        ),
        nccl=NcclKernel(nccl.integer("sms"), nccl.number("memory_share", most=0.9)),
        power=_power(top),
        peaks=tuple(
            (dtype, peaks.number(dtype) * 1e12)
            for dtype in (*PEAK_DTYPES, *(one for one in OPTIONAL_PEAKS if one in peaks))
        ),
        attributes=tuple(sorted((known | _overrides(top)).items())),
        path=top.path,
        servers=top.text("servers", ON_PCIE),
    )


def _power(top: Fields) -> Power | None:
    """The power in the table [power], which a file may leave out."""
    if "power" not in top:
        return None
    table = top.table("power")
    idle_w = table.integer("idle_w", most=MOST_WATTS)
    return Power(
        product_w=table.integer("product_w", least=1, most=MOST_WATTS),
        idle_w=idle_w,
        nccl_w=table.integer("nccl_w", idle_w, most=MOST_WATTS),
        window_ns=table.integer("window_ms", least=1, most=MOST_WINDOW_MS) * 1_000_000,
        spread=table.number("spread", 0.0, most=MOST_SPREAD) if "spread" in table else 0.0,
    )


def _overrides(top: Fields) -> dict[Attribute, int]:
    """The values in [attributes] that differ from what the rest of the file implies."""
    table = top.table("attributes", optional=True)
    found: dict[Attribute, int] = {}
    for name in table.keys():  # noqa: SIM118 - Fields is no mapping
        if name not in Attribute.__members__:
            raise table.error(name, "no such attribute; names are those of CUdevice_attribute, like ECC_ENABLED")
        found[Attribute[name]] = table.integer(name, least=-1)
    return found
