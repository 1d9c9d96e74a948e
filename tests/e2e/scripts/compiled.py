"""torch.compile: every rank runs the kernels that Triton made, forward and backward. DistributedDataParallel splits the
model into several graphs, of which the first names its GPU; two launch the same kernel.
"""

from __future__ import annotations

import os
import time

import torch
import torch.distributed as dist


class Places(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.arange(x.shape[1], device=x.device)


dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = torch.nn.Sequential(
    Places(),
    torch.nn.Linear(256, 512),
    torch.nn.GELU(),
    torch.nn.Linear(512, 512),
    torch.nn.GELU(),
    torch.nn.Linear(512, 512),
    torch.nn.LayerNorm(512),
).cuda()
compiled = torch.nn.parallel.DistributedDataParallel(torch.compile(model), bucket_cap_mb=1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
x = torch.randn(64, 256, device="cuda")
took_ns = []
for _ in range(4):
    began_ns = time.perf_counter_ns()
    compiled(x).square().mean().backward()
    took_ns.append(time.perf_counter_ns() - began_ns)
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
frames = torch._dynamo.utils.counters["frames"]
assert frames["ok"] > 0, frames
dist.destroy_process_group()
print(f"passes took {took_ns} ns")
counted = torch._dynamo.utils.counters
print(f"compiled {counted['aot_autograd']['autograd_cache_miss']} graphs")
print(f"found {counted['aot_autograd']['autograd_cache_hit']} and {counted['inductor']['fxgraph_cache_hit']} graphs")
print("PASSED")
