"""HSDP with clipping, two optimizers and a tensor-parallel layer. Each rank writes how often it propagated the sharding
of which operator on a list into a folder, the first argument.
"""

import sys
from collections import Counter
from pathlib import Path

import torch
from common import MLP, finish, start
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator

rank, world, device = start()
mesh = init_device_mesh("cuda", (2, world // 2), mesh_dim_names=("replicate", "shard"))
computed: Counter[str] = Counter()
meta_of = ShardingPropagator._propagate_tensor_meta_non_cached


def counted(self, schema):
    if schema.op._schema.name.startswith(("aten::_foreach", "aten::_fused")):
        computed[str(schema.op)] += 1
    return meta_of(self, schema)


ShardingPropagator._propagate_tensor_meta_non_cached = counted
with torch.device("meta"):
    model = MLP(512, 12)
for layer in model.layers:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
model.to_empty(device=device)
optimizers = [torch.optim.AdamW(model.parameters(), fused=True), torch.optim.SGD(model.parameters(), foreach=True)]
for optimizer in optimizers * 2:
    x = torch.randn(8, 64, 512, device=device)
    for layer in model.layers:
        x = x + layer(x)
    x.float().mean().backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
whole = distribute_tensor(torch.randn(64, 64, device=device), mesh["shard"], [Shard(0)])
other = distribute_tensor(torch.randn(64, 64, device=device), mesh["shard"], [Shard(1)])
(whole @ other).view(8, 8, 64).sum().full_tensor()
Path(sys.argv[1], f"computed{rank}").write_text(repr(dict(computed)))
finish()
