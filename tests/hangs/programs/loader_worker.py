"""A worker of the loader is forked while a thread holds a lock, which stays locked in the worker for ever."""

import threading

import torch
from job import layers, start
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

rank, _, device = start()
lock, held, forked = threading.Lock(), threading.Event(), threading.Event()


class Texts(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        with lock:
            return torch.rand(8)


def fill_the_cache():
    with lock:
        held.set()
        forked.wait()


model = DistributedDataParallel(layers(device))
if rank == 2:
    threading.Thread(target=fill_the_cache, daemon=True).start()
    held.wait()
batches = iter(DataLoader(Texts(), batch_size=2, num_workers=1))
forked.set()
for x in batches:  # G
    model(x.to(device)).sum().backward()  # W
    torch.cuda.synchronize()
