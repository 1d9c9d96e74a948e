"""A ring along `cp`, DDP along `dp`: `sending_ring.py CP`. Even members send first, odd ones receive first; with
`sending_ring.py CP together` each sends and receives in one call.
"""

import sys

import torch
import torch.distributed as dist
from common import finish, start
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

WIDTH, TOKENS = 256, 1024
rank, world, device = start()
cp = int(sys.argv[1])
together = sys.argv[2:] == ["together"]
mesh = init_device_mesh("cuda", (world // cp, cp), mesh_dim_names=("dp", "cp"))
group = mesh["cp"].get_group()
members, place = dist.get_process_group_ranks(group), dist.get_rank(group)
after, before = members[(place + 1) % cp], members[(place - 1) % cp]
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Linear(WIDTH, WIDTH).to(device, torch.bfloat16))
optimizer = torch.optim.AdamW(model.parameters(), foreach=True)


def passed_on(part):
    received = torch.empty_like(part)
    if together:
        operations = [dist.P2POp(dist.isend, part, after, group), dist.P2POp(dist.irecv, received, before, group)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        return received
    calls = [lambda: dist.isend(part, after, group), lambda: dist.irecv(received, before, group)]
    for work in [call() for call in (calls if place % 2 == 0 else reversed(calls))]:
        work.wait()
    return received


for _ in range(3):
    y = model(torch.randn(TOKENS, WIDTH, device=device, dtype=torch.bfloat16))
    part = y.detach()
    for _ in range(cp - 1):
        part = passed_on(part)
        y = y + y @ part.T @ part
    y.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
finish()
