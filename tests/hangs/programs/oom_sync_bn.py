"""One rank skips a batch that does not fit its GPU, and is a batch ahead in the synchronized batch norm after that."""

import torch
import torch.distributed as dist
from job import start
from torch import nn
from torch.nn.parallel import DistributedDataParallel

rank, _, device = start()
norm = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))).to(device)
model = DistributedDataParallel(norm, device_ids=[device.index])
for step in range(4):
    try:
        if step == 1 and rank == 1:
            torch.empty(1 << 40, dtype=torch.uint8, device=device)
        loss = model(torch.rand(4, 8, device=device)).square().sum()  # W
        loss.backward()
    except torch.OutOfMemoryError:
        print("skips a batch")
        model.zero_grad()
dist.barrier()  # G
torch.cuda.synchronize()
