"""Streams: the legacy and the per-thread default stream, blocking and non-blocking ones, destruction, devices."""

from __future__ import annotations

import ctypes
import threading

import pytest

from .harness import BLOCKING, D2D, INVALID_HANDLE, LEGACY, NONBLOCKING, NOT_READY, OK, PER_THREAD


def test_a_stream_runs_its_work_in_order_and_streams_run_beside_each_other(simulate):
    def program(gpu):
        a, b = gpu.stream(), gpu.stream()
        gpu.run(1000, a)
        gpu.run(500, a)
        gpu.run(700, b)
        first, second = gpu.record(a), gpu.record(b)
        return gpu.at(first), gpu.at(second)

    assert simulate(program) == (1500, 700)


def test_the_host_goes_on_while_the_device_works(simulate):
    def program(gpu):
        gpu.run(1000)
        gpu.work(10)
        launched = gpu.now()
        gpu.cudaStreamSynchronize(0)
        return launched, gpu.now()

    assert simulate(program) == (10, 1000)


def test_legacy_work_waits_for_blocking_streams_and_they_for_it(simulate):
    def program(gpu):
        first, second = gpu.stream(BLOCKING), gpu.stream(BLOCKING)
        gpu.run(1000, first)
        gpu.run(300, LEGACY)
        legacy = gpu.record(LEGACY)
        gpu.run(20, second)
        return gpu.at(legacy), gpu.at(gpu.record(second))

    assert simulate(program) == (1300, 1320)


def test_nonblocking_streams_keep_apart_from_the_legacy_stream(simulate):
    def program(gpu):
        apart = gpu.stream(NONBLOCKING)
        gpu.stream(BLOCKING)
        gpu.run(1000, apart)
        gpu.run(300, LEGACY)
        legacy = gpu.record(LEGACY)
        gpu.run(20, apart)
        last = gpu.record(apart)
        return gpu.at(legacy), gpu.at(last)

    assert simulate(program) == (300, 1020)


def test_a_blocking_stream_made_later_waits_for_earlier_legacy_work(simulate):
    def program(gpu):
        gpu.run(1000, LEGACY)
        late = gpu.stream(BLOCKING)
        gpu.run(20, late)
        return gpu.at(gpu.record(late))

    assert simulate(program) == 1020


@pytest.mark.parametrize("action", ["record", "wait", "function", "copy"])
def test_any_action_in_the_legacy_stream_is_a_barrier(simulate, action):
    def program(gpu):
        first, second = gpu.stream(BLOCKING), gpu.stream(BLOCKING)
        own, a, b = gpu.record(LEGACY), gpu.malloc(8), gpu.malloc(8)
        gpu.run(1000, first)
        if action == "record":
            gpu.record(LEGACY)
        elif action == "wait":
            gpu.cudaStreamWaitEvent(LEGACY, own, 0)  # an event that is complete, and the stream's own
        elif action == "function":
            gpu.cudaLaunchHostFunc(LEGACY, gpu.function(lambda: None), None)
        else:
            gpu.cudaMemcpyAsync(a, b, 8, D2D, LEGACY)
        gpu.run(20, second)
        return gpu.at(gpu.record(second))

    assert simulate(program) == 1020 + 8 * (action == "copy")


@pytest.mark.parametrize("action", ["query", "wait for no event"])
def test_what_gives_the_legacy_stream_nothing_is_no_barrier(simulate, action):
    def program(gpu):
        first, second = gpu.stream(BLOCKING), gpu.stream(BLOCKING)
        gpu.run(1000, first)
        if action == "query":
            gpu.cudaStreamQuery(LEGACY)
        else:
            gpu.cudaStreamWaitEvent(LEGACY, gpu.event(), 0)
        gpu.run(20, second)
        return gpu.at(gpu.record(second))

    assert simulate(program) == 20


def test_looking_at_the_legacy_stream_looks_at_blocking_streams(simulate):
    def program(gpu):
        blocking, apart = gpu.stream(BLOCKING), gpu.stream(NONBLOCKING)
        gpu.run(5000, apart)
        before = gpu.cudaStreamQuery(0)
        gpu.run(1000, blocking)
        meanwhile = gpu.cudaStreamQuery(0)
        gpu.cudaStreamSynchronize(0)
        return before, meanwhile, gpu.now(), gpu.cudaStreamQuery(0), gpu.cudaStreamQuery(apart)

    assert simulate(program) == (OK, NOT_READY, 1000, OK, NOT_READY)


def test_a_blocking_stream_itself_does_not_stand_for_the_legacy_stream(simulate):
    def program(gpu):
        blocking = gpu.stream(BLOCKING)
        gpu.run(1000, LEGACY)
        return gpu.cudaStreamQuery(blocking), gpu.takes(lambda: gpu.cudaStreamSynchronize(blocking))

    assert simulate(program) == (OK, 0)


