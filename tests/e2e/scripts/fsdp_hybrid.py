"""HSDP, gradient accumulation, activation checkpointing."""

import torch
from common import MLP, finish, start
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

rank, world, device = start()
mesh = init_device_mesh("cuda", (2, world // 2), mesh_dim_names=("replicate", "shard"))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
with torch.device("meta"):
    model = MLP(512, 4)
for layer in model.layers:
    fully_shard(layer, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
model.to_empty(device=device)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)


def forward(x: torch.Tensor) -> torch.Tensor:
    for layer in model.layers:
        x = x + checkpoint(layer, x, use_reentrant=False)
    return x


for _ in range(3):
    for micro in range(2):
        model.set_requires_gradient_sync(micro == 1)
        forward(torch.randn(8, 64, 512, device=device, dtype=torch.bfloat16)).float().mean().backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
assert norm.full_tensor().item() == 0.0
finish()
