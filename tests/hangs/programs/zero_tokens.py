"""A rank whose experts get no token skips them, so DDP waits for their gradients in vain."""

import torch
from job import layers, start
from torch import nn
from torch.nn.parallel import DistributedDataParallel

rank, _, device = start()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.router, self.experts = layers(device, 1), layers(device, 2)

    def forward(self, tokens):
        routed = tokens[: 0 if rank == 1 else 4]
        x = self.router(tokens).sum()
        return x + self.experts(routed).sum() if len(routed) else x


model = DistributedDataParallel(Block(), device_ids=[device.index])
for _ in range(2):
    model(torch.rand(8, 8, device=device)).backward()  # G
torch.cuda.synchronize()
