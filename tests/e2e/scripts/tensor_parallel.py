"""DTensor tensor parallelism, alone or combined with FSDP2 over a 2-D mesh."""

import torch
from common import MLP, finish, start
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

rank, world, device = start()
mesh = init_device_mesh("cuda", (world // 2, 2), mesh_dim_names=("dp", "tp"))
torch.manual_seed(0)
model = MLP(256, 4).to(device)
for layer in model.layers:
    parallelize_module(layer, mesh["tp"], {"1": ColwiseParallel(), "3": RowwiseParallel()})
if mesh["dp"].size() > 1:
    for layer in model.layers:
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
weight = model.layers[0][1].weight
assert isinstance(weight, DTensor)
assert weight.shape == (1024, 256)
assert weight.to_local().shape[0] == 1024 // world, weight.to_local().shape
optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
for _ in range(3):
    loss = model(torch.randn(4, 32, 256, device=device)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

index = distribute_tensor(torch.arange(12, device=device), mesh["tp"], [Shard(0)])
whole = index.redistribute(mesh["tp"], [Replicate()]).to_local()
assert whole.tolist() == list(range(12)), whole.tolist()
assert index.sum().full_tensor().item() == 66
finish()
