"""Hides its GPUs and trains on the CPU."""

import os

import torch

os.environ["CUDA_VISIBLE_DEVICES"] = ""
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Linear(8, 8, device=device)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(4):
    model(torch.randn(2, 8, device=device)).sum().backward()
    optimizer.step()
