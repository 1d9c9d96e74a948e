"""Only batches with images run the vision encoder, which FSDP2 has sharded; one rank's batch has none."""

import torch
from job import layers, start
from torch import nn
from torch.distributed.fsdp import fully_shard

rank, _, device = start()


class Multimodal(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision = layers(device, count=1, dim=16)
        self.language = layers(device, count=2)

    def forward(self, tokens, pixels):
        x = tokens
        if pixels is not None:
            x = x + self.vision(pixels)[:, :8]  # W
        return self.language(x)  # G


model = Multimodal()
fully_shard(model.vision)
fully_shard(model.language)
pixels = torch.rand(2, 16, device=device) if rank == 0 else None
model(torch.rand(2, 8, device=device), pixels).sum().backward()
torch.cuda.synchronize()
