"""Copies, sets and memory calls: which of them keep the host waiting, and until when."""

from __future__ import annotations

import ctypes

import pytest

from .harness import D2D, D2H, H2D, H2H, NONBLOCKING, OK

BUSY_NS = 10_000_000
KIB, MIB = 1 << 10, 1 << 20


@pytest.mark.parametrize(
    ("kind", "pinned", "nbytes", "call", "takes_ns"),
    [
        # pinned memory: synchronous copies wait until they are done, asynchronous ones never
        (H2D, True, MIB, "async", 0),
        (D2H, True, MIB, "async", 0),
        (H2D, True, 4, "sync", BUSY_NS + 4),
        (D2H, True, 4, "sync", BUSY_NS + 4),
        # to pageable memory: the call returns when the copy is done
        (D2H, False, 4, "async", BUSY_NS + 4),
        (D2H, False, 4, "sync", BUSY_NS + 4),
        # from pageable memory: a synchronous copy waits for the stream, then stages; an asynchronous one stages at once
        # what fits into the staging buffer
        (H2D, False, 4, "sync", BUSY_NS),
        (H2D, False, 64 * KIB, "sync", BUSY_NS),
        (H2D, False, MIB, "sync", BUSY_NS + MIB),
        (H2D, False, 3 * MIB, "sync", BUSY_NS + 3 * MIB),
        (H2D, False, 64 * KIB, "async", 0),
        (H2D, False, MIB, "async", MIB),
        (H2D, False, 2 * MIB, "async", 2 * MIB),
        (H2D, False, 3 * MIB, "async", BUSY_NS + 3 * MIB),
        # on the device: never; between hosts: always
        (D2D, True, MIB, "sync", 0),
        (D2D, True, MIB, "async", 0),
        (H2H, True, MIB, "sync", BUSY_NS + MIB),
        (H2H, True, MIB, "async", BUSY_NS + MIB),
        (H2H, False, MIB, "async", BUSY_NS + MIB),
    ],
)
def test_how_long_a_copy_behind_a_busy_stream_takes_the_host(simulate, kind, pinned, nbytes, call, takes_ns):
    def program(gpu):
        host = gpu.host if pinned else gpu.buffer
        to = gpu.malloc(nbytes) if kind in (H2D, D2D) else host(nbytes)
        source = gpu.malloc(nbytes) if kind in (D2H, D2D) else host(nbytes)
        gpu.run(BUSY_NS)
        if call == "sync":
            took = gpu.takes(lambda: gpu.cudaMemcpy(to, source, nbytes, kind))
        else:
            took = gpu.takes(lambda: gpu.cudaMemcpyAsync(to, source, nbytes, kind, 0))
        gpu.cudaStreamSynchronize(0)
        return took, gpu.now()

    assert simulate(program) == (takes_ns, BUSY_NS + nbytes)


def test_a_synchronous_copy_waits_for_blocking_streams_only(simulate):
    def program(gpu):
        device, host = gpu.malloc(4), gpu.buffer(4)
        gpu.run(5000, gpu.stream(NONBLOCKING))
        alone = gpu.takes(lambda: gpu.cudaMemcpy(device, host, 4, H2D))
        gpu.run(1000, gpu.stream(0))
        return alone, gpu.takes(lambda: gpu.cudaMemcpy(device, host, 4, H2D))

    # The kernel waits for the first copy, of 4 ns.
    assert simulate(program) == (0, 1004)


@pytest.mark.parametrize(
    ("target", "call", "takes_ns"),
    [("device", "sync", 0), ("device", "async", 0), ("pinned", "sync", BUSY_NS + 4096), ("pinned", "async", 0)],
)
def test_sets_wait_for_pinned_memory_only(simulate, target, call, takes_ns):
    def program(gpu):
        memory = gpu.malloc(4096) if target == "device" else gpu.host(4096)
        gpu.run(BUSY_NS)
        if call == "sync":
            return gpu.takes(lambda: gpu.cudaMemset(memory, 0, 4096))
        return gpu.takes(lambda: gpu.cudaMemsetAsync(memory, 0, 4096, 0))

    assert simulate(program) == takes_ns


def test_a_peer_copy_is_ordered_in_the_current_device_s_legacy_stream(simulate):
    def program(gpu):
        here = gpu.malloc(64)
        gpu.cudaSetDevice(1)
        there = gpu.malloc(64)
        gpu.run(9000)
        gpu.cudaSetDevice(0)
        gpu.run(1000)
        took = gpu.takes(lambda: gpu.cudaMemcpyPeer(there, 1, here, 0, 64))
        return took, gpu.takes(gpu.cudaDeviceSynchronize)

    assert simulate(program) == (0, 1064)


WAITS, GOES_ON = 1000, 0


