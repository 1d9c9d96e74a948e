"""Trains a model of the width that an argument says, and fills so much of the GPU's memory besides."""

from __future__ import annotations

import argparse

import torch
from common import MLP, start
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=256)
parser.add_argument("--fill-gib", type=int, default=0)
arguments = parser.parse_args()
rank, world, device = start()
filled = torch.empty(arguments.fill_gib << 30, dtype=torch.uint8, device=device)
model = DistributedDataParallel(MLP(arguments.width, 2).to(device))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(5):
    model(torch.randn(64, arguments.width, device=device)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
