"""A graph computes and overwrites at each launch."""

import torch

x = torch.ones(4, device="cuda")
s = torch.cuda.Stream()
with torch.cuda.stream(s):
    x * 2
g = torch.cuda.CUDAGraph()
with torch.cuda.graph(g):
    y = x * 2
    x.add_(1)
for _ in range(3):
    g.replay()
print("X", x.tolist(), "Y", y.tolist())
