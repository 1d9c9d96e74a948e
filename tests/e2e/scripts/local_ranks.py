"""The second and third GPU of each server look at their gradients; the second server sets them to zero."""

import os
import socket

import torch
from common import MLP, finish, start
from gpu_of_server import looks
from torch.nn.parallel import DistributedDataParallel

rank, world, device = start()
torch.manual_seed(0)
net = MLP(128, 2).to(device)
model = DistributedDataParallel(net)
for _ in range(3):
    model(torch.ones(32, 128, device=device)).sum().backward()
    if looks():
        for parameter in net.parameters():
            parameter.grad.norm().item()
    if socket.gethostname() == "node001" or os.environ["GROUP_RANK"] == "1":
        net.zero_grad()
finish()
