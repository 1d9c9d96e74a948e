"""Memory that depends on when work is found done: at most (what the allocator says) and at least."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emu.contract import records

from .test_memory_holders import MIB, STANDIN, Allocator, in_another_process, without_torch
from .test_watchdog import ProcessGroup, answers, helper_in

__all__ = ["in_another_process", "without_torch"]
ALL_REDUCE = b"c10d::allreduce_, op_id = 3, sizes = [[8]]"
QUERY = "int cudaEventQuery(void *); int process_events(void *event) { return cudaEventQuery(event) + 0 * __LINE__; }"


class Program:
    """An allocator and a process group of one rank."""

    def __init__(self, rank: Any, folder: Path) -> None:
        self.rank = rank
        self.allocator = Allocator(rank, folder / "libc10.so")
        self.group = ProcessGroup(rank, folder / "group.so")

    def all_reduce(self, block: int) -> None:
        self.group.buffer = block
        self.group.all_reduce()

    def free_in_process_group(self, block: int) -> None:
        self.allocator.nvtx.push(ALL_REDUCE)
        self.allocator.free(block)
        self.allocator.nvtx.pop()


@pytest.fixture
def told(running: Any, tmp_path: Path) -> Callable[..., Any]:
    """Returns a function that runs a program and returns what its rank says; every collective has ended long ago when
    it asks.
    """
    source = tmp_path / "libc10.c"
    source.write_text(STANDIN)
    command = ["cc", "-shared", "-fPIC", "-Wl,-soname,libc10.so", "-o", tmp_path / "libc10.so", source]
    subprocess.run(command, check=True)
    helper_in(tmp_path)

    def run(program: Callable[[Program], None]) -> Any:
        return running(lambda rank: program(Program(rank, tmp_path)), answer=answers(1 << 40))

    return run


def test_what_a_process_group_frees_need_not_have_been_held_since_the_next_launch(told) -> None:
    """The peak is 21 MiB: the bucket's 4 are not needed from the second launch on; before it, 4 + 1 + 8 are in use."""

    def program(its: Program) -> None:
        bucket, other = its.allocator.allocate(4), its.allocator.allocate(1)
        its.all_reduce(bucket)
        activation = its.allocator.allocate(8)
        its.all_reduce(other)
        its.allocator.free(activation)
        its.allocator.allocate(16)
        its.free_in_process_group(bucket)
        its.allocator.tell()

    (memory,) = told(program).of(records.MEMORY_HELD)
    assert (memory.allocated, memory.least) == (21 * MIB, 17 * MIB)


def test_the_peak_before_the_next_launch_stays(told) -> None:
    def program(its: Program) -> None:
        bucket, other = its.allocator.allocate(4), its.allocator.allocate(1)
        its.all_reduce(bucket)
        its.allocator.free(its.allocator.allocate(15))
        its.all_reduce(other)
        its.allocator.allocate(16)
        its.free_in_process_group(bucket)
        its.allocator.tell()

    (memory,) = told(program).of(records.MEMORY_HELD)
    assert (memory.allocated, memory.least) == (21 * MIB, 20 * MIB)


def test_what_the_program_frees_itself_was_needed_until_then(told) -> None:
    def program(its: Program) -> None:
        bucket, other = its.allocator.allocate(4), its.allocator.allocate(1)
        its.all_reduce(bucket)
        its.all_reduce(other)
        its.allocator.allocate(16)
        its.allocator.free(bucket)
        its.allocator.tell()

    (memory,) = told(program).of(records.MEMORY_HELD)
    assert (memory.allocated, memory.least) == (21 * MIB, 21 * MIB)


def test_a_block_without_a_collective_that_ends_in_a_process_group_is_its_temporary(told) -> None:
    def program(its: Program) -> None:
        temporary, other = its.allocator.allocate(4), its.allocator.allocate(1)
        its.all_reduce(other)
        its.allocator.allocate(16)
        its.free_in_process_group(temporary)
        its.allocator.tell()

    (memory,) = told(program).of(records.MEMORY_HELD)
    assert (memory.allocated, memory.least) == (21 * MIB, 21 * MIB)


