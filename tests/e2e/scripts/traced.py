"""Four DDP steps with a range of the script's own, a copy to the host and a side stream."""

import os

import torch
import torch.distributed as dist
from torch.autograd.profiler import record_function
from torch.nn.parallel import DistributedDataParallel

local_rank = int(os.environ["LOCAL_RANK"])
dist.init_process_group("nccl")
torch.cuda.set_device(local_rank)
layers = [torch.nn.Linear(1024, 1024) for _ in range(3)]
model = DistributedDataParallel(torch.nn.Sequential(*layers).cuda(), device_ids=[local_rank])
optimizer = torch.optim.AdamW(model.parameters())
side = torch.cuda.Stream()
for step in range(4):
    inputs = torch.randn(2048, 1024, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        squares = inputs.square()
    torch.cuda.current_stream().wait_stream(side)
    with record_function("forward of the model"):
        loss = model(inputs + squares).float().pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        print("step", step, loss.item())
    if os.environ.get("FAILS_AT") == str(step):
        raise RuntimeError("this step fails")
dist.destroy_process_group()
