"""The launch queue: how far the host may be ahead of a stream."""

from __future__ import annotations

import pytest

from .harness import D2D

DEPTH = 4
NS = 1000


def instants(gpu, call, count=DEPTH + 2):
    """Returns when each of `count` calls has returned."""
    found = []
    for _ in range(count):
        call()
        found.append(gpu.now())
    return found


def test_a_full_queue_lets_the_host_go_on_when_one_launch_is_done(simulate):
    def program(gpu):
        return instants(gpu, lambda: gpu.run(NS))

    assert simulate(program, queue_depth=DEPTH) == [0, 0, 0, 0, NS, 2 * NS]


def test_copies_and_sets_take_places_too(simulate):
    def program(gpu):
        a, b = gpu.malloc(NS), gpu.malloc(NS)
        copies = instants(gpu, lambda: gpu.cudaMemcpyAsync(a, b, NS, D2D, 0))
        gpu.cudaDeviceSynchronize()
        base = gpu.now()
        return copies, [at - base for at in instants(gpu, lambda: gpu.cudaMemsetAsync(a, 0, NS, 0))]

    assert simulate(program, queue_depth=DEPTH) == ([0, 0, 0, 0, NS, 2 * NS],) * 2


def test_every_stream_has_a_queue_of_its_own(simulate):
    def program(gpu):
        a, b = gpu.stream(), gpu.stream()
        instants(gpu, lambda: gpu.run(NS, a), DEPTH)
        return instants(gpu, lambda: gpu.run(NS, b), DEPTH)

    assert simulate(program, queue_depth=DEPTH) == [0] * DEPTH


@pytest.mark.parametrize("what", ["wait", "function"])
def test_waits_and_host_functions_take_no_place(simulate, what):
    def program(gpu):
        a, b = gpu.stream(), gpu.stream()
        gpu.run(NS, b)
        event = gpu.record(b)
        gpu.run(NS, a)
        calls = {
            "wait": lambda: gpu.cudaStreamWaitEvent(a, event, 0),
            "function": lambda: gpu.cudaLaunchHostFunc(a, gpu.function(lambda: None), None),
        }
        return instants(gpu, calls[what], 3 * DEPTH)

    assert simulate(program, queue_depth=DEPTH) == [0] * 3 * DEPTH


def test_event_records_take_no_place_here(simulate):
    """On an H100 they do."""

    def program(gpu):
        gpu.run(NS)
        event = gpu.event()
        return instants(gpu, lambda: gpu.cudaEventRecord(event, 0), 3 * DEPTH)

    assert simulate(program, queue_depth=DEPTH) == [0] * 3 * DEPTH


def test_a_graph_takes_one_place_however_many_nodes_it_has(simulate):
    def program(gpu):
        stream = gpu.stream()
        executable = gpu.graph(stream, lambda: [gpu.run(NS // 10, stream) for _ in range(10)])
        return instants(gpu, lambda: gpu.cudaGraphLaunch(executable, stream))

    assert simulate(program, queue_depth=DEPTH) == [0, 0, 0, 0, NS, 2 * NS]


def test_launches_that_were_folded_leave_the_queue_together(simulate):
    """Between two questions launches travel in segments of up to 256: the host waits up to that many too long."""

    def program(gpu):
        for _ in range(1500):
            gpu.run(NS)
        return gpu.now()

    exact_ns = (1500 - 1024) * NS
    assert exact_ns <= simulate(program) <= exact_ns + 256 * NS
