"""Ranks load, convert and copy equal weights on the CPU. Prints checksums and private memory after each step."""

import copy
import hashlib
import os
import re
import sys

import torch
import torch.distributed as dist

WIDTH = 2048
LAYERS = 4


def checksum(tensors):
    digest = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        digest.update(tensor.detach().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def private_mib():
    with open("/proc/self/smaps_rollup") as file:
        return int(re.search(r"Private_Dirty:\s+(\d+) kB", file.read())[1]) / 1024


def model():
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))


def main():
    folder = sys.argv[1]
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl")
    torch.manual_seed(3)
    before = private_mib()
    seen = []

    def see(what, tensors):
        seen.append((what, f"{private_mib() - before:08.1f}", checksum(tensors)))

    built = model()
    copied = copy.deepcopy(built)
    see("deepcopy", copied.parameters())
    converted = copy.deepcopy(built).to(torch.bfloat16)
    see("bfloat16", converted.parameters())
    other = model()
    other.load_state_dict(built.state_dict())
    see("load_state_dict", other.parameters())
    constant = torch.nn.init.ones_(torch.empty(WIDTH, WIDTH)), torch.nn.init.zeros_(torch.empty(WIDTH, WIDTH))
    see("constants", constant)
    path = f"{folder}/weights.pt"
    if rank == 0:
        torch.save(built.state_dict(), path)
    dist.barrier()
    loaded = torch.load(path)
    see("load", loaded.values())
    dist.barrier()
    if rank == 0:  # the file changes, what was loaded does not
        torch.save({name: torch.zeros_like(value) for name, value in loaded.items()}, path)
    dist.barrier()
    see("the file has changed", loaded.values())
    again = torch.load(path)
    see("loaded again", again.values())
    if rank == 0:
        with torch.no_grad():
            built[0].weight.fill_(2.0)
            copied[0].weight[3] = 1.0
            loaded["0.weight"][0, 0] = 7.0
    dist.barrier()
    see("rank 0 has written", (*built.parameters(), *copied.parameters(), *loaded.values()))
    changed = built.to(torch.float16)  # a tensor that this rank has written to is converted as it is now
    see("conversion of what was written", changed.parameters())
    everything = [None] * dist.get_world_size()
    dist.all_gather_object(everything, seen)
    if rank == 0:
        print("SEEN", everything, flush=True)
    dist.destroy_process_group()


main()
