"""Who holds memory at its peak: blocks of PyTorch's allocator, which a stand-in for libc10.so reports here."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emu.contract import records
from emu.contract.records import HeldKind
from phantora_async.ingest import memory_holders
from phantora_async.ingest.memory_holders import HeldMemory

from ...conftest import Once
from .test_ranges import Nvtx

MIB = 1 << 20
USAGE = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
FAILURE = "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE"
STANDIN = f"""
#include <stddef.h>
#include <stdint.h>
int recording = 1, reported;
void {USAGE}(void *start, int64_t nbytes, size_t allocated, size_t reserved, uint16_t device) {{ reported++; }}
void {FAILURE}(int64_t nbytes, size_t allocated, size_t reserved, uint16_t device) {{ reported++; }}
_Bool _ZN3c108GradMode10is_enabledEv(void) {{ return recording; }}
"""
MM, ADD, STEP = (f"{name}, op_id = 7, sizes = [[8]]".encode() for name in ("aten::mm", "aten::add", "Optimizer.step#A"))


class Allocator:
    """A stand-in that gives out blocks at places of its own choice, as the caching allocator does."""

    def __init__(self, hook: Any, libc10: Path) -> None:
        self.libc10 = ctypes.CDLL(str(libc10))
        self.nvtx = Nvtx(hook)
        self._hook = hook
        self._usage, self._failure = getattr(hook.c, USAGE), getattr(hook.c, FAILURE)
        sizes = [ctypes.c_int64, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_uint16]
        self._usage.argtypes, self._failure.argtypes = [ctypes.c_void_p, *sizes], sizes
        self._base = int(hook.c.phantora_device_base())
        self._next = 0
        self.nbytes: dict[int, int] = {}

    def allocate(self, mib: int, device: int = 0) -> int:
        slice_nbytes = (int(self._hook.c.phantora_device_nbytes()) - (16 << 40)) // 2
        address = self._base + device * slice_nbytes + self._next
        self._next += mib * MIB
        self.nbytes[address] = mib * MIB
        self._usage(address, mib * MIB, sum(self.nbytes.values()), 100 * MIB, device << 8 | 1)
        return address

    def free(self, address: int, device: int = 0) -> None:
        nbytes = self.nbytes.pop(address)
        self._usage(address, -nbytes, sum(self.nbytes.values()), 100 * MIB, device << 8 | 1)

    def fail(self, mib: int) -> None:
        self._failure(mib * MIB, sum(self.nbytes.values()), 100 * MIB, 1)

    def in_op(self, message: bytes, mib: int) -> int:
        self.nvtx.push(message)
        address = self.allocate(mib)
        self.nvtx.pop()
        return address

    def records(self, on: bool) -> None:
        """Says whether autograd records operators."""
        ctypes.c_int.in_dll(self.libc10, "recording").value = on

    def held_as(self, kind: int, *addresses: int) -> None:
        self._hook.c.phantora_memory_held(kind, (ctypes.c_uint64 * len(addresses))(*addresses), len(addresses))

    def tell(self, step_ends: bool = True) -> None:
        self._hook.c.phantora_memory_tell(step_ends)

    def step(self) -> None:
        """Does what the end of a step does."""
        if self._hook.c.phantora_memory_step():
            self.tell()

    def grew(self) -> bool:
        return bool(self._hook.c.phantora_memory_grew())


@pytest.fixture
def in_another_process(request: pytest.FixtureRequest, once: Once) -> str:
    """Returns what a process without PyTorch says of all tests of the test's file: one line for each."""

    def run(folder: Path) -> str:
        command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", str(request.path)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        return subprocess.run(
            command, cwd=request.config.rootpath, env=environment, capture_output=True, text=True, check=False
        ).stdout

    return str(once(f"without-torch-{request.path.stem}", run))


@pytest.fixture(autouse=True)
def without_torch(request: pytest.FixtureRequest) -> None:
    """PyTorch's own libc10.so would be found in place of the stand-in: then the tests run in another process."""
    if "torch" in sys.modules:
        said = request.getfixturevalue("in_another_process")
        assert f"::{request.node.name} PASSED" in said, said
        pytest.skip("has passed in a process of its own, because PyTorch is loaded in this one")


