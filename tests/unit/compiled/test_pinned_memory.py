"""Triton programs read and store pinned host memory as they do the device's, also both in one launch."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from emu.compiled.launches import CompiledKernels  # noqa: E402
from emu.control.host_views import HostViews  # noqa: E402

PROGRAM = "|".join(
    (
        "module {",
        "tt.func public @f(%in: !tt.ptr<i64>, %out: !tt.ptr<i64>) attributes {noinline = false} {",
        "%pid = tt.get_program_id x : i32",
        "%p = tt.addptr %in, %pid : !tt.ptr<i64>, i32",
        "%address = tt.load %p : !tt.ptr<i64>",
        "%from = tt.int_to_ptr %address : i64 -> !tt.ptr<i64>",
        "%x = tt.load %from : !tt.ptr<i64>",
        "%to = tt.addptr %out, %pid : !tt.ptr<i64>, i32",
        "tt.store %to, %x : !tt.ptr<i64>",
        "tt.return",
        "}",
        "}",
    )
)


class Machine:
    """Device memory, and two ranges of pinned memory that begin at odd addresses."""

    def __init__(self) -> None:
        self.device = (ctypes.c_char * 256)()
        self.blocks = [(ctypes.c_char * 64)() for _ in range(2)]
        self.pinned = [(ctypes.addressof(block) + 1, 63) for block in self.blocks]
        self.compute: Any = None
        self.store: Any = None

    def device_range(self) -> tuple[int, int]:
        return ctypes.addressof(self.device), 256

    def host_range(self, address: int) -> tuple[int, int]:
        return next(((start, n) for start, n in self.pinned if 0 <= address - start < n), (0, 0))

    def compute_programs(self, compute: Any, store: Any) -> None:
        self.compute, self.store = compute, store

    def data_state(self, address: int, nbytes: int) -> int:
        return 1

    def data_in_use(self, address: int, nbytes: int) -> int:
        return 0

    def data_mark_known(self, address: int, nbytes: int) -> None:
        pass


def write(address: int, *values: int) -> None:
    (ctypes.c_int64 * len(values)).from_address(address)[:] = values


def test_one_load_reads_the_device_and_several_ranges_of_the_host() -> None:
    """A table of pointers leads each instance elsewhere."""
    machine = Machine()
    control: Any = SimpleNamespace(capturing=lambda: False, unrecorded=lambda work: work())
    kernels = CompiledKernels(machine, control)  # type: ignore[arg-type]
    device, first, second = ctypes.addressof(machine.device), *(ctypes.addressof(block) for block in machine.blocks)
    write(device + 8, 7)
    write(first + 8, 11)
    write(second + 16, 13)
    table, out = first + 24, second + 24
    write(table, device + 8, first + 8, second + 16)
    number = kernels.number(PROGRAM)
    assert number
    assert machine.compute(number, [3, 1, 1, table, out])
    machine.store()
    assert list((ctypes.c_int64 * 3).from_address(out)) == [7, 11, 13]


def test_an_address_in_no_range_has_no_tensor() -> None:
    machine = Machine()
    views = HostViews(machine)  # type: ignore[arg-type]
    start, nbytes = machine.pinned[0]
    assert views.range_of(start + nbytes, torch.int8) is None
    assert views.range_of(start, torch.quint8) is None
    found = views.range_of(start + 3, torch.int32)
    assert found is not None
    assert (start + 3 - found.start) % 4 == 0
    assert start <= found.start < start + 4
    assert found.start + 4 * found.base.numel() <= start + nbytes
