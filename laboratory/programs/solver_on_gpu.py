"""Measures factorisations, solves and eigenvalues of PyTorch's by size: the host's time until the call returns, the time
until the GPU is done, the sum of the kernels' times, all in microseconds, and how often each function of CUDA is called.

    python solver_on_gpu.py OUT.jsonl
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from statistics import median

import torch
from torch.profiler import ProfilerActivity, profile

linalg = torch.linalg
TALL = ((1024, 8), (4096, 8), (4096, 16), (4096, 32), (4096, 64), (2048, 128), (1024, 256), (1024, 512))
SQUARE = (32, 64, 128, 256, 512, 1024, 2048)
SOLVED = 16


def noise(*shape):
    return torch.randn(*shape, device="cuda")


def cases():
    for m, n in (*TALL, *((n, n) for n in (64, 256, 1024, 2048))):
        a, tau = noise(m, n), noise(n)
        yield "qr", m, n, lambda a=a: linalg.qr(a)
        yield "geqrf", m, n, lambda a=a: torch.geqrf(a)
        yield "orgqr", m, n, lambda a=a, tau=tau: linalg.householder_product(a, tau)
    for n in SQUARE:
        a, b = noise(n, n), noise(n, SOLVED)
        s = a @ a.T + n * torch.eye(n, device="cuda")
        c, (lu, pivots, _) = linalg.cholesky_ex(s)[0], linalg.lu_factor_ex(a)
        yield "cholesky_ex", n, n, lambda s=s: linalg.cholesky_ex(s)
        yield "cholesky_solve", n, SOLVED, lambda b=b, c=c: torch.cholesky_solve(b, c)
        yield "cholesky_inverse", n, n, lambda c=c: torch.cholesky_inverse(c)
        yield "lu_factor_ex", n, n, lambda a=a: linalg.lu_factor_ex(a)
        yield "lu_solve", n, SOLVED, lambda lu=lu, pivots=pivots, b=b: linalg.lu_solve(lu, pivots, b)
        yield "solve_ex", n, SOLVED, lambda a=a, b=b: linalg.solve_ex(a, b)
        yield "inv_ex", n, n, lambda a=a: linalg.inv_ex(a)
        if n <= 1024:
            yield "eigh", n, n, lambda s=s: linalg.eigh(s)
            yield "svd", n, n, lambda a=a: linalg.svd(a)


def measured(call):
    for _ in range(3):
        call()
    host, whole = [], []
    for _ in range(12):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        host.append(time.perf_counter() - begin)
        torch.cuda.synchronize()
        whole.append(time.perf_counter() - begin)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        call()
        torch.cuda.synchronize()
    events = profiler.events()
    gpu = sum(e.time_range.elapsed_us() for e in events if str(e.device_type).endswith("CUDA"))
    calls = Counter(e.name for e in events if e.name.startswith(("cuda", "cuLaunch")))
    return {"host_us": median(host) * 1e6, "whole_us": median(whole) * 1e6, "gpu_us": round(gpu, 1), "calls": calls}


if __name__ == "__main__":
    with open(sys.argv[1], "a") as file:
        for op, m, n, call in cases():
            file.write(json.dumps({"op": op, "m": m, "n": n} | measured(call)) + "\n")
