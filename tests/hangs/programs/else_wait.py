"""The main process gathers the sharded weights to save them, and the others wait for it at a barrier."""

import torch
import torch.distributed as dist
from job import layers, start
from torch.distributed.fsdp import fully_shard

rank, _, device = start()
model = layers(device)
fully_shard(model)
model(torch.rand(2, 8, device=device)).sum().backward()
if rank == 0:
    state = {name: weight.full_tensor().cpu() for name, weight in model.state_dict().items()}  # G
    torch.save(state, "model.pt")
else:
    dist.barrier()  # W
torch.cuda.synchronize()
