"""Two jobs, one after the other: DistributedDataParallel, whose model is deleted, then FSDP2; each with its groups."""

import gc
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl")
world_size = dist.get_world_size()


def model() -> nn.Sequential:
    with device:
        return nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(6)))


def train(module: nn.Module) -> None:
    optimizer = torch.optim.AdamW(module.parameters(), foreach=True)
    for _ in range(3):
        module(torch.randn(64, 1024, device=device)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()


train(DistributedDataParallel(model(), device_ids=[device.index], bucket_cap_mb=4))
gc.collect()
torch.cuda.empty_cache()
mesh = init_device_mesh("cuda", (world_size,))
sharded = model()
for layer in sharded:
    fully_shard(layer, mesh=mesh)
fully_shard(sharded, mesh=mesh)
train(sharded)
dist.barrier()
torch.cuda.empty_cache()
print("left", torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), flush=True)
dist.destroy_process_group()
