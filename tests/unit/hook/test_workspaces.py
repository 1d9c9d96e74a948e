"""Workspaces of cuSOLVER and cuFFT, as an H200 needed them (laboratory/rows/library-blocks-h200.jsonl.gz), and the
launches of cuSOLVER.
"""

import ctypes

import pytest

F32, F64, C64, C128 = 0, 1, 4, 5
NBYTES = {F32: 4, F64: 8}
NULL = ctypes.c_void_p(None)


def solver_nbytes(c, call, dtype, m, n):
    count, device, host = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_size_t()
    typed, sizes = f"cusolverDn{'S' if dtype == F32 else 'D'}", (ctypes.byref(device), ctypes.byref(host))
    wide = ctypes.c_int64
    matrix = (NULL, m)
    if call == "potrf":
        assert not c.cusolverDnXpotrf_bufferSize(None, None, 0, wide(n), dtype, NULL, wide(n), dtype, *sizes)
    elif call == "syevd":
        assert not c.cusolverDnXsyevd_bufferSize(
            None, None, 1, 0, wide(n), dtype, NULL, wide(n), dtype, NULL, dtype, *sizes
        )
    elif call in ("getrf", "geqrf"):
        assert not getattr(c, f"{typed}{call}_bufferSize")(None, m, n, *matrix, ctypes.byref(count))
    elif call == "orgqr":
        assert not getattr(c, f"{typed}orgqr_bufferSize")(None, m, n, n, *matrix, NULL, ctypes.byref(count))
    elif call == "ormqr":
        ask = getattr(c, f"{typed}ormqr_bufferSize")
        assert not ask(None, 0, 1, m, 16, n, *matrix, NULL, NULL, m, ctypes.byref(count))
    elif call == "syevj":
        ask = getattr(c, f"{typed}syevj_bufferSize")
        assert not ask(None, 1, 0, n, *matrix, NULL, ctypes.byref(count), None)
    elif call == "gesvdj":
        ask = getattr(c, f"{typed}gesvdj_bufferSize")
        assert not ask(None, 1, 0, m, n, *matrix, NULL, NULL, m, NULL, n, ctypes.byref(count), None)
    return device.value or count.value * NBYTES[dtype]


@pytest.mark.parametrize(
    ("call", "dtype", "m", "n", "measured"),
    [
        ("potrf", F32, 8, 8, 160),
        ("potrf", F32, 513, 513, 1312),
        ("potrf", F64, 2048, 2048, 16512),
        ("getrf", F32, 512, 512, 8448),
        ("getrf", F64, 1024, 1024, 12544),
        ("geqrf", F32, 64, 64, 3145856),
        ("geqrf", F64, 1024, 1024, 12583040),
        ("geqrf", F32, 300, 2000, 10289280),
        ("orgqr", F32, 32, 32, 136192),
        ("orgqr", F32, 64, 64, 148480),
        ("orgqr", F64, 2048, 2048, 6424576),
        ("orgqr", F32, 2000, 300, 1397760),
        ("ormqr", F32, 1024, 1024, 9733248),
        ("ormqr", F64, 2048, 2048, 71895296),
        ("syevd", F32, 8, 8, 287820),
        ("syevd", F32, 513, 513, 4996504),
        ("syevd", F32, 3072, 3072, 152687500),
        ("syevd", F64, 128, 128, 1704600),
        ("syevd", F64, 2048, 2048, 136562328),
        ("syevj", F32, 32, 32, 12436),
        ("syevj", F32, 512, 512, 1124416),
        ("gesvdj", F32, 256, 256, 596096),
        ("gesvdj", F64, 1024, 1024, 17350912),
        ("gesvdj", F32, 512, 128, 3146368),
    ],
)
def test_workspaces_of_cusolver(running, call, dtype, m, n, measured):
    def program(rank):
        assert solver_nbytes(rank.c, call, dtype, m, n) == pytest.approx(measured, rel=2e-4, abs=64)

    running(program)


@pytest.mark.parametrize(
    ("kinds", "sizes", "batch", "measured"),
    [
        ((C64, C64), (4096,), 64, 0),
        ((C64, C64), (65536,), 64, 33554432),
        ((C64, C64), (1021,), 64, 0),
        ((C64, C64), (100003,), 64, 207360000),
        ((C64, C64), (1000, 1000), 8, 0),
        ((C128, C128), (257, 257), 8, 0),
        ((C128, C128), (1000, 1000), 8, 128000000),
        ((F32, C64), (4096,), 64, 0),
        ((F32, C64), (1021,), 64, 523520),
        ((F32, C64), (5000,), 64, 1280000),
        ((F32, C64), (65536,), 64, 16777728),
        ((F32, C64), (100003,), 64, 129282816),
        ((F32, C64), (512, 512), 8, 0),
        ((F32, C64), (257, 257), 8, 4228128),
        ((C64, F32), (198,), 64, 0),
        ((C64, F32), (8190,), 64, 2096640),
        ((C64, F32), (257, 512), 8, 0),
        ((C64, F32), (9998,), 64, 12801536),
        ((C64, F32), (131070,), 64, 167773696),
        ((C64, F32), (64, 126), 8, 0),
        ((C64, F32), (250, 498), 8, 4000000),
        ((C64, F32), (1000, 1998), 8, 63936000),
    ],
)
def test_workspaces_of_cufft(running, kinds, sizes, batch, measured):
    def program(rank):
        c, plan, nbytes = rank.c, ctypes.c_int(), ctypes.c_size_t()
        n, wide = (ctypes.c_longlong * len(sizes))(*sizes), ctypes.c_longlong
        assert not c.cufftCreate(ctypes.byref(plan))
        assert not c.cufftXtMakePlanMany(
            plan,
            len(sizes),
            n,
            None,
            wide(1),
            wide(1),
            kinds[0],
            None,
            wide(1),
            wide(1),
            kinds[1],
            wide(batch),
            ctypes.byref(nbytes),
            kinds[1],
        )
        assert nbytes.value == pytest.approx(measured, rel=3e-3)

    running(program)


@pytest.mark.parametrize(
    ("call", "m", "n", "launches"),
    [("geqrf", 4096, 8, 3), ("geqrf", 1024, 1024, 88), ("orgqr", 4096, 8, 10), ("orgqr", 2048, 2048, 230)],
)
def test_a_call_takes_the_host_s_time_of_its_launches(running, call, m, n, launches):
    """The price of a library's call holds three of them."""

    def program(rank):
        handle = ctypes.c_void_p()
        assert not rank.c.cusolverDnCreate(ctypes.byref(handle))
        sizes = (m, n, n) if call == "orgqr" else (m, n)
        before = rank.c.phantora_host_clock_ns()
        assert not getattr(rank.c, f"cusolverDnS{call}")(handle, *sizes, NULL, m, NULL, NULL, 0, NULL)
        assert rank.c.phantora_host_clock_ns() - before == 1_000_000 + 10 * (launches - 3)

    running(program, host_ns__library=1_000_000, host_ns__launch=10)
