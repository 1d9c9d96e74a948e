"""Threads that have given the GPU no work and wait for it: whose wait is the program's, and whose is not."""

from __future__ import annotations

import threading

import pytest

from emu.contract import records

from .test_host_time import WORK
from .test_ranges import Nvtx


def waits(coordinator):
    return [(record.scope, record.stream) for record in coordinator.of(records.HOST_WAIT)]


def onlooker(rank, wait, handed_over=0):
    """Starts a Python thread that waits for the GPU. `handed_over`: when its task was, as the library says it."""

    def run():
        rank.c.phantora_thread_looks_on(0)
        rank.c.phantora_takes_over(handed_over)
        wait()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_who_waits_for_a_gpu_that_was_given_nothing_tells_nothing(running):
    """DCP's thread waits for the server's first GPU, which is another rank's."""

    def program(rank):
        onlooker(rank, lambda: rank.c.cudaStreamSynchronize(None)).join()
        onlooker(rank, rank.c.cudaDeviceSynchronize).join()

    assert waits(running(program)) == []


@pytest.mark.parametrize("device", [False, True])
def test_a_program_that_waits_for_its_thread_waits_for_the_gpu(running, device):
    def program(rank):
        rank.launch(rank.kernel("k"))
        wait = rank.c.cudaDeviceSynchronize if device else lambda: rank.c.cudaStreamSynchronize(None)
        onlooker(rank, wait, rank.c.phantora_hands_over()).join()

    assert len(waits(running(program))) == 1


def test_a_program_that_went_on_does_not_wait_for_its_later_work(running):
    """How much of it the thread's wait would include depends on when the thread comes to it."""

    def program(rank):
        kernel = rank.kernel("k")
        rank.launch(kernel)
        handed_over = rank.c.phantora_hands_over()
        rank.launch(kernel)
        onlooker(rank, lambda: rank.c.cudaStreamSynchronize(None), handed_over).join()

    assert waits(running(program)) == []


def test_a_program_that_went_on_waits_for_the_event_that_its_thread_waits_for(running):
    def program(rank):
        kernel, event = rank.kernel("k"), rank.event()
        rank.launch(kernel)
        rank.c.cudaEventRecord(event, None)
        handed_over = rank.c.phantora_hands_over()
        rank.launch(kernel)
        onlooker(rank, lambda: rank.c.cudaEventSynchronize(event), handed_over).join()

    (wait,) = running(program).of(records.HOST_WAIT)
    assert wait.scope == records.ScopeKind.EVENT


def test_a_thread_that_gives_work_waits_as_the_program_does(running):
    def program(rank):
        def work():
            rank.launch(kernel)
            rank.c.cudaStreamSynchronize(None)

        kernel = rank.kernel("k")
        onlooker(rank, work, rank.c.phantora_hands_over()).join()

    assert len(waits(running(program))) == 1


def test_a_task_that_a_task_hands_on_is_as_old_as_the_first(running):
    """A checkpoint's thread starts others, which write: when it does depends on this machine."""

    def program(rank):
        kernel = rank.kernel("k")
        first = rank.c.phantora_hands_over()
        rank.launch(kernel)
        found = []
        onlooker(rank, lambda: found.append(rank.c.phantora_hands_over()), first).join()
        assert found == [first] != [rank.c.phantora_hands_over()]

    running(program)


def test_a_thread_that_looks_on_moves_no_clock(running):
    """What it does meets a script that trains on somewhere, which depends on this machine."""
    op = b"aten::add, op_id = 3, sizes = [[4]]"

    def program(rank):
        nvtx, kernel = Nvtx(rank), rank.kernel("k")
        nvtx.range(op)
        rank.launch(kernel)
        onlooker(rank, lambda: ([nvtx.range(op) for _ in range(50)], rank.c.phantora_host_clock_ns())).join()
        nvtx.range(op)
        rank.launch(kernel)

    told = running(program, cost=lambda _: (1, 1), **WORK | {"host_ns__op": 100})
    (segment,) = told.of(records.SEGMENT)
    # One operator before each launch; 50 more on the other thread would take 5,000 ns.
    assert (segment.host_ns, segment.launches, segment.tail_ns) == (100, 2, 101)
