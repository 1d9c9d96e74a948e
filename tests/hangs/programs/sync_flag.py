"""Gradients are synchronized when a window of batches is full, and one rank of a mesh counts a longer window."""

import torch
from job import layers, start
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

rank, world, device = start()
mesh = init_device_mesh("cuda", (world // 8, 8), mesh_dim_names=("replicate", "shard"))
model = fully_shard(layers(device), mesh=mesh)
window = 3 if rank == 200 else 2
for batch in range(6):
    model.set_requires_gradient_sync((batch + 1) % window == 0)
    loss = model(torch.rand(2, 8, device=device)).sum()  # G
    loss.backward()  # W
torch.cuda.synchronize()
