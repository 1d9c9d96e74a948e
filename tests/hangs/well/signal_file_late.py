"""Rank 0 tells the others by a file that its long download is done; they look for it. 4 ranks."""

import os
import time

import torch
import torch.distributed as dist
from job import layers, start

rank, _, device = start()
model = layers(device)
if rank == 0:
    time.sleep(120)
    torch.save(model.state_dict(), "latest.pt")
    with open("rank0_completed", "w") as file:
        file.write("completed")
else:
    while not os.path.exists("rank0_completed"):
        time.sleep(0.1)
dist.barrier()
torch.cuda.synchronize()
