"""Rank 1 puts a tensor on the GPU of rank 0, and all ask how much memory is free there before and after. Then a worker
of its DataLoader does so, too: a new process's default GPU is the first one.
"""

import os

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

MIB = 1 << 20


class Pooled(Dataset):
    pool = None

    def __len__(self):
        return 2

    def __getitem__(self, index):
        if self.pool is None:
            self.pool = torch.empty(128 * MIB, dtype=torch.uint8, device="cuda")
        return index


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    own = torch.empty(512 * MIB, dtype=torch.uint8, device="cuda")
    weight = torch.nn.Linear(64, 64, device="cuda")
    optimizer = torch.optim.SGD(weight.parameters(), 0.1)
    dist.barrier()
    before, total = torch.cuda.mem_get_info(0)
    print(f"FREE {total - before}", flush=True)
    dist.barrier()
    guest = torch.empty(256 * MIB, dtype=torch.uint8, device="cuda:0") if local == 1 else None
    dist.barrier()
    after, _ = torch.cuda.mem_get_info(0)
    print(f"LESS {before - after}", flush=True)
    for _ in range(4):
        weight(torch.ones(8, 64, device="cuda")).sum().backward()
        optimizer.step()
    if local == 1:
        assert len(list(DataLoader(Pooled(), num_workers=1, multiprocessing_context="spawn"))) == 2
    dist.barrier()
    del own, guest
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
