"""Every rank builds the same model on the CPU. Prints checksums and private memory; rank 0 then changes its weights."""

import hashlib
import os
import re
import sys

import torch
import torch.distributed as dist

LAYERS = 4
WIDTH = 2048


def checksum(model):
    digest = hashlib.blake2b(digest_size=8)
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()


def private_mib():
    with open("/proc/self/smaps_rollup") as file:
        return int(re.search(r"Private_Dirty:\s+(\d+) kB", file.read())[1]) / 1024


def main():
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl")
    torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
    before = private_mib()
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    for layer in model:
        torch.nn.init.trunc_normal_(layer.weight, std=0.02)
    used = f"{private_mib() - before:08.1f}"  # as long as any other: it is sent
    drawn = torch.rand(1).item()  # the generators have moved on alike
    built = checksum(model)
    dist.barrier()
    if rank == 0:
        with torch.no_grad():
            model[0].weight[5, 5] = 1e6
            model[-1].weight.add_(1.0)
    dist.barrier()
    seen = [None] * dist.get_world_size()
    dist.all_gather_object(seen, (built, checksum(model), drawn, used))
    if rank == 0:
        print("SEEN", seen, flush=True)
    dist.destroy_process_group()


main()
