"""Four loaders, and torchdata's if it is installed, and steps of next to no GPU work.

Prints when each batch is there, in milliseconds since the first.
"""

import sys
import time
from importlib.util import find_spec

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

BURN_S, SLEEP_S = float(sys.argv[1]), float(sys.argv[2])


def load(number):
    end_s = time.process_time() + BURN_S
    while time.process_time() < end_s:
        pass
    if SLEEP_S:
        time.sleep(SLEEP_S)
    return torch.full((8,), float(number))


class Mapped(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, number):
        return load(number)


class Streamed(IterableDataset):
    def __iter__(self):
        return map(load, range(get_worker_info().id, 12, get_worker_info().num_workers))


weight = torch.nn.Parameter(torch.ones(8, device="cuda"))
optimizer = torch.optim.SGD([weight], lr=0.1)
LOADERS = {
    "mapped": DataLoader(Mapped(), batch_size=1, num_workers=2, pin_memory=True, persistent_workers=True),
    "streamed": DataLoader(Streamed(), batch_size=None, num_workers=2),
    "ahead": DataLoader(Mapped(), batch_size=1, num_workers=1, prefetch_factor=4),
    "alone": DataLoader(Mapped(), batch_size=1),
}
if find_spec("torchdata"):
    from torchdata.stateful_dataloader import StatefulDataLoader

    class Resumed(Mapped):
        """Reports count loaders by their data sets."""

    LOADERS["stateful"] = StatefulDataLoader(Resumed(), batch_size=1)
for name, loader in LOADERS.items():
    for _ in range(2 if name == "mapped" else 1):
        there_s, values = [], []
        for batch in loader:
            there_s.append(time.perf_counter())
            values.append(int(batch.flatten()[0]))
            (weight * batch.cuda()).sum().backward()
            optimizer.step()
            if name == "ahead" and len(there_s) == 4:
                time.sleep(1)
        print(name, *(f"{(at_s - there_s[0]) * 1e3:.1f}" for at_s in there_s))
        assert sorted(values) == list(range(12))
