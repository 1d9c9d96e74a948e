"""FSDP wraps vision and text towers of the same size, so a rank without images pairs the wrong all-gathers."""

import torch
from job import layers, start
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

rank, _, device = start()


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision = FSDP(layers(device), device_id=device)
        self.text = FSDP(layers(device), device_id=device)

    def forward(self, tokens, pixels):
        seen = self.vision(pixels) if pixels is not None else 0  # W
        return self.text(tokens) + seen  # G


model = Towers()
for step in range(3):
    pixels = torch.rand(2, 8, device=device) if rank == 0 or step < 2 else None
    model(torch.rand(2, 8, device=device), pixels).sum().backward()
torch.cuda.synchronize()
