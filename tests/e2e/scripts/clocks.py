"""Measures every training step with every clock that a script can read; prints the steps' lengths by clock."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from time import perf_counter

import torch
from common import MLP, finish, start
from torch.nn.parallel import DistributedDataParallel

STEPS = 8
CLOCKS: dict[str, Callable[[], float]] = {
    "perf_counter": perf_counter,
    "perf_counter_ns": lambda: time.perf_counter_ns() / 1e9,
    "monotonic": time.monotonic,
    "monotonic_ns": lambda: time.monotonic_ns() / 1e9,
    "time": time.time,
    "time_ns": lambda: time.time_ns() / 1e9,
    "clock_gettime": lambda: time.clock_gettime(time.CLOCK_MONOTONIC_RAW),
    "clock_gettime_ns": lambda: time.clock_gettime_ns(time.CLOCK_REALTIME) / 1e9,
    "datetime.now": lambda: datetime.now().timestamp(),
    "datetime.now(UTC)": lambda: (datetime.now(UTC) - datetime(2020, 1, 1, tzinfo=UTC)).total_seconds(),
    "datetime.utcnow": lambda: (datetime.utcnow() - datetime(2020, 1, 1)).total_seconds(),
}


def main() -> None:
    rank, _, device = start()
    model = DistributedDataParallel(MLP(2048, 8).to(device), device_ids=[device.index])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    seen: dict[str, list[float]] = {name: [] for name in CLOCKS}
    events = []
    for _ in range(STEPS + 1):
        torch.cuda.synchronize()
        events.append(torch.cuda.Event(enable_timing=True))
        events[-1].record()
        for name, read in CLOCKS.items():
            seen[name].append(read())
        model(torch.randn(512, 2048, device=device)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    steps_s = {name: [after - before for before, after in pairwise(at)] for name, at in seen.items()}
    steps_s["events"] = [before.elapsed_time(after) / 1e3 for before, after in pairwise(events)]
    if rank == 0:
        print(json.dumps(steps_s), flush=True)
    finish()


main()
