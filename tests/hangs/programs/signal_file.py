"""Rank 0 tells the others by a file that the checkpoint is there, but writes it into another folder."""

import os
import time

import torch
import torch.distributed as dist
from job import layers, start

rank, _, device = start()
model = layers(device)
os.makedirs("node", exist_ok=True)
if rank == 0:
    torch.save(model.state_dict(), "node/latest.pt")
    with open("rank0_completed", "w") as file:
        file.write("completed")
else:
    while not os.path.exists("node/rank0_completed"):  # G
        time.sleep(0.1)
dist.barrier()  # W
torch.cuda.synchronize()