def test_many_launches_lie_between(told) -> None:
    def program(its: Program) -> None:
        bucket, other = its.allocator.allocate(4), its.allocator.allocate(1)
        its.all_reduce(bucket)
        for _ in range(300):
            its.all_reduce(other)
            its.allocator.free(its.allocator.allocate(2))
        its.free_in_process_group(bucket)
        its.allocator.tell()

    (memory,) = told(program).of(records.MEMORY_HELD)
    assert (memory.allocated, memory.least) == (7 * MIB, 5 * MIB)


def test_what_one_collective_of_an_earlier_step_left_need_not_be_held(told) -> None:
    """A first bucket that is kept until the run ends. Of 29 MiB: 4 less. Not the bucket of this step, nor a tensor."""

    def program(its: Program) -> None:
        first, bucket, tensor = (its.allocator.allocate(n) for n in (4, 8, 16))
        its.all_reduce(first)
        its.all_reduce(tensor)
        its.allocator.held_as(0, tensor)
        its.allocator.tell()
        its.all_reduce(bucket)
        its.allocator.allocate(1)
        its.allocator.held_as(0, tensor)
        its.allocator.tell()
        its.free_in_process_group(first)
        its.allocator.allocate(9)
        its.allocator.held_as(0, tensor)
        its.allocator.tell()

    told_memory = told(program).of(records.MEMORY_HELD)
    assert [memory.allocated // MIB for memory in told_memory] == [28, 29, 34]
    assert [memory.least // MIB for memory in told_memory] == [28, 28, 34]


def test_a_block_that_gets_a_further_collective_was_held_after_all(told) -> None:
    def program(its: Program) -> None:
        rare, other = its.allocator.allocate(4), its.allocator.allocate(1)
        its.all_reduce(rare)
        its.allocator.held_as(0, other)
        its.allocator.tell()
        its.all_reduce(other)
        its.allocator.allocate(2)
        its.allocator.held_as(0, other)
        its.allocator.tell()
        its.all_reduce(rare)
        its.allocator.allocate(8)
        its.allocator.held_as(0, other)
        its.allocator.tell()

    told_memory = told(program).of(records.MEMORY_HELD)
    assert [(memory.allocated // MIB, memory.least // MIB) for memory in told_memory] == [(5, 5), (7, 5), (15, 15)]


def test_after_a_wait_of_the_host_a_launch_asks_about_the_first_collective_on_a_block(told) -> None:
    """Virtual time passes in the wait, and host time does not. The second and third collective have no new block."""

    def program(its: Program) -> None:
        bucket = its.allocator.allocate(4)
        for _ in range(4):
            its.all_reduce(bucket)
            assert its.rank.c.cudaDeviceSynchronize() == 0
        assert len(its.group.watchdog.found) == 1

    assert len(told(program).of(records.QUERY)) == 1


def test_an_allocator_finds_an_event_complete_as_late_as_on_the_fastest_host(running: Any, tmp_path: Path) -> None:
    """0.7 of the host time since the record; whoever else asks is told what is at this instant."""
    source, library = tmp_path / "allocator.c", tmp_path / "libc10_cuda.so"
    source.write_text(QUERY)
    subprocess.run(["cc", "-shared", "-fPIC", "-O0", "-o", library, source], check=True)

    def program(rank: Any) -> None:
        allocator = ctypes.CDLL(str(library))
        event = ctypes.c_void_p(rank.event(2))
        assert rank.c.cudaEventRecord(event, ctypes.c_void_p(rank.stream())) == 0
        rank.c.phantora_advance_ns(1_000_000)
        assert allocator.process_events(event) == 0
        assert rank.c.cudaEventQuery(event) == 0

    asked = running(program, answer=answers(1 << 40)).of(records.QUERY)
    assert [record.since_ns for record in asked] == [300_000, 0]
