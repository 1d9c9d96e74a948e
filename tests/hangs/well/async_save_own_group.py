"""PyTorch's own thread writes checkpoints over a group of its own, beside the main thread's barriers. 2 ranks."""

import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from job import layers, start

rank, _, device = start()
saves, meets = dist.new_group(backend="gloo"), dist.new_group(backend="gloo")
model = layers(device)
for step in range(2):
    model(torch.rand(2, 8, device=device)).sum().backward()
    saved = dcp.async_save(model.state_dict(), checkpoint_id=f"step-{step}", process_group=saves)
    time.sleep(1 + rank)
    dist.barrier(group=meets)
    saved.result()
dist.barrier()
