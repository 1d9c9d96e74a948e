"""The evaluation begins when a progress bar has reached a count, and only the main process has a bar that counts."""

import torch
import torch.distributed as dist
from job import layers, start
from torch.nn.parallel import DistributedDataParallel


class Bar:
    def __init__(self, disable):
        self.disable, self.n = disable, 0

    def update(self):
        self.n += not self.disable


rank, world, device = start()
model = DistributedDataParallel(layers(device), device_ids=[device.index])
bar = Bar(disable=rank != 0)
for _ in range(4):
    loss = model(torch.rand(2, 8, device=device)).mean()
    loss.backward()  # W
    bar.update()
    if bar.n == 2:
        gathered = [torch.empty_like(loss) for _ in range(world)]
        dist.all_gather(gathered, loss.detach())  # G
torch.cuda.synchronize()
