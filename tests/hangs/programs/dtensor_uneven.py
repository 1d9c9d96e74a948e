"""A DTensor is made of local shards whose sizes differ, which nobody checks, and is gathered."""

import torch
from job import start
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

rank, world, device = start()
mesh = init_device_mesh("cuda", (world,))
local = torch.rand(4 if rank == 0 else 6, 8, device=device)
weight = DTensor.from_local(local, mesh, [Shard(0)], run_check=False)
print(weight.full_tensor().shape)  # G
torch.cuda.synchronize()
