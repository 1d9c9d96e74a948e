"""The compiler's own collectives run when a graph is compiled, and one rank compiles again for a new shape."""

import torch
import torch.distributed as dist
from job import start

rank, _, device = start()
torch._dynamo.config.enable_compiler_collectives = True
torch._dynamo.config.automatic_dynamic_shapes = False


@torch.compile(backend="eager")
def scaled(x):
    return x * 2 + 1


for step in range(3):
    rows = 5 if step == 1 and rank == 1 else 4
    total = scaled(torch.rand(rows, 8, device=device)).sum()  # G
    dist.all_reduce(total)  # W
torch.cuda.synchronize()
