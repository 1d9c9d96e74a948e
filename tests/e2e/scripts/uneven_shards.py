"""FSDP2 with rows that are no multiple of the ranks: 10, 40 and 41 rows."""

import torch
from common import finish, start
from torch.distributed.fsdp import fully_shard

rank, world, device = start()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(10, 41), torch.nn.ReLU(), torch.nn.Linear(41, 40)).to(device)
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
for _ in range(3):
    model(torch.randn(8, 10, device=device)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
finish()
