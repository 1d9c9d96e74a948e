"""All ranks gather the full state of a sharded model, and rank 0 alone writes it. 2 ranks."""

import torch
import torch.distributed as dist
from job import layers, start
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

rank, _, device = start()
model = layers(device)
for layer in model:
    fully_shard(layer)
fully_shard(model)
model(torch.rand(2, 8, device=device)).sum().backward()
state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
if rank == 0:
    torch.save(state, "full.pt")
dist.barrier()
assert len(torch.load("full.pt")) == 4
