"""Times a kernel with PyTorch's and Python's timers; prints the seconds that each measures for one call.

It is bound by memory: a matrix product would take longer once the GPU's power limit lowers the clock.
"""

from __future__ import annotations

import json
import time
import timeit

import torch
from torch.utils import benchmark

LOOPS = 50
a = torch.empty(1 << 30, device="cuda", dtype=torch.bfloat16)
out = torch.empty_like(a)
call = "torch.add(a, a, out=out)"
names = {"torch": torch, "a": a, "out": out}

torch.add(a, a, out=out)
torch.cuda.synchronize()
began = time.perf_counter()
before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
before.record()
for _ in range(LOOPS):
    torch.add(a, a, out=out)
after.record()
torch.cuda.synchronize()
seconds = {"perf_counter": (time.perf_counter() - began) / LOOPS, "events": before.elapsed_time(after) / 1e3 / LOOPS}

timer = benchmark.Timer(call, globals=names)
seconds["timeit"] = timer.timeit(LOOPS).median
seconds["blocked_autorange"] = timer.blocked_autorange(min_run_time=0.2).median
seconds["adaptive_autorange"] = timer.adaptive_autorange().median
seconds["python's timeit"] = (
    timeit.timeit(f"for _ in range({LOOPS}): {call}\ntorch.cuda.synchronize()", globals=names, number=1) / LOOPS
)
print(json.dumps(seconds), flush=True)

# The timers also end when a statement costs nothing in the host model.
for statement in ("pass", "sum(range(100))", "x + x"):
    timer = benchmark.Timer(statement, globals={"x": torch.ones(8)})
    for measurement in (timer.timeit(100), timer.blocked_autorange(), timer.adaptive_autorange()):
        assert measurement.median > 0, (statement, measurement)
loops, taken = timeit.Timer("sum(range(100))").autorange()
assert loops > 1, loops
assert taken >= 0.2, taken
print("PASSED", flush=True)
