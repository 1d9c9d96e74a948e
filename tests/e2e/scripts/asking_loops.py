"""Waits for GPU work in loops that only ask, and leaves the rest to destroy_process_group."""

from __future__ import annotations

import torch
import torch.distributed as dist
from common import start


def main() -> None:
    rank, _, device = start()
    x = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)
    total = torch.ones(1 << 24, device=device)
    torch.cuda.synchronize()

    def work() -> None:
        for _ in range(8):
            x @ x
        dist.all_reduce(total)

    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    before.record()
    work()
    after.record()
    turns = 0
    while not after.query():
        turns += 1
    print(f"rank {rank} event: {turns} turns, {1000 * before.elapsed_time(after):.0f} us", flush=True)
    work()
    stream, turns = torch.cuda.current_stream(), 0
    while not stream.query():
        turns += 1
    print(f"rank {rank} stream: {turns} turns", flush=True)
    for _ in range(3):
        work()
    dist.destroy_process_group()


main()
