"""One rank waits for a gloo message, the other one for an NCCL message that would come after it."""

import torch
import torch.distributed as dist
from job import start

rank, _, device = start()
cpu = dist.new_group(backend="gloo")
x, note = torch.ones(4, device=device), torch.ones(1)
dist.all_reduce(x)
if rank == 0:
    dist.recv(note, 1, group=cpu)  # G
    dist.send(x, 1)
else:
    dist.recv(x, 0)
    torch.cuda.synchronize()  # H
    dist.send(note, 0, group=cpu)
torch.cuda.synchronize()
