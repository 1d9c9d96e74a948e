"""Ranks of a mesh run batches without synchronizing, and all synchronize in the last one. 16 ranks."""

import torch
from job import layers, start
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

_, world, device = start()
mesh = init_device_mesh("cuda", (world // 8, 8), mesh_dim_names=("replicate", "shard"))
model = fully_shard(layers(device), mesh=mesh)
for batch in range(6):
    model.set_requires_gradient_sync(batch == 5)
    loss = model(torch.rand(2, 8, device=device)).sum()
    loss.backward()
torch.cuda.synchronize()
