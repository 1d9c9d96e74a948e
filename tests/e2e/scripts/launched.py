"""A training script that is started in many ways: by a launcher for each rank, or once for each server.

Arguments: how it starts its own ranks (spawn, forkserver, fork), or "ranks" if a launcher does; then what goes wrong.
"""

import os
import socket
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

STEPS = 3


def train(device, rank, world, fails):
    torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(512, 512).cuda(), device_ids=[device])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    times = []
    for _ in range(STEPS):
        began = time.perf_counter()
        model(torch.randn(64, 512, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        times.append(round((time.perf_counter() - began) * 1e6, 3))
    if fails:
        if rank == world - 1:
            raise ValueError("no such luck")
        # In NCCL, which waits: gloo would end this rank, too, and launchers show the rank whose end they see first.
        dist.barrier(device_ids=[device])
    seen = [None] * world
    dist.all_gather_object(seen, (rank, device, socket.gethostname(), times))
    if rank == 0:
        print("SEEN", seen, flush=True)
    dist.destroy_process_group()


def train_on(device, devices, fails):
    nodes, node = int(os.environ.get("NNODES", 1)), int(os.environ.get("NODE_RANK", 0))
    train(device, node * devices + device, nodes * devices, fails)


def main():
    given = [word for word in sys.argv[1:] if not word.startswith("--")]  # DeepSpeed adds --local_rank
    how, fails = given[0], "fails" in given
    if how == "ranks":
        train(int(os.environ["LOCAL_RANK"]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), fails)
        return
    devices = torch.cuda.device_count()
    mp.start_processes(train_on, args=(devices, fails), nprocs=devices, start_method=how)
    print("ALL ENDED", flush=True)


if __name__ == "__main__":
    main()
