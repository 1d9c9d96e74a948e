"""The GPUs of this server, as NVML describes them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
_TEXT = 96
_MIB = 1 << 20
_GRAPHICS, _SM, _MEMORY = range(3)
"""Clocks, as NVML numbers them."""
_LINKS = 18
"""The most NVLinks of a GPU, as NVML numbers them."""


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Pci(ctypes.Structure):
    _fields_ = [
        ("legacy", ctypes.c_char * 16),
        *((name, ctypes.c_uint) for name in ("domain", "bus", "device", "id", "subsystem")),
        ("text", ctypes.c_char * 32),
    ]


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. What NVML does not answer is None."""

    index: int
    name: str
    uuid: str
    pci: str
    """Its address: ``00000000:1B:00.0``."""
    pci_bus: int
    capability: str
    total_mib: int
    used_mib: int
    free_mib: int
    power_limit_w: float | None
    sm_mhz: int | None
    memory_mhz: int | None
    ecc: bool | None
    nvlinks: int


@dataclass(frozen=True, slots=True)
class System:
    """A server: its GPUs, and the versions of the driver and of the CUDA that it supports."""

    driver: str
    cuda: str
    gpus: tuple[Gpu, ...]


class NvmlError(Exception):
    """Raised if NVML refuses what it has to answer; the text names the call."""


def read() -> System:
    """Raises NvmlError, and OSError if there is no library."""
    nvml = _Nvml()
    nvml("nvmlInit_v2")
    version = nvml.number(ctypes.c_int, "nvmlSystemGetCudaDriverVersion_v2")
    count = nvml.number(ctypes.c_uint, "nvmlDeviceGetCount_v2")
    gpus = tuple(_gpu(nvml, index) for index in range(count))
    return System(nvml.text("nvmlSystemGetDriverVersion"), f"{version // 1000}.{version % 1000 // 10}", gpus)


def _gpu(nvml: _Nvml, index: int) -> Gpu:
    device = ctypes.c_void_p()
    nvml("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(device))
    pci, memory = _Pci(), _Memory()
    nvml("nvmlDeviceGetPciInfo_v3", device, ctypes.byref(pci))
    nvml("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory))
    major, minor, ecc, pending = ctypes.c_int(), ctypes.c_int(), ctypes.c_uint(), ctypes.c_uint()
    nvml("nvmlDeviceGetCudaComputeCapability", device, ctypes.byref(major), ctypes.byref(minor))
    has_ecc = nvml.answers("nvmlDeviceGetEccMode", device, ctypes.byref(ecc), ctypes.byref(pending))
    limit_mw = nvml.optional("nvmlDeviceGetPowerManagementLimit", device)
    return Gpu(
        index,
        nvml.text("nvmlDeviceGetName", device),
        nvml.text("nvmlDeviceGetUUID", device),
        pci.text.decode(),
        pci.bus,
        f"{major.value}.{minor.value}",
        memory.total // _MIB,
        memory.total // _MIB - memory.free // _MIB,
        memory.free // _MIB,
        None if limit_mw is None else limit_mw / 1000,
        nvml.optional("nvmlDeviceGetMaxClockInfo", device, _SM),
        nvml.optional("nvmlDeviceGetMaxClockInfo", device, _MEMORY),
        bool(ecc.value) if has_ecc else None,
        sum(bool(nvml.optional("nvmlDeviceGetNvLinkState", device, link)) for link in range(_LINKS)),
    )


class _Nvml:
    """Calls of NVML by their names."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(LIBRARY)

    def __call__(self, name: str, *arguments: Any) -> None:
        if not self.answers(name, *arguments):
            raise NvmlError(f"{name} is refused")

    def answers(self, name: str, *arguments: Any) -> bool:
        call: Callable[..., int] = getattr(self._library, name)
        return call(*arguments) == 0

    def number(self, kind: type[Any], name: str, *arguments: Any) -> int:
        out = kind()
        self(name, *arguments, ctypes.byref(out))
        return int(out.value)

    def optional(self, name: str, *arguments: Any) -> int | None:
        """Returns the unsigned number that a call answers; None if it does not."""
        out = ctypes.c_uint()
        return out.value if self.answers(name, *arguments, ctypes.byref(out)) else None

    def text(self, name: str, *arguments: Any) -> str:
        out = ctypes.create_string_buffer(_TEXT)
        self(name, *arguments, out, _TEXT)
        return out.value.decode()
