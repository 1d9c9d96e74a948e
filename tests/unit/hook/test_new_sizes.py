"""A library takes the host more time for a size that the process has not had."""

from __future__ import annotations

import ctypes

import pytest

F32, BF16 = 0, 14  # cudaDataType_t
COMPUTE_32F, FAST_TF32 = 68, 77


@pytest.mark.parametrize(
    ("dtype", "compute", "first"),
    [(BF16, COMPUTE_32F, 7_000), (F32, FAST_TF32, 7_000), (F32, COMPUTE_32F, 0)],
)
def test_cublas_chooses_a_kernel_once_for_each_size_that_tensor_cores_compute(running, dtype, compute, first):
    def program(rank):
        c, handle = rank.c, ctypes.c_void_p()
        assert not c.cublasCreate_v2(ctypes.byref(handle))
        one, memory = ctypes.c_float(1), ctypes.c_void_p()
        assert not c.cudaMalloc(ctypes.byref(memory), 1 << 20)

        def took(m: int) -> int:
            before = c.phantora_host_clock_ns()
            assert not c.cublasGemmEx(
                handle, 0, 0, m, 64, 32, ctypes.byref(one), memory, dtype, m, memory, dtype, 32, ctypes.byref(one),
                memory, dtype, m, compute, -1,
            )  # fmt: skip
            return c.phantora_host_clock_ns() - before

        assert [took(m) for m in (64, 64, 128, 64, 128)] == [1_000 + more for more in (first, 0, first, 0, 0)]

    running(program, host_ns__library=1_000, host_ns__new_product=7_000)
