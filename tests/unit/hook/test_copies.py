"""Copies and sets: their signatures, their bytes, and where the host waits."""

import ctypes

import pytest

from emu.contract import records

H2D, D2H, D2D, DEFAULT = 1, 2, 3, 4


def test_bytes_travel_and_signatures_tell_the_way(running):
    def program(rank):
        a, b, pinned = rank.malloc(8192), rank.malloc(8192), rank.host(8192)
        source = (ctypes.c_char * 4096).from_buffer_copy(bytes(range(256)) * 16)
        target = (ctypes.c_char * 4096)()
        assert rank.c.cudaMemcpy(a, source, 4096, DEFAULT) == 0
        assert rank.c.cudaMemcpyAsync(b, a, 4096, D2D, None) == 0
        assert rank.c.cudaMemcpyAsync(pinned, b, 4096, D2H, None) == 0
        assert rank.c.cudaMemcpy(target, b, 4096, D2H) == 0
        assert bytes(target) == bytes(source)
        rank.c.cudaMemsetAsync(a, 7, 100, None)
        rank.c.cudaMemcpy(target, a, 200, D2H)
        assert bytes(target)[:200] == b"\7" * 100 + bytes(source)[100:200]

    told = running(program)
    assert told.signatures[:4] == [
        "copy;h2d;4096;pageable",
        "copy;d2d;4096;pinned",
        "copy;d2h;4096;pinned",
        "copy;d2h;4096;pageable",
    ]
    assert told.of(records.COUNTERS)[-1].unmodelled_reads == 0


@pytest.mark.parametrize(
    ("pinned", "to_device", "nbytes", "async_", "waits"),
    [
        (True, True, 1 << 20, True, False),
        (True, False, 1 << 20, True, False),
        (True, True, 4096, False, True),
        (False, True, 4096, True, False),  # staged at once
        (False, True, 2 << 20, True, False),  # fits into the staging buffer
        (False, True, 3 << 20, True, True),
        (False, True, 4096, False, True),
        (False, False, 4096, True, True),
        (False, False, 4096, False, True),
    ],
)
def test_the_host_waits_where_cuda_waits(running, pinned, to_device, nbytes, async_, waits):
    def program(rank):
        device = rank.malloc(nbytes)
        host = rank.host(nbytes) if pinned else ctypes.addressof(keep)
        dst, src = (device, host) if to_device else (host, device)
        if async_:
            rank.c.cudaMemcpyAsync(dst, src, nbytes, DEFAULT, None)
        else:
            rank.c.cudaMemcpy(dst, src, nbytes, DEFAULT)

    keep = (ctypes.c_char * nbytes)()
    assert bool(running(program).of(records.HOST_WAIT)) == waits


def test_reading_what_nobody_wrote_is_counted(running):
    def program(rank):
        device, target = rank.malloc(4096), (ctypes.c_char * 4096)()
        rank.c.cudaMemcpy(target, device, 8, D2H)
        assert rank.c.phantora_unmodelled_reads() == 1
        rank.c.cudaMemsetAsync(device, 0, 4096, None)
        rank.c.cudaMemcpy(target, device, 8, D2H)

    assert running(program).of(records.COUNTERS)[-1].unmodelled_reads == 1


def test_wrong_directions_are_refused(running):
    def program(rank):
        device, host = rank.malloc(64), (ctypes.c_char * 64)()
        assert rank.c.cudaMemcpy(device, host, 64, D2H) == 1
        assert rank.c.cudaMemcpy(device, host, 64, 9) == 21
        assert rank.c.cudaGetLastError() == 21

    running(program)
