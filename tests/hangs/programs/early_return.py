"""An optimizer reduces a statistic, but returns early on ranks whose shard has no trainable parameter."""

import torch
import torch.distributed as dist
from job import layers, start

rank, _, device = start()
model = layers(device)
if rank == 1:
    model.requires_grad_(False)


class Adaptive(torch.optim.SGD):
    def step(self):
        norms = [p.grad.norm() for group in self.param_groups for p in group["params"] if p.grad is not None]
        if not norms:
            return
        distance = torch.stack(norms).sum()
        dist.all_reduce(distance)  # W
        super().step()


optimizer = Adaptive(model.parameters(), lr=0.1)
for _ in range(2):
    loss = model(torch.rand(2, 8, device=device, requires_grad=True)).square()
    loss.mean().backward()
    optimizer.step()
    losses = loss.detach()
    dist.all_reduce(losses)  # G
torch.cuda.synchronize()
