"""Two groups, another order on each rank, and the host reads a value between them."""

import torch
import torch.distributed as dist
from job import start

rank, _, device = start()
shard, replicate = dist.new_group([0, 1]), dist.new_group([0, 1])
tokens, norm = torch.ones(8, device=device), torch.ones(1, device=device)
dist.all_reduce(norm, group=shard)
dist.all_reduce(norm, group=replicate)
print("begun", norm.item())
if rank == 0:
    dist.all_to_all_single(torch.empty_like(tokens), tokens, group=shard)  # G
    torch.cuda.synchronize()
    dist.all_reduce(norm, group=replicate)
else:
    dist.all_reduce(norm, group=replicate)  # H
    print(norm.item())
    dist.all_to_all_single(torch.empty_like(tokens), tokens, group=shard)
torch.cuda.synchronize()
