"""A script like pytorch/examples' imagenet: one process of each server spawns a process for each of its GPUs.

Options: --dist-url, --world-size (servers), --rank (of this server), --workers, --python (starts itself by this path).
"""

import argparse
import os
import random
import subprocess
import sys
import time

import torch
import torch.backends.cudnn as cudnn
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

STEPS = 3


def model():
    layers = [nn.Conv2d(3, 32, 7, stride=4), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(32, 1000))


def main_worker(gpu, gpus_per_server, options):
    print(f"Use GPU: {gpu} for training", flush=True)
    rank, world = options.rank * gpus_per_server + gpu, options.world_size * gpus_per_server
    dist.init_process_group(backend="nccl", init_method=options.dist_url, world_size=world, rank=rank)
    torch.cuda.set_device(gpu)
    net = DistributedDataParallel(model().cuda(gpu), device_ids=[gpu])
    criterion = nn.CrossEntropyLoss().to(torch.device(f"cuda:{gpu}"))
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    dataset = TensorDataset(torch.zeros(8 * STEPS * world, 3, 64, 64), torch.zeros(8 * STEPS * world, dtype=torch.long))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=8, num_workers=options.workers, pin_memory=True, sampler=sampler)
    cudnn.benchmark = True
    net.train()
    began = time.time()
    for step, (images, target) in enumerate(loader):
        images, target = images.cuda(gpu, non_blocking=True), target.cuda(gpu, non_blocking=True)
        loss = criterion(net(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen = torch.tensor([loss.item(), images.size(0)], dtype=torch.float32, device=f"cuda:{gpu}")
        dist.all_reduce(seen, dist.ReduceOp.SUM)
        print(f"[{step}] rank {rank} of {world}: {seen[1].item():.0f} images, {time.time() - began:.6f} s", flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dist-url")
    parser.add_argument("--world-size", type=int)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--python")
    options = parser.parse_args()
    if options.python:
        given = [word for word in sys.argv[1:] if word not in ("--python", options.python)]
        sys.exit(subprocess.run([options.python, __file__, *given], check=False).returncode)
    random.seed(os.getpid())
    gpus = torch.cuda.device_count()
    mp.spawn(main_worker, nprocs=gpus, args=(gpus, options))
    print("ALL ENDED", flush=True)


if __name__ == "__main__":
    main()
