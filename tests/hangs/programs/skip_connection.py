"""A stage receives from the one before and over a skip connection in one batch; the sender batches both, too."""

import torch
import torch.distributed as dist
from job import start
from torch.distributed import P2POp

rank, _, device = start()
x, y = torch.ones(64, device=device), torch.ones(64, device=device)


def exchange(*operations):
    for work in dist.batch_isend_irecv(list(operations)):
        work.wait()


if rank == 0:
    exchange(P2POp(dist.isend, x, 1), P2POp(dist.isend, y, 2))  # G
elif rank == 1:
    exchange(P2POp(dist.irecv, x, 0))
    exchange(P2POp(dist.isend, x * 2, 2))  # W
else:
    exchange(P2POp(dist.irecv, x, 0), P2POp(dist.irecv, y, 1))
torch.cuda.synchronize()
