"""Early stopping is decided where the validation metric is: on the main process, which leaves the loop alone."""

import torch
from job import layers, start
from torch.nn.parallel import DistributedDataParallel

rank, _, device = start()
model = DistributedDataParallel(layers(device), device_ids=[device.index])
best, since = float("inf"), 0
for epoch in range(8):
    for _ in range(2):
        model(torch.rand(2, 8, device=device)).sum().backward()  # W
    if rank == 0:
        metric = 1.0 + 0.1 * (epoch > 1)
        best, since = (metric, 0) if metric < best else (best, since + 1)
        if since == 2:
            print("stop at", epoch)
            break
torch.cuda.synchronize()
