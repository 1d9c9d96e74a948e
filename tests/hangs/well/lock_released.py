"""A worker of the loader is forked when a thread has released the lock that it takes. 4 ranks."""

import threading

import torch
from job import layers, start
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

rank, _, device = start()
lock, filled = threading.Lock(), threading.Event()


class Texts(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        with lock:
            return torch.rand(8)


def fill_the_cache():
    with lock:
        filled.set()


model = DistributedDataParallel(layers(device))
if rank == 2:
    threading.Thread(target=fill_the_cache, daemon=True).start()
    filled.wait()
    with lock:
        print("the cache is full", flush=True)
batches = iter(DataLoader(Texts(), batch_size=2, num_workers=1))
for x in batches:
    model(x.to(device)).sum().backward()
    torch.cuda.synchronize()
