"""Matrix products beside all-reduces, without steps: the report covers the whole run."""

import os
import sys

import torch
import torch.distributed as dist

local_rank = int(os.environ["LOCAL_RANK"])
dist.init_process_group("nccl")
torch.cuda.set_device(local_rank)
a = torch.empty(4096, 4096, device="cuda", dtype=torch.bfloat16)
gradients = torch.empty(64 << 20, device="cuda", dtype=torch.bfloat16)
for _ in range(int(sys.argv[1])):
    work = dist.all_reduce(gradients, async_op=True)
    for _ in range(4 + 2 * dist.get_rank()):
        a = a @ a
    work.wait()
    gradients += 1
torch.cuda.synchronize()
dist.destroy_process_group()
