"""Matrix products as a GPU runs them: output tiles dealt to SMs in waves."""

from __future__ import annotations

from math import ceil

from profiles.estimate import Estimate, memory_ns
from profiles.gpu import Gpu


def matmul(gpu: Gpu, dtype: str, m: int, n: int, k: int, batch: int, out_nbytes: float) -> Estimate:
    flops = 2.0 * m * n * k * batch
    rate = gpu.peak_flops(dtype) * gpu.achieved.tensor_fraction
    tiles = ceil(m / 128) * ceil(n / 256) * batch
    best = []
    for sms in (gpu.sm_count, gpu.sm_count - gpu.nccl_sms):
        waves = ceil(tiles / sms)
        best.append(gpu.achieved.kernel_floor_ns + waves * 2.0 * 128 * 256 * k / (rate / gpu.sm_count) * 1e9)
    item = 2.0 if dtype in ("bf16", "f16") else 4.0
    bound = memory_ns(gpu, batch * ((m * k + n * k) * item + m * n * out_nbytes))
    return Estimate(max(best[0], bound), max(best[1], bound), flops)
