"""Graphs: what a capture makes of a program, and when its nodes run at each launch."""

from __future__ import annotations

import ctypes

import pytest

from .harness import BLOCKING, DISABLE_TIMING, EXTERNAL, H2D, LEGACY, OK, RELAXED, UNSUPPORTED


def fork_and_join(gpu, origin, side, *, origin_ns, side_ns):
    """Captures the side branch between two kernels of the origin."""
    fork, join = gpu.event(DISABLE_TIMING), gpu.event(DISABLE_TIMING)
    gpu.run(100, origin)
    gpu.cudaEventRecord(fork, origin)
    gpu.cudaStreamWaitEvent(side, fork, 0)
    gpu.run(side_ns, side)
    gpu.run(origin_ns, origin)
    gpu.cudaEventRecord(join, side)
    gpu.cudaStreamWaitEvent(origin, join, 0)
    gpu.run(20, origin)


def test_captured_work_takes_no_time_until_the_graph_is_launched(simulate):
    def program(gpu):
        stream, device, host = gpu.stream(), gpu.malloc(8), gpu.buffer(8)
        ctypes.memmove(host, b"captured", 8)

        def fill():
            gpu.run(1000, stream)
            gpu.cudaMemcpyAsync(device, host, 8, H2D, stream)

        executable = gpu.graph(stream, fill)
        idle, before = gpu.takes(lambda: gpu.cudaStreamSynchronize(stream)), ctypes.string_at(device, 8)
        gpu.cudaGraphLaunch(executable, stream)
        gpu.cudaStreamSynchronize(stream)
        return idle, before, gpu.now(), ctypes.string_at(device, 8)

    assert simulate(program) == (0, bytes(8), 1008, b"captured")


def test_a_launch_is_one_call_for_the_host(simulate):
    def program(gpu):
        stream = gpu.stream()
        executable = gpu.graph(stream, lambda: [gpu.run(1, stream) for _ in range(50)])
        return gpu.takes(lambda: gpu.cudaGraphLaunch(executable, stream))

    assert simulate(program, host_ns__launch=7_000) == 7_000


@pytest.mark.parametrize(("origin_ns", "side_ns"), [(1000, 300), (300, 1000)])
def test_branches_run_beside_each_other_and_meet_at_the_join(simulate, origin_ns, side_ns):
    def program(gpu):
        origin, side = gpu.stream(), gpu.stream()
        executable = gpu.graph(origin, lambda: fork_and_join(gpu, origin, side, origin_ns=origin_ns, side_ns=side_ns))
        gpu.cudaGraphLaunch(executable, origin)
        return gpu.at(gpu.record(origin))

    assert simulate(program) == 100 + 1000 + 20


def test_the_captured_streams_themselves_have_no_part_in_a_launch(simulate):
    def program(gpu):
        origin, side, other = gpu.stream(), gpu.stream(), gpu.stream()
        executable = gpu.graph(origin, lambda: fork_and_join(gpu, origin, side, origin_ns=300, side_ns=1000))
        gpu.run(50_000, side)
        gpu.run(60_000, origin)
        gpu.cudaGraphLaunch(executable, other)
        return gpu.at(gpu.record(other))

    assert simulate(program) == 1120


def test_a_launch_stays_between_what_its_stream_had_and_what_it_gets(simulate):
    def program(gpu):
        origin, side = gpu.stream(), gpu.stream()
        executable = gpu.graph(origin, lambda: fork_and_join(gpu, origin, side, origin_ns=300, side_ns=1000))
        gpu.run(5000, origin)
        gpu.cudaGraphLaunch(executable, origin)
        gpu.run(7, origin)
        return gpu.at(gpu.record(origin))

    assert simulate(program) == 5000 + 1120 + 7


def test_an_executable_does_not_run_beside_itself(simulate):
    def program(gpu):
        a, b, c = gpu.stream(), gpu.stream(), gpu.stream()
        executable = gpu.graph(a, lambda: gpu.run(1000, a))
        for stream in (a, b, c):
            gpu.cudaGraphLaunch(executable, stream)
            gpu.run(70, stream)
        marks = [gpu.record(stream) for stream in (a, b, c)]
        return [gpu.at(mark) for mark in marks]

    # What follows a launch in its own stream holds up nobody.
    assert simulate(program) == [1070, 2070, 3070]


def test_two_executables_do(simulate):
    def program(gpu):
        a, b = gpu.stream(), gpu.stream()
        for stream in (a, b):
            gpu.cudaGraphLaunch(gpu.graph(stream, lambda stream=stream: gpu.run(1000, stream)), stream)
        marks = gpu.record(a), gpu.record(b)
        return [gpu.at(mark) for mark in marks]

    assert simulate(program) == [1000, 1000]


def test_in_the_legacy_stream_a_graph_is_ordered_as_a_whole(simulate):
    def program(gpu):
        before, after, origin, side = gpu.stream(BLOCKING), gpu.stream(BLOCKING), gpu.stream(), gpu.stream()
        executable = gpu.graph(origin, lambda: fork_and_join(gpu, origin, side, origin_ns=300, side_ns=1000))
        gpu.run(5000, before)
        gpu.cudaGraphLaunch(executable, LEGACY)
        gpu.run(7, after)
        return gpu.at(gpu.record(after))

    assert simulate(program) == 5000 + 1120 + 7


def test_external_events_are_recorded_and_waited_for_at_each_launch(simulate):
    def program(gpu):
        stream, other = gpu.stream(), gpu.stream()
        middle, gate = gpu.event(), gpu.event()

        def fill():
            gpu.run(1000, stream)
            gpu.cudaEventRecordWithFlags(middle, stream, EXTERNAL)
            gpu.cudaStreamWaitEvent(stream, gate, EXTERNAL)
            gpu.run(20, stream)

        executable = gpu.graph(stream, fill)
        found = []
        for _ in range(2):
            gpu.run(5000, other)
            gpu.cudaEventRecord(gate, other)
            gpu.cudaGraphLaunch(executable, stream)
            last = gpu.record(stream)
            found += [gpu.at(middle), gpu.at(last)]
        return found

    assert simulate(program) == [1000, 5020, 6020, 10_040]


def test_destroying_a_running_executable_does_not_wait(simulate):
    def program(gpu):
        origin, side = gpu.stream(), gpu.stream()
        executable = gpu.graph(origin, lambda: fork_and_join(gpu, origin, side, origin_ns=300, side_ns=1000))
        gpu.cudaGraphLaunch(executable, origin)
        destroyed = gpu.takes(lambda: gpu.cudaGraphExecDestroy(executable))
        gpu.cudaStreamSynchronize(origin)
        return destroyed, gpu.now()

    assert simulate(program) == (0, 1120)


def test_what_graphs_here_cannot_hold_is_refused(simulate):
    def program(gpu):
        stream, memory = gpu.stream(), ctypes.c_void_p()
        gpu.cudaStreamBeginCapture(stream, RELAXED)
        allocated = gpu.cudaMallocAsync(ctypes.byref(memory), 4096, stream)
        status, graph = gpu.end(stream)
        executable = ctypes.c_void_p()
        gpu.cudaGraphInstantiate(ctypes.byref(executable), graph, 0)
        node = ctypes.c_void_p()
        hand_built = gpu.cudaGraphAddEmptyNode(ctypes.byref(node), graph, None, 0)
        updated = gpu.cudaGraphExecUpdate(executable.value, graph, ctypes.create_string_buffer(64))
        return allocated, status, hand_built, updated

    not_supported = 801
    assert simulate(program) == (UNSUPPORTED, OK, not_supported, not_supported)