def test_each_thread_has_a_default_stream_of_its_own(simulate):
    def program(gpu):
        gpu.run(1000, PER_THREAD)
        found = []

        def other():
            gpu.run(300, PER_THREAD)
            found.append(gpu.record(PER_THREAD))

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return gpu.at(found[0]), gpu.at(gpu.record(PER_THREAD))

    assert simulate(program) == (300, 1000)


def test_per_thread_default_streams_are_blocking(simulate):
    def program(gpu):
        gpu.run(1000, PER_THREAD)
        gpu.run(300, LEGACY)
        gpu.run(20, PER_THREAD)
        return gpu.at(gpu.record(LEGACY)), gpu.at(gpu.record(PER_THREAD))

    assert simulate(program) == (1320, 1320)


def test_ptsz_calls_mean_the_thread_s_stream_by_null(simulate):
    def program(gpu):
        gpu.run(1000, 0, "cudaLaunchKernel_ptsz")
        own, busy = gpu.event(), gpu.cudaStreamQuery_ptsz(0)
        gpu.cudaEventRecord_ptsz(own, 0)
        a, b = gpu.malloc(64), gpu.malloc(64)
        copied = gpu.takes(lambda: gpu.cudaMemcpy_ptds(a, b, 64, D2D))
        waited = gpu.takes(lambda: gpu.cudaMemcpy_ptds(a, gpu.buffer(64), 64, 1))
        return busy, gpu.cudaStreamQuery(PER_THREAD), gpu.at(own), copied, waited

    # The copies follow the kernel in the thread's stream: 64 ns each.
    assert simulate(program) == (NOT_READY, NOT_READY, 1000, 0, 1064)


def test_the_handles_of_default_streams(simulate):
    def program(gpu):
        gpu.run(1000, LEGACY)
        legacy = gpu.cudaStreamQuery(0), gpu.cudaStreamQuery(LEGACY), gpu.cudaStreamQuery(PER_THREAD)
        return legacy, [gpu.cudaStreamDestroy(handle) for handle in (0, LEGACY, PER_THREAD)]

    assert simulate(program) == ((NOT_READY, NOT_READY, OK), [INVALID_HANDLE] * 3)


def test_destroying_a_stream_returns_at_once_and_its_work_goes_on(simulate):
    def program(gpu):
        stream = gpu.stream()
        gpu.run(1000, stream)
        done = gpu.record(stream)
        destroyed = gpu.takes(lambda: gpu.cudaStreamDestroy(stream))
        gone = gpu.cudaStreamQuery(stream)
        return destroyed, gone, gpu.at(done), gpu.takes(gpu.cudaDeviceSynchronize)

    assert simulate(program) == (0, INVALID_HANDLE, 1000, 0)


def test_the_legacy_stream_waits_for_a_destroyed_blocking_stream(simulate):
    def program(gpu):
        stream = gpu.stream(BLOCKING)
        gpu.run(1000, stream)
        gpu.cudaStreamDestroy(stream)
        gpu.run(20, LEGACY)
        return gpu.at(gpu.record(LEGACY))

    assert simulate(program) == 1020


def test_a_device_synchronises_alone(simulate):
    def program(gpu):
        gpu.run(1000)
        gpu.run(300, gpu.stream(NONBLOCKING))
        gpu.cudaSetDevice(1)
        gpu.run(5000)
        gpu.cudaSetDevice(0)
        gpu.cudaDeviceSynchronize()
        return gpu.now()

    assert simulate(program) == 1000


def test_a_stream_works_on_its_device_whichever_is_current(simulate):
    def program(gpu):
        stream, memory, more = gpu.stream(), gpu.malloc(64), gpu.malloc(64)
        gpu.cudaSetDevice(1)
        launched, copied = gpu.run(1000, stream), gpu.cudaMemcpyAsync(memory, more, 64, D2D, stream)
        here = gpu.takes(gpu.cudaDeviceSynchronize)
        return launched, copied, here, gpu.takes(lambda: gpu.cudaStreamSynchronize(stream))

    assert simulate(program) == (OK, OK, 0, 1064)


def test_priorities_are_accepted_and_clamped(simulate):
    def program(gpu):
        stream, priority = ctypes.c_void_p(), ctypes.c_int()
        found = []
        for asked in (0, -3, -99, 7):
            gpu.cudaStreamCreateWithPriority(ctypes.byref(stream), NONBLOCKING, asked & 0xFFFFFFFF)
            gpu.cudaStreamGetPriority(stream.value, ctypes.byref(priority))
            found.append(priority.value)
        return found

    assert simulate(program) == [0, -3, -5, 0]
