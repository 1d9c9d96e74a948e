"""After the training rank 0 converts the weights, which needs the others again, but these have ended."""

import sys

import torch
import torch.distributed as dist
from job import layers, start

rank, world, device = start()
model = layers(device)
dist.all_reduce(model[0].weight.data)
torch.cuda.synchronize()
if rank:
    sys.exit(0)  # G
torch.save(model.state_dict(), "weights.pt")
parts = [torch.empty_like(model[0].bias) for _ in range(world)]
dist.all_gather(parts, model[0].bias.detach())  # W
torch.cuda.synchronize()
