"""torchrun --nproc-per-node 2 laboratory/programs/nccl_memory.py OUT: what NCCL takes of two GPUs that nobody else uses.

Each rank adds a line to OUT.RANK.jsonl: how many bytes are used after each step, beyond what PyTorch reserves. Settings
come from the environment (NCCL_MAX_NCHANNELS=4, NCCL_BUFFSIZE=8388608, NCCL_CUMEM_ENABLE=0), one process each.
"""

import json
import os
import sys

import torch
import torch.distributed as dist

used: dict[str, int] = {}


def tell(step: str) -> None:
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    used[step] = total - free - torch.cuda.memory_reserved()


def main(out: str) -> None:
    rank = int(os.environ["RANK"])
    other = 1 - rank
    torch.cuda.set_device(rank)
    some, twice = torch.ones(1 << 22, device="cuda"), torch.empty(1 << 23, device="cuda")
    some.mul_(2)
    tell("first")
    dist.init_process_group("nccl")
    tell("init")
    dist.all_reduce(some)
    tell("all_reduce")
    dist.all_reduce(some[:8])
    tell("small")
    dist.all_gather_into_tensor(twice, some)
    dist.reduce_scatter_tensor(some, twice)
    tell("gather and scatter")
    dist.broadcast(some, 0)
    tell("broadcast")
    dist.barrier()
    tell("barrier")
    half = twice[: 1 << 22]
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, some, other), dist.P2POp(dist.irecv, half, other)]):
        work.wait()
    tell("p2p batched")
    dist.recv(some, 0) if rank else dist.send(some, 1)
    tell("send")
    dist.all_to_all_single(twice, twice.clone())
    tell("all to all")
    for i in range(3):
        dist.all_reduce(some, group=dist.new_group([0, 1]))
        tell(f"group {i}")
    for i in range(2):
        dist.all_reduce(some, group=(dist.new_group([0]), dist.new_group([1]))[rank])
        tell(f"group of one {i}")
    dist.all_to_all_single(twice, twice.clone(), group=dist.new_group([0, 1]))
    tell("group all to all")
    dist.destroy_process_group()
    tell("destroyed")
    settings = {name: value for name, value in os.environ.items() if name.startswith("NCCL_")}
    with open(f"{out}.{rank}.jsonl", "a") as file:
        file.write(json.dumps({"settings": settings, "nccl": torch.cuda.nccl.version(), "rank": rank, "nbytes": used}))
        file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
