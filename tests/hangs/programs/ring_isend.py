"""All ranks of a ring send to the next one before they receive, each message by itself and not in a batch."""

import torch
import torch.distributed as dist
from job import start

rank, world, device = start()
sent, received = torch.ones(1 << 24, device=device), torch.empty(1 << 24, device=device)
sending = dist.isend(sent, (rank + 1) % world)  # G
receiving = dist.irecv(received, (rank - 1) % world)
sending.wait()
receiving.wait()
torch.cuda.synchronize()