@pytest.fixture
def libc10(tmp_path: Path) -> Path:
    source, library = tmp_path / "libc10.c", tmp_path / "libc10.so"
    source.write_text(STANDIN)
    subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libc10.so", "-o", library, source], check=True)
    return library


@pytest.fixture
def held(running: Any, libc10: Path) -> Callable[..., list[HeldMemory]]:
    def run(program: Callable[[Allocator], None]) -> list[HeldMemory]:
        told = running(lambda hook: program(Allocator(hook, libc10)))
        return [memory_holders.from_record(record) for record in told.of(records.MEMORY_HELD)]

    return run


def summed(memory: HeldMemory) -> dict[tuple[str, str], tuple[int, int]]:
    """Returns MiB and number of blocks of each holder."""
    return {(one.held_as.name.lower(), one.op): (one.nbytes // MIB, one.blocks) for one in memory.holders}


def test_the_blocks_of_the_peak(held) -> None:
    def program(allocator: Allocator) -> None:
        assert not allocator.grew()
        allocator.allocate(4)
        kept = allocator.in_op(MM, 8)
        allocator.in_op(MM, 2)
        gone = allocator.in_op(ADD, 1)
        allocator.free(gone)
        allocator.free(kept)
        allocator.in_op(ADD, 3)  # less than before
        allocator.tell(False)
        assert not allocator.grew()
        assert ctypes.c_int.in_dll(allocator.libc10, "reported").value == 7

    (told,) = held(program)
    assert (told.allocated, told.reserved, told.missing) == (15 * MIB, 100 * MIB, None)
    assert summed(told) == {
        ("activations", "aten::mm"): (10, 2),
        ("activations", ""): (4, 1),
        ("activations", "aten::add"): (1, 1),
    }


def test_what_was_taken_back_before_the_peak_is_not_part_of_it(held) -> None:
    def program(allocator: Allocator) -> None:
        first = allocator.in_op(MM, 8)
        allocator.tell(False)
        allocator.free(first)
        allocator.in_op(ADD, 9)
        assert allocator.grew()
        allocator.tell(False)

    first, second = held(program)
    assert summed(first) == {("activations", "aten::mm"): (8, 1)}
    assert summed(second) == {("activations", "aten::add"): (9, 1)}


def test_temporaries_end_with_their_operation_or_belong_to_no_forward_pass(held) -> None:
    def program(allocator: Allocator) -> None:
        allocator.nvtx.push(MM)
        allocator.nvtx.push(ADD)
        temporary = allocator.allocate(1)
        allocator.nvtx.pop()
        allocator.allocate(2)
        allocator.free(temporary)
        allocator.nvtx.pop()
        allocator.nvtx.push(STEP)
        allocator.in_op(ADD, 4)
        allocator.nvtx.pop()
        allocator.records(False)
        allocator.in_op(MM, 8)
        allocator.tell(False)

    (told,) = held(program)
    assert told.allocated == 14 * MIB
    assert summed(told) == {
        ("temporaries", "aten::mm"): (8, 1),
        ("temporaries", "aten::add"): (4, 1),
        ("activations", "aten::mm"): (2, 1),
    }


def test_a_temporary_at_the_peak_is_one(held) -> None:
    def program(allocator: Allocator) -> None:
        allocator.nvtx.push(MM)
        temporary = allocator.allocate(5)
        allocator.free(temporary)
        allocator.nvtx.pop()
        allocator.tell()

    (told,) = held(program)
    assert summed(told) == {("temporaries", "aten::mm"): (5, 1)}


def test_python_tells_what_is_held_for_long(held) -> None:
    def program(allocator: Allocator) -> None:
        weight, state, grad, batch, workspace = (allocator.in_op(MM, mib) for mib in (1, 2, 3, 4, 5))
        allocator.held_as(0, weight, state, grad, batch)
        allocator.held_as(HeldKind.OPTIMIZER_STATE, state, grad, weight)
        allocator.held_as(HeldKind.GRADIENTS, grad)
        allocator.held_as(HeldKind.PARAMETERS, weight + 4096, 12345)  # a view; no block at all
        assert workspace
        allocator.tell(step_ends=True)
        allocator.in_op(ADD, 16)
        allocator.tell(step_ends=False)

    first, second = held(program)
    known = {
        ("parameters", "aten::mm"): (1, 1),
        ("optimizer_state", "aten::mm"): (2, 1),
        ("gradients", "aten::mm"): (3, 1),
        ("activations", "aten::mm"): (4, 1),
        ("temporaries", "aten::mm"): (5, 1),
    }
    assert summed(first) == known
    assert summed(second) == known | {("activations", "aten::add"): (16, 1)}


def test_an_allocation_that_fails_is_told(held) -> None:
    def program(allocator: Allocator) -> None:
        allocator.in_op(MM, 8)
        allocator.tell()
        allocator.fail(70)
        allocator.fail(80)
        assert allocator.grew()
        allocator.tell(False)

    first, second = held(program)
    assert first.missing is None
    missing = second.missing
    assert (missing.nbytes, missing.allocated, missing.reserved, missing.failures) == (80 * MIB, 8 * MIB, 100 * MIB, 2)
    assert second.allocated == 8 * MIB


def test_each_device_has_a_peak_of_its_own(held) -> None:
    def program(allocator: Allocator) -> None:
        allocator.allocate(1)
        allocator.free(allocator.allocate(2, device=1), device=1)
        allocator.allocate(4)
        allocator.tell()

    assert [one.allocated for one in held(program)] == [5 * MIB, 2 * MIB]


def test_many_holders_are_summed_up(held) -> None:
    """The sum of the holders is the peak, whatever their number."""

    def program(allocator: Allocator) -> None:
        for number in range(3000):
            allocator.in_op(f"aten::op{number % 200}, op_id = 7, sizes = [[{number}]]".encode(), 1)
        allocator.held_as(HeldKind.PARAMETERS, *list(allocator.nbytes)[:600])
        allocator.tell(False)

    (told,) = held(program)
    assert told.allocated == sum(one.nbytes for one in told.holders) == 3000 * MIB
    assert sum(one.blocks for one in told.holders) == 3000
    assert sum(one.nbytes for one in told.holders if one.held_as is HeldKind.PARAMETERS) == 600 * MIB
    assert len(told.holders) <= 64
    assert [one.op for one in told.holders].count("") == 2


def test_a_compiler_s_blocks_do_not_count(held) -> None:
    def program(allocator: Allocator) -> None:
        allocator.allocate(1)
        allocator._hook.c.phantora_uncounted(1)
        compiled = allocator.allocate(50)
        allocator._hook.c.phantora_uncounted(-1)
        allocator.allocate(2)
        allocator.free(compiled)
        allocator.tell()

    (told,) = held(program)
    assert told.allocated == 3 * MIB


def over_step(memory: HeldMemory) -> dict[str, list[int]]:
    """Returns the MiB of each holder at each point."""
    step = memory.over_step
    assert step is not None
    parts = {kind.name.lower(): [nbytes // MIB for nbytes in values] for kind, values in step.by_kind.items()}
    return {name: values for name, values in parts.items() if any(values)} | {"most": [it // MIB for it in step.most]}


def test_the_step_that_has_the_peak_by_purpose(held) -> None:
    def program(allocator: Allocator) -> None:
        weight = allocator.in_op(MM, 4)
        allocator.held_as(HeldKind.PARAMETERS, weight)
        allocator.tell(step_ends=True)
        activation = allocator.in_op(MM, 8)
        allocator.records(False)
        gradient = allocator.in_op(ADD, 4)
        allocator.free(activation)
        allocator.in_op(STEP, 2)
        allocator.held_as(HeldKind.GRADIENTS, gradient)
        allocator.held_as(HeldKind.PARAMETERS, weight)
        allocator.tell(step_ends=True)

    first, second = held(program)
    assert over_step(first) == {"parameters": [0, 4], "most": [0, 4]}
    assert second.over_step.allocations == 3
    assert over_step(second) == {
        "parameters": [4, 4, 4, 4],
        "activations": [0, 8, 0, 0],
        "gradients": [0, 0, 4, 4],
        "temporaries": [0, 0, 0, 2],
        "most": [4, 12, 16, 10],
    }


def test_a_step_of_many_allocations_has_fewer_points(held) -> None:
    """300 blocks of 1 MiB, of which every other one is given back at once: 4 allocations a point."""

    def program(allocator: Allocator) -> None:
        for number in range(300):
            block = allocator.in_op(MM, 1)
            if number % 2:
                allocator.free(block)
        allocator.tell(step_ends=False)

    (told,) = held(program)
    step = told.over_step
    assert (step.allocations, len(step.most)) == (300, 76)
    assert [nbytes // MIB for nbytes in step.most] == [min(2 * point + 2, 151) for point in range(75)] + [151]


def test_memory_that_stays_after_every_step_is_told_with_who_asked_for_it(held) -> None:
    """Each step leaves 2 MiB of a product; 16 MiB of a sum are asked for anew in every step, and taken back."""

    def program(allocator: Allocator) -> None:
        allocator.allocate(32)
        for _ in range(7):
            sum_ = allocator.in_op(ADD, 16)
            allocator.in_op(MM, 2)
            allocator.step()
            allocator.free(sum_)
        allocator.tell(False)

    told = held(program)
    assert [one.growth is not None for one in told] == [False] * 3 + [True] * (len(told) - 3)
    last = told[-1].growth
    assert (last.nbytes // MIB, last.steps, last.equal, last.op) == (2, 6, True, "aten::mm")


def test_memory_that_grows_once_or_by_turns_does_not_grow(held) -> None:
    def program(allocator: Allocator) -> None:
        blocks = []
        for step in range(12):
            blocks.append(allocator.in_op(MM, 4 if step == 1 else 2))
            if step > 3:
                allocator.free(blocks.pop(0))
            allocator.step()
        allocator.tell(False)

    assert held(program)[-1].growth is None


def test_growth_that_has_ended_is_told_too(held) -> None:
    def program(allocator: Allocator) -> None:
        for _ in range(6):
            allocator.in_op(MM, 2)
            allocator.step()
        allocator.step()

    told = held(program)
    assert told[-2].growth is not None
    assert told[-1].growth is None


def test_memory_that_grows_by_different_amounts_is_told_after_more_steps(held) -> None:
    def program(allocator: Allocator) -> None:
        for mib in (1, 2, 3, 9, 4, 5):
            allocator.in_op(MM, mib)
            allocator.step()

    told = held(program)
    assert [one.growth and one.growth.steps for one in told] == [None] * 5 + [5]
    assert (told[-1].growth.equal, told[-1].growth.nbytes // MIB) == (False, 6)


def test_what_a_killed_process_had(running: Any, libc10: Path) -> None:
    """Its table outlives it: of each GPU the most that PyTorch's allocator had given out and reserved, and CUDA. The
    coordinator is told that it uses the GPU of another rank's number, before it asks for the time at which it does.
    """
    read, write = os.pipe()

    def program(hook: Any) -> None:
        allocator = Allocator(hook, libc10)
        hook.malloc(100 * MIB)
        allocator.free(allocator.allocate(30))
        allocator.allocate(20)
        hook.c.cudaSetDevice(1)
        hook.malloc(8 * MIB)
        rows = (ctypes.c_uint64 * 256)()
        n = hook.c.phantora_memory_at_end(1, 0, rows, len(rows))
        os.write(write, bytes(rows)[: 8 * n])
        assert (
            hook.c.phantora_memory_at_end(1, 1, rows, len(rows))
            == hook.c.phantora_memory_at_end(2, 0, rows, len(rows))
            == 0
        )

    told = running(program, answer=lambda record: (1000,))
    words = memoryview(os.read(read, 4096)).cast("Q").tolist()
    found = [words[at : at + 4] for at in range(0, len(words), 4)]
    assert found == [[0, 30 * MIB, 100 * MIB, 100 * MIB], [1, 0, 0, 8 * MIB]]
    asked = [record.kind for record in told.records if record.kind in (records.GPU_USED, records.CLOCK_READ)]
    assert asked[0] == records.GPU_USED
    assert [record.gpu for record in told.of(records.GPU_USED)] == [1]
