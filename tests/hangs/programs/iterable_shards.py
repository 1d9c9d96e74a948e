"""The last rank's shard of an IterableDataset is shorter, and DDP's backward waits for it."""

import torch
from job import layers, start
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

rank, world, device = start()


class Shard(IterableDataset):
    def __iter__(self):
        for number in range(rank, 19, world):
            yield torch.full((8,), float(number))


model = DistributedDataParallel(layers(device), device_ids=[device.index])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(Shard(), batch_size=2):
    loss = model(batch.to(device)).square().mean()
    loss.backward()  # W
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
