"""A whole training step as a CUDA graph, with the small tensors that count its launches."""

from __future__ import annotations

import time

import torch

model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
x = torch.randn(64, 512, device="cuda")
launches = torch.zeros((), dtype=torch.long, device="cuda")
given = torch.arange(4, device="cuda")


def step() -> torch.Tensor:
    optimizer.zero_grad(set_to_none=True)
    model(x).square().mean().backward()
    optimizer.step()
    launches.add_(1)
    return given * 2 + launches


side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(side)
assert launches.item() == 3

graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    result = step()
assert launches.item() == 3, "a capture computes nothing"
for _ in range(8):
    begun = time.perf_counter()
    graph.replay()
    torch.cuda.synchronize()
    print(f"replayed {(time.perf_counter() - begun) * 1e6:.3f} us")
assert launches.item() == 11
assert result.tolist() == [11, 13, 15, 17]
given.add_(10)
graph.replay()
assert result.tolist() == [32, 34, 36, 38]
print("PASSED")
