"""Ranks decode with a sharded student until all of their texts have ended. 2 ranks."""

import torch
import torch.distributed as dist
from job import layers, start
from torch.distributed.fsdp import fully_shard

rank, _, device = start()
student, teacher = layers(device), layers(device, count=3)
for model in (student, teacher):
    for layer in model:
        fully_shard(layer)
    fully_shard(model)


@torch.no_grad()
def generate(x, most):
    length = 3 if rank == 0 else 5
    for position in range(most):
        x = student(x)
        open_texts = torch.tensor([int(position + 1 < length)], device=device)
        dist.all_reduce(open_texts)
        if not open_texts.item():
            assert position == 4
            break
    return x


for _ in range(2):
    text = generate(torch.rand(2, 8, device=device), most=8)
    target = teacher(text).detach()
    (student(text) - target).square().mean().backward()
torch.cuda.synchronize()