@pytest.mark.parametrize(
    ("name", "takes_ns"),
    [
        ("cudaMalloc", GOES_ON),
        ("cudaFree", WAITS),
        ("cudaFree of NULL", GOES_ON),
        ("cudaMallocHost", GOES_ON),
        ("cudaFreeHost", WAITS),
        ("cudaHostRegister", GOES_ON),
        ("cudaHostUnregister", WAITS),
        ("cudaMallocAsync", GOES_ON),
        ("cudaFreeAsync", GOES_ON),
        ("cudaMemGetInfo", GOES_ON),
        ("cudaStreamCreate", GOES_ON),
    ],
)
def test_giving_memory_up_waits_for_all_streams_of_the_device(simulate, name, takes_ns):
    def program(gpu):
        out, more = ctypes.c_void_p(), ctypes.c_void_p()
        device, pinned, buffer, registered = gpu.malloc(64), gpu.host(64), gpu.buffer(64), gpu.buffer(64)
        gpu.cudaHostRegister(registered, 64, 0)
        gpu.cudaMallocAsync(ctypes.byref(more), 64, 0)
        calls = {
            "cudaMalloc": lambda: gpu.cudaMalloc(ctypes.byref(out), 1 << 20),
            "cudaFree": lambda: gpu.cudaFree(device),
            "cudaFree of NULL": lambda: gpu.cudaFree(None),
            "cudaMallocHost": lambda: gpu.cudaMallocHost(ctypes.byref(out), 1 << 20),
            "cudaFreeHost": lambda: gpu.cudaFreeHost(pinned),
            "cudaHostRegister": lambda: gpu.cudaHostRegister(buffer, 64, 0),
            "cudaHostUnregister": lambda: gpu.cudaHostUnregister(registered),
            "cudaMallocAsync": lambda: gpu.cudaMallocAsync(ctypes.byref(out), 64, 0),
            "cudaFreeAsync": lambda: gpu.cudaFreeAsync(more.value, 0),
            "cudaMemGetInfo": lambda: gpu.cudaMemGetInfo(ctypes.byref(out), ctypes.byref(more)),
            "cudaStreamCreate": lambda: gpu.cudaStreamCreate(ctypes.byref(out)),
        }
        gpu.run(WAITS, gpu.stream(NONBLOCKING))
        return gpu.takes(calls[name])

    assert simulate(program) == takes_ns


def test_only_the_device_that_memory_belongs_to_is_waited_for(simulate):
    def program(gpu):
        here, pinned_here = gpu.malloc(64), gpu.host(64)
        gpu.cudaSetDevice(1)
        there, pinned_there = gpu.malloc(64), gpu.host(64)
        found = []
        for free, memory in (
            (gpu.cudaFree, here),
            (gpu.cudaFreeHost, pinned_here),
            (gpu.cudaFree, there),
            (gpu.cudaFreeHost, pinned_there),
        ):
            gpu.cudaSetDevice(1)
            gpu.run(1000)
            gpu.cudaSetDevice(0)
            found.append(gpu.takes(lambda free=free, memory=memory: free(memory)))
            gpu.cudaSetDevice(1)
            gpu.cudaDeviceSynchronize()
        return found

    assert simulate(program) == [0, 0, 1000, 1000]


def test_stream_ordered_memory_is_given_back_at_the_call(simulate):
    def program(gpu):
        memory, pool, used, found = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64(), []
        gpu.cudaDeviceGetDefaultMemPool(ctypes.byref(pool), 0)
        gpu.run(1000)
        gpu.cudaMallocAsync(ctypes.byref(memory), 4096, 0)
        for free in (lambda: OK, lambda: gpu.cudaFreeAsync(memory.value, 0)):
            assert free() == OK
            gpu.cudaMemPoolGetAttribute(pool.value, 7, ctypes.byref(used))  # cudaMemPoolAttrUsedMemCurrent
            found.append(used.value)
        gpu.cudaMallocAsync(ctypes.byref(memory), 4096, 0)
        return found, gpu.takes(lambda: gpu.cudaFree(memory.value))

    assert simulate(program) == ([4096, 0], 1000)


def test_stream_ordered_memory_can_be_used_in_its_stream_at_once(simulate):
    def program(gpu):
        memory, back = ctypes.c_void_p(), gpu.buffer(4)
        stream = gpu.stream()
        gpu.run(1000, stream)
        statuses = [
            gpu.cudaMallocAsync(ctypes.byref(memory), 4096, stream),
            gpu.cudaMemsetAsync(memory.value, 7, 4, stream),
            gpu.cudaMemcpyAsync(back, memory.value, 4, D2H, stream),
            gpu.cudaFreeAsync(memory.value, stream),
        ]
        return statuses, gpu.now(), ctypes.string_at(back, 4)

    assert simulate(program) == ([OK] * 4, 1008, b"\7" * 4)
