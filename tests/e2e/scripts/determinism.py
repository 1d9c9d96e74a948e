"""Trains a little and asks virtual time in every way: clocks, events, queries; uneven ranks, small messages."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from common import MLP, finish, start
from torch.nn.parallel import DistributedDataParallel

STEPS = 4


def main() -> None:
    rank, world, device = start()
    halves = [dist.new_group(list(range(first, first + world // 2))) for first in (0, world // 2)]
    mine = halves[rank >= world // 2]
    model = DistributedDataParallel(MLP(256, 3).to(device), device_ids=[device.index], bucket_cap_mb=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    times = []
    for step in range(STEPS):
        began = time.perf_counter()
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        x = torch.randn(16, 256, device=device)
        for _ in range((rank + step) % 3):  # ranks are uneven, and not always the same ones
            x = x + torch.tanh(x @ x.T) @ x
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        after.record()
        total = torch.ones(64, device=device, dtype=torch.int64)
        dist.all_reduce(total, group=mine)
        if rank % 2 == 0 and rank + 1 < world:
            dist.send(torch.zeros(1 << 16, device=device), rank + 1)
        elif rank % 2:
            dist.recv(torch.empty(1 << 16, device=device), rank - 1)
        while not after.query():
            time.sleep(1e-5)
        times.append((before.elapsed_time(after), time.perf_counter() - began))
    seen: list[object] = [None] * world
    dist.all_gather_object(seen, times)
    if rank == 0:
        print(f"times {seen}", flush=True)
    finish()


main()
