"""Each rank uses other parameters, and DDP looks for those that are not used. 2 ranks."""

import torch
from job import layers, start
from torch import nn
from torch.nn.parallel import DistributedDataParallel

rank, _, device = start()


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList(layers(device) for _ in range(2))

    def forward(self, x, number):
        return self.branches[number](x)


model = DistributedDataParallel(Branches(), device_ids=[device.index], find_unused_parameters=True)
for step in range(3):
    model(torch.rand(2, 8, device=device), (rank + step) % 2).sum().backward()
torch.cuda.synchronize()
