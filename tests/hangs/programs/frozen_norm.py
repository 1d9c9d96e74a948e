"""A rank whose parameters are all frozen returns before the norm of the gradients is summed."""

import torch
import torch.distributed as dist
from job import layers, start

rank, world, device = start()
pairs = [dist.new_group([first, first + 1]) for first in range(0, world, 2)]
sides = [dist.new_group(list(range(side, world, 2))) for side in range(2)]
pair, side = pairs[rank // 2], sides[rank % 2]
model = layers(device)
if rank == 5:
    model.requires_grad_(False)


def norm():
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    if not gradients:
        return 0.0
    total = torch.stack([gradient.norm() for gradient in gradients]).square().sum()
    dist.all_reduce(total, group=side)  # W
    dist.all_reduce(total, group=pair)  # V
    return total.sqrt().item()


for step in range(2):
    out = model(torch.rand(2, 8, device=device)).sum()
    if out.requires_grad:
        out.backward()
    print(step, norm())
    done = torch.ones(1, device=device)
    dist.all_reduce(done)  # G
torch.cuda.synchronize()
