"""FSDP2 saves a sharded checkpoint over gloo, over NCCL and in a thread while it trains on, and loads it. Rank 0 counts
the chunks of each tensor.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from common import MLP, finish
from torch.distributed.fsdp import fully_shard

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("cpu:gloo,cuda:nccl")
torch.manual_seed(0)
model = MLP(64, 2).to(device)
fully_shard(model)
model(torch.ones(8, 64, device=device)).sum().backward()
folder = Path(sys.argv[1])
state = {"model": model.state_dict()}
dcp.save(state, checkpoint_id=folder / "saved")
dcp.save(state, checkpoint_id=folder / "over NCCL", process_group=dist.new_group(backend="nccl"))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(4):
    pending = dcp.async_save(state, checkpoint_id=folder / "later")
    for _ in range(step):
        model(torch.ones(8, 64, device=device)).sum().backward()
        optimizer.step()
    pending.result()
dcp.load(state, checkpoint_id=folder / "saved")
for saved in ("saved", "over NCCL") if dist.get_rank() == 0 else ():
    metadata = dcp.FileSystemReader(folder / saved).read_metadata()
    for name, tensor in metadata.state_dict_metadata.items():
        starts = sorted(chunk.offsets[0] for chunk in tensor.chunks)
        rows = tensor.size[0] // dist.get_world_size()
        assert starts == [rows * rank for rank in range(dist.get_world_size())], (name, starts)
    assert len({info.relative_path for info in metadata.storage_data.values()}) == dist.get_world_size()
finish()
