"""Rank 1 puts a tensor on the GPU of rank 0, and all ask how much memory is free there before and after."""

import os

import torch
import torch.distributed as dist

MIB = 1 << 20
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
dist.init_process_group("nccl")
own = torch.empty(512 * MIB, dtype=torch.uint8, device="cuda")
weight = torch.nn.Linear(64, 64, device="cuda")
optimizer = torch.optim.SGD(weight.parameters(), 0.1)
dist.barrier()
before, total = torch.cuda.mem_get_info(0)
print(f"FREE {total - before}", flush=True)
dist.barrier()
if local == 1:
    guest = torch.empty(256 * MIB, dtype=torch.uint8, device="cuda:0")
    print("PUT", flush=True)
dist.barrier()
after, _ = torch.cuda.mem_get_info(0)
print(f"LESS {before - after}", flush=True)
for _ in range(4):
    weight(torch.ones(8, 64, device="cuda")).sum().backward()
    optimizer.step()
dist.destroy_process_group()
