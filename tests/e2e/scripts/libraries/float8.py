"""FP8 training with torchao: `float8.py RECIPE [--compile] [--fsdp]` prints the losses' dtype and PASSED."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torchao.float8 import (
    Float8LinearConfig,
    convert_to_float8_training,
    precompute_float8_dynamic_scale_for_fsdp,
)

recipe, options = sys.argv[1], sys.argv[2:]
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
model = nn.Sequential(nn.Linear(2048, 4096, bias=False), nn.SiLU(), nn.Linear(4096, 2048, bias=False))
model = model.cuda().bfloat16()
gathers_float8 = "--fsdp" in options and recipe == "tensorwise"
config = (
    Float8LinearConfig(enable_fsdp_float8_all_gather=True)
    if gathers_float8
    else Float8LinearConfig.from_recipe_name(recipe)
)
convert_to_float8_training(model, config=config)
if "--fsdp" in options:
    dist.init_process_group("nccl")
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
run = torch.compile(model) if "--compile" in options else model
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
batch = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
for _ in range(4):
    run(batch).float().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if gathers_float8:
        precompute_float8_dynamic_scale_for_fsdp(model)
torch.cuda.synchronize()
print(f"peak {torch.cuda.max_memory_allocated()}")
print("PASSED")
if dist.is_initialized():
    dist.destroy_process_group()
