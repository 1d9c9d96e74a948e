"""Prints by how many MiB the free memory falls with NCCL's first collective, another communicator, and messages."""

import os

import torch
import torch.distributed as dist

MIB = 1 << 20
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
some = torch.ones(MIB, device="cuda")
before = [torch.cuda.mem_get_info()[0]]


def taken() -> int:
    free, _ = torch.cuda.mem_get_info()
    by, before[0] = before[0] - free, free
    return by // MIB


dist.init_process_group("nccl")
dist.all_reduce(some)
first = taken()
other = dist.new_group([0, 1])
dist.all_reduce(some, group=other)
second = taken()
dist.all_to_all_single(torch.empty_like(some), some, group=other)
print(f"TAKEN {first} {second} {taken()}", flush=True)
