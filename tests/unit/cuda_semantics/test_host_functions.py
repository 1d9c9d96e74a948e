"""Host functions: their place in the stream, in virtual time and among the bytes that really travel."""

from __future__ import annotations

import ctypes
import threading

from .harness import D2H, H2D, LEGACY, NOT_READY, OK

FUNCTION_NS = 27_000


def test_a_host_function_takes_its_turn_and_a_fixed_time_of_its_stream(simulate):
    def program(gpu):
        stream, other = gpu.stream(), gpu.stream()
        gpu.run(1000, stream)
        launched = gpu.takes(lambda: gpu.cudaLaunchHostFunc(stream, gpu.function(lambda: None), None))
        gpu.run(20, stream)
        gpu.run(300, other)
        last, beside = gpu.record(stream), gpu.record(other)
        return launched, gpu.at(beside), gpu.at(last)

    assert simulate(program, host_function_ns=FUNCTION_NS) == (0, 300, 1000 + FUNCTION_NS + 20)


def test_whoever_synchronises_finds_that_the_functions_have_run_in_order(simulate):
    def program(gpu):
        a, b, ran = gpu.stream(), gpu.stream(), []
        for number in range(6):
            gpu.cudaLaunchHostFunc((a, b)[number % 2], gpu.function(lambda number=number: ran.append(number)), None)
        gpu.cudaDeviceSynchronize()
        return ran

    assert simulate(program) == list(range(6))


def test_a_stream_with_a_function_to_run_is_not_done(simulate):
    def program(gpu):
        gpu.cudaLaunchHostFunc(0, gpu.function(lambda: None), None)
        return gpu.cudaStreamQuery(0), gpu.takes(lambda: gpu.cudaStreamSynchronize(0)), gpu.cudaStreamQuery(0)

    assert simulate(program, host_function_ns=FUNCTION_NS) == (NOT_READY, FUNCTION_NS, OK)


def test_a_function_sees_the_bytes_before_it_and_copies_after_it_see_its_own(simulate):
    def program(gpu):
        device, into, out, back = gpu.malloc(8), gpu.host(8), gpu.host(8), gpu.buffer(8)
        all_given, seen = threading.Event(), []

        def function():
            all_given.wait()
            seen.append(ctypes.string_at(into, 8))
            ctypes.memmove(out, b"answered", 8)

        gpu.cudaMemsetAsync(device, ord("q"), 8, 0)
        gpu.cudaMemcpyAsync(into, device, 8, D2H, 0)
        gpu.cudaLaunchHostFunc(0, gpu.function(function), None)
        gpu.cudaMemcpyAsync(device, out, 8, H2D, 0)
        all_given.set()
        gpu.cudaMemcpy(back, device, 8, D2H)
        return seen, ctypes.string_at(back, 8)

    assert simulate(program) == ([b"q" * 8], b"answered")


def test_pageable_memory_may_be_used_again_while_a_function_is_still_to_run(simulate):
    def program(gpu):
        device, source, back = gpu.malloc(8), gpu.buffer(8), gpu.buffer(8)
        all_given = threading.Event()
        ctypes.memmove(source, b"original", 8)
        gpu.cudaLaunchHostFunc(0, gpu.function(all_given.wait), None)
        gpu.cudaMemcpyAsync(device, source, 8, H2D, 0)
        ctypes.memmove(source, b"changed!", 8)
        all_given.set()
        gpu.cudaMemcpy(back, device, 8, D2H)
        return ctypes.string_at(back, 8)

    assert simulate(program) == b"original"


def test_callbacks_are_host_functions_with_the_stream_and_a_status(simulate):
    def program(gpu):
        callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
        stream, seen = gpu.stream(), []
        made = callback(lambda *arguments: seen.append(arguments))
        gpu.run(1000, stream)
        given = gpu.cudaStreamAddCallback(stream, made, 42, 0), gpu.cudaStreamAddCallback(stream, made, 42, 1)
        gpu.cudaStreamSynchronize(stream)
        return given, gpu.now(), seen == [(stream, OK, 42)]

    assert simulate(program, host_function_ns=FUNCTION_NS) == ((OK, 1), 1000 + FUNCTION_NS, True)


def test_a_captured_function_runs_at_each_launch_of_the_graph(simulate):
    def program(gpu):
        stream, ran = gpu.stream(), []
        function = gpu.function(lambda: ran.append(None))

        def fill():
            gpu.run(1000, stream)
            gpu.cudaLaunchHostFunc(stream, function, None)

        executable = gpu.graph(stream, fill)
        before = len(ran)
        gpu.cudaGraphLaunch(executable, LEGACY)
        gpu.cudaGraphLaunch(executable, LEGACY)
        gpu.cudaStreamSynchronize(LEGACY)
        return before, len(ran), gpu.now()

    assert simulate(program, host_function_ns=FUNCTION_NS) == (0, 2, 2 * (1000 + FUNCTION_NS))
