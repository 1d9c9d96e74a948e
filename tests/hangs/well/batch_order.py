"""Messages in one batch may come in another order on each rank, between different pairs. 3 ranks."""

import torch
import torch.distributed as dist
from job import start
from torch.distributed import P2POp

rank, world, device = start()
others = [other for other in range(world) if other != rank]
x, received = torch.ones(8, device=device), {other: torch.empty(8, device=device) for other in others}
operations = [P2POp(dist.isend, x, other) for other in others]
operations += [P2POp(dist.irecv, received[other], other) for other in others]
for work in dist.batch_isend_irecv(operations if rank else operations[::-1]):
    work.wait()
torch.cuda.synchronize()
