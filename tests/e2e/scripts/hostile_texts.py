"""Trains a little, logs HTML, and has kernels and warnings with HTML in their names. argv: steps, seconds to sleep, and
a file: once that exists it ends.
"""

from __future__ import annotations

import os
import sys
import time
import warnings

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

HTML = "</script><img src=x onerror=window.hacked=1><script>window.hacked=1</script>"
steps, pause_s, ends = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(4)]).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
warnings.warn(HTML, stacklevel=1)
for step in range(1, steps + 1):
    x = torch.randn(512, 1024, device="cuda")
    if rank == 1:
        model(x)  # the straggler
    with torch.cuda.nvtx.range(HTML):
        model(x).sum().backward()
    optimizer.step()
    if rank == 0:
        print(f"step {step}/{steps} {step * 1000} tokens/s {HTML}", flush=True)
        if float(x.sum()) == 1.5:  # nobody has computed it: the report warns with this line
            print(HTML)
    if pause_s:
        os.system(f"sleep {pause_s}")  # real time, so that the run lasts
    if ends:
        found = [os.path.exists(ends[0])]
        dist.broadcast_object_list(found, device=torch.device("cuda", torch.cuda.current_device()))
        if found[0]:
            break
dist.destroy_process_group()
print(f"{HTML} {time.time()}")
