"""Forward and backward pass captured once and replayed; only the optimizer's steps are launched one by one."""

from __future__ import annotations

import time

import torch

model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
x = torch.randn(64, 512, device="cuda")


def forward_backward() -> None:
    model(x).square().mean().backward()


side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        optimizer.zero_grad(set_to_none=True)
        forward_backward()
        optimizer.step()
torch.cuda.current_stream().wait_stream(side)

graph = torch.cuda.CUDAGraph()
optimizer.zero_grad(set_to_none=True)
with torch.cuda.graph(graph):
    forward_backward()
for _ in range(8):
    begun = time.perf_counter()
    graph.replay()
    optimizer.step()
    torch.cuda.synchronize()
    print(f"replayed {(time.perf_counter() - begun) * 1e6:.3f} us")
print("PASSED")
