"""Training whose memory is known: what a model, its gradients and AdamW take. Prints PyTorch's own peak."""

import os
import sys

import torch
from torch import nn

DIM, LAYERS, ROWS = 2048, 6, 4096
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
model = nn.Sequential(*(nn.Linear(DIM, DIM, bias=False) for _ in range(LAYERS))).to(device)
optimizer = torch.optim.AdamW(model.parameters())
batch = torch.randn(ROWS, DIM, device=device)
for step in range(4):
    out = model(batch)
    out.square().mean().backward()
    if "more" in sys.argv and step:
        held = torch.empty(1 << 30, dtype=torch.uint8, device=device)
        torch.empty(1 << 50, dtype=torch.uint8, device=device)
    optimizer.step()
    del out
    if "keep" not in sys.argv:
        optimizer.zero_grad()
print("PEAK", torch.cuda.max_memory_allocated(), flush=True)
