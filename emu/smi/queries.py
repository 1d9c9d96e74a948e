"""The fields of ``--query-gpu``: what each is called at the head of its column, and what it says of a GPU."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from .gpus import Gpu, System

NOT_KNOWN = "[N/A]"
"""The text in place of what NVML does not answer: what depends on the load of a GPU is not emulated."""


@dataclass(frozen=True, slots=True)
class Form:
    """The form of the answer, after ``csv``."""

    header: bool = True
    units: bool = True


@dataclass(frozen=True, slots=True)
class _Field:
    says: Callable[[System, Gpu], str | int | None]
    unit: str = ""


def _mhz(of: Callable[[Gpu], int | None]) -> _Field:
    return _Field(lambda system, gpu: of(gpu), "MHz")


def _watts(of: Callable[[Gpu], float | None]) -> _Field:
    return _Field(lambda system, gpu: None if (limit := of(gpu)) is None else f"{limit:.2f}", "W")


def _nothing(unit: str = "") -> _Field:
    return _Field(lambda system, gpu: None, unit)


_FIELDS = {
    "timestamp": _Field(lambda system, gpu: f"{datetime.datetime.now():%Y/%m/%d %H:%M:%S.%f}"[:-3]),
    "driver_version": _Field(lambda system, gpu: system.driver),
    "count": _Field(lambda system, gpu: len(system.gpus)),
    "name": _Field(lambda system, gpu: gpu.name),
    "index": _Field(lambda system, gpu: gpu.index),
    "uuid": _Field(lambda system, gpu: gpu.uuid),
    "pci.bus_id": _Field(lambda system, gpu: gpu.pci),
    "pci.domain": _Field(lambda system, gpu: f"0x{0:04X}"),
    "pci.bus": _Field(lambda system, gpu: f"0x{gpu.pci_bus:02X}"),
    "pci.device": _Field(lambda system, gpu: f"0x{0:02X}"),
    "compute_cap": _Field(lambda system, gpu: gpu.capability),
    "memory.total": _Field(lambda system, gpu: gpu.total_mib, "MiB"),
    "memory.used": _Field(lambda system, gpu: gpu.used_mib, "MiB"),
    "memory.free": _Field(lambda system, gpu: gpu.free_mib, "MiB"),
    "power.limit": _watts(lambda gpu: gpu.power_limit_w),
    "enforced.power.limit": _watts(lambda gpu: gpu.power_limit_w),
    "power.default_limit": _watts(lambda gpu: gpu.power_limit_w),
    "clocks.max.sm": _mhz(lambda gpu: gpu.sm_mhz),
    "clocks.max.graphics": _mhz(lambda gpu: gpu.sm_mhz),
    "clocks.max.memory": _mhz(lambda gpu: gpu.memory_mhz),
    "clocks.current.sm": _mhz(lambda gpu: gpu.sm_mhz),
    "clocks.current.graphics": _mhz(lambda gpu: gpu.sm_mhz),
    "clocks.current.memory": _mhz(lambda gpu: gpu.memory_mhz),
    "ecc.mode.current": _Field(lambda system, gpu: None if gpu.ecc is None else "Enabled" if gpu.ecc else "Disabled"),
    "utilization.gpu": _nothing("%"),
    "utilization.memory": _nothing("%"),
    "temperature.gpu": _nothing(),
    "temperature.memory": _nothing(),
    "power.draw": _nothing("W"),
    "power.draw.average": _nothing("W"),
    "power.draw.instant": _nothing("W"),
    "fan.speed": _nothing("%"),
    "pstate": _nothing(),
    "persistence_mode": _nothing(),
    "compute_mode": _nothing(),
    "mig.mode.current": _nothing(),
    "serial": _nothing(),
    "vbios_version": _nothing(),
    "pcie.link.gen.current": _nothing(),
    "pcie.link.gen.max": _nothing(),
    "pcie.link.width.current": _nothing(),
    "pcie.link.width.max": _nothing(),
}
_ALSO = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "gpu_serial": "serial",
    "clocks.sm": "clocks.current.sm",
    "clocks.gr": "clocks.current.graphics",
    "clocks.mem": "clocks.current.memory",
    "clocks.max.gr": "clocks.max.graphics",
    "clocks.max.mem": "clocks.max.memory",
}
"""Other names of fields."""


def unknown(names: Sequence[str]) -> list[str]:
    """Returns the names that are no fields here."""
    return [name for name in names if _full(name) not in _FIELDS]


def answer(system: System, gpus: Sequence[Gpu], names: Sequence[str], form: Form) -> Iterator[str]:
    """Yields the lines of the answer. `names`: of fields, all known."""
    fields = [(_full(name), _FIELDS[_full(name)]) for name in names]
    if form.header:
        yield ", ".join(f"{name} [{field.unit}]" if field.unit else name for name, field in fields)
    for gpu in gpus:
        yield ", ".join(_said(field.says(system, gpu), field.unit if form.units else "") for _, field in fields)


def _full(name: str) -> str:
    return _ALSO.get(name, name)


def _said(value: str | int | None, unit: str) -> str:
    if value is None:
        return NOT_KNOWN
    return f"{value} {unit}" if unit else str(value)
