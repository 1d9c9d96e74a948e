"""With two stages the next rank is the previous one, too: an activation pairs with a gradient of another size."""

import torch
import torch.distributed as dist
from job import start

rank, world, device = start()
ahead, behind = (rank + 1) % world, (rank - 1) % world
activation, gradient = torch.ones(96, device=device), torch.ones(64, device=device)
batch = [
    dist.P2POp(dist.isend, gradient, behind),
    dist.P2POp(dist.irecv, torch.empty_like(activation), behind),
    dist.P2POp(dist.isend, activation, ahead),
    dist.P2POp(dist.irecv, torch.empty_like(gradient), ahead),
]
for work in dist.batch_isend_irecv(batch):  # G
    work.wait()
torch.cuda.synchronize()
