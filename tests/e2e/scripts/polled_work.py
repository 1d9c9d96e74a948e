"""Python code asks whether a collective is complete, with other work of its own between the questions."""

from __future__ import annotations

import asyncio
import os

import torch
import torch.distributed as dist


async def steps(rank: int) -> None:
    for _ in range(3):
        await asyncio.sleep(0.004 * (rank + 1))
        work = dist.all_reduce(torch.ones(1 << 18, device="cuda"), async_op=True)
        while not work.is_completed():
            await asyncio.sleep(0)
        torch.cuda.nvtx.mark("phantora.step")


def main() -> None:
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    asyncio.run(steps(dist.get_rank()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
