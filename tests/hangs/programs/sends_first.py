"""Both ranks send before they receive."""

import torch
import torch.distributed as dist
from job import start

rank, _, device = start()
mine, theirs = torch.full((1024,), float(rank), device=device), torch.empty(1024, device=device)
dist.send(mine, 1 - rank)  # G
dist.recv(theirs, 1 - rank)
torch.cuda.synchronize()
