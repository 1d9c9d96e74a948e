"""Ranks decode with a sharded student until each one's own text ends, and then score it with a sharded teacher."""

import torch
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
        x = student(x)  # W
        if position + 1 == length:
            break
    return x


for _ in range(2):
    text = generate(torch.rand(2, 8, device=device), most=8)
    target = teacher(text).detach()  # G
    (student(text) - target).square().mean().backward()
torch.cuda.synchronize()
