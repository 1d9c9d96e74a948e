"""A kernel that holds SMs and memory bandwidth as NCCL's channels do, until it is told to stop."""

from __future__ import annotations

import time
from typing import Any

import torch

from .operators import Unmeasurable
from .tensors import DEVICE, Json

THREADS, VECTORS = 640, 16
"""Threads of a block, and vectors of 16 bytes that each copies in one round: enough registers and threads that no block
of another kernel finds room beside it.
"""
SHARED_NBYTES = 160 << 10
ROUNDS = 200_000
"""The number of rounds after which the kernel ends by itself: some seconds."""
START_S = 0.001
_SOURCE = """
extern "C" __global__ void __launch_bounds__(640, 1)
phantora_resident(const float4 *from, float4 *into, volatile int *flag, int chunks, int cycles, int rounds)
{
    __shared__ int stop;
    for (int round = 0; round < rounds; round++) {
        long long began = clock64();
        if (threadIdx.x == 0) stop = *flag;
        __syncthreads();
        if (stop) return;
        long long chunk = (round * (long long)gridDim.x + blockIdx.x) % chunks;
        long long at = chunk * 640 * 16 + threadIdx.x;
        float4 held[16];
#pragma unroll
        for (int i = 0; i < 16; i++) held[i] = from[at + i * 640];
#pragma unroll
        for (int i = 0; i < 16; i++) into[at + i * 640] = held[i];
        while (clock64() - began < cycles) {}
        __syncthreads();
    }
}
"""


class Resident:
    def __init__(self, what: Json) -> None:
        """`blocks`: SMs that it holds; `gb_per_s`: what it reads and writes of memory. Raises Unmeasurable."""
        self._blocks = int(what["blocks"])
        compile_kernel: Any = getattr(torch.cuda, "_compile_kernel", None)
        if compile_kernel is None:
            raise Unmeasurable(f"torch {torch.__version__} cannot compile kernels at run time")
        try:
            self._kernel = compile_kernel(_SOURCE, "phantora_resident")
            self._kernel.set_shared_memory_config(SHARED_NBYTES)
        except (RuntimeError, OSError, AttributeError, ValueError) as error:
            raise Unmeasurable(f"no kernel beside: {error}") from None
        chunk_nbytes = THREADS * VECTORS * 16
        self._chunks = (256 << 20) // chunk_nbytes
        self._from = torch.randn(self._chunks * chunk_nbytes // 4, device=DEVICE)
        self._into = torch.empty_like(self._from)
        clock_khz = getattr(torch.cuda.get_device_properties(0), "clock_rate", 0) or 1_980_000
        self._cycles = int(2 * chunk_nbytes * self._blocks / float(what["gb_per_s"]) * clock_khz / 1e6)
        # In the GPU's memory: a kernel that reads the host's slows all others down several times.
        self._flag = torch.zeros(1, dtype=torch.int32, device=DEVICE)
        self._set = torch.ones(1, dtype=torch.int32, pin_memory=True)
        self._stream: Any = torch.cuda.Stream()
        self._stopping: Any = torch.cuda.Stream()

    def start(self) -> None:
        """Starts the kernel. The GPU has nothing else to do, so it runs soon after."""
        self._flag.zero_()
        torch.cuda.synchronize()
        self._kernel(
            grid=(self._blocks, 1, 1),
            block=(THREADS, 1, 1),
            args=[self._from, self._into, self._flag, self._chunks, self._cycles, ROUNDS],
            shared_mem=SHARED_NBYTES,
            stream=self._stream,
        )
        time.sleep(START_S)

    def stop(self) -> None:
        """Ends the kernel. Raises Unmeasurable if it had ended before."""
        ended = self._stream.query()
        with torch.cuda.stream(self._stopping):
            self._flag.copy_(self._set, non_blocking=True)
        self._stream.synchronize()
        if ended:
            raise Unmeasurable("the kernel beside it ended before it did")
