"""How long ranks take to build a model on the CPU, and what memory they and this machine have in use then.

    phantora-async run -n 64 tests/bench/cpu_weights.py --layers 32 --dtype bfloat16
    phantora-async run -n 1 --no-shared-weights tests/bench/cpu_weights.py --layers 32 --dtype bfloat16   # one rank

32 layers are a Llama 7B. The last line has what to compare: real seconds from the first rank's start to the last
rank's end, the largest private memory of a rank before and after `.cuda()`, and the least memory that was available.
Real time and memory are read from /proc: the clocks of a rank show virtual time.
"""

import argparse
import os
import re

import torch
import torch.distributed as dist
from torch import nn

WIDTH, HIDDEN, WORDS = 4096, 11008, 32000


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.up = nn.ModuleList(nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(2))


def first_number(path, name):
    with open(path) as file:
        return int(re.search(rf"{name}:\s+(\d+)", file.read())[1])


def uptime_s():
    with open("/proc/uptime") as file:
        return float(file.read().split()[0])


def private_mib():
    return sum(first_number("/proc/self/smaps_rollup", f"Private_{kind}") for kind in ("Dirty", "Clean")) / 1024


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--layers", type=int, default=2)
    options.add_argument("--dtype", default="float32")
    options.add_argument("--convert-to", help="build in --dtype, then convert with module.to()")
    given = options.parse_args()
    begin_s = uptime_s()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl")
    torch.manual_seed(1)
    torch.set_default_dtype(getattr(torch, given.dtype))
    model = nn.ModuleList([nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS, bias=False)])
    model.extend(Layer() for _ in range(given.layers))
    torch.set_default_dtype(torch.float32)
    if given.convert_to:
        model.to(getattr(torch, given.convert_to))
    nbytes = sum(parameter.nbytes for parameter in model.parameters())
    built_s, built_mib = uptime_s(), private_mib()
    available_mib = first_number("/proc/meminfo", "MemAvailable") / 1024
    model.cuda()
    seen = [None] * dist.get_world_size()
    mine = (begin_s, built_s, round(built_mib), round(private_mib()), round(available_mib), os.times().user)
    dist.all_gather_object(seen, mine)
    if dist.get_rank() == 0:
        begins, ends, built, after, available, _ = zip(*seen, strict=True)
        print(f"model of {nbytes / 2**30:.2f} GiB, {len(seen)} ranks")
        first_s = min(begins)
        print(f"real seconds until all have built: {max(ends) - first_s:.1f}; the first: {min(ends) - first_s:.1f}")
        print(f"private MiB of a rank: {max(built)} built, {max(after)} after .cuda(); available: {min(available)} MiB")
    dist.destroy_process_group()


main()
