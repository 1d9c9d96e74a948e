"""Collectives of small tensors of which one rank does not know its own. Two ranks; plain PyTorch."""

from __future__ import annotations

import ctypes
import os

import torch
import torch.distributed as dist
from torch import Tensor

HOOK = ctypes.CDLL(None)
HOOK.phantora_unmodelled_reads.restype = ctypes.c_uint64


def read(tensor: Tensor) -> tuple[list[float], bool]:
    """Its values, and whether they were computed."""
    before = HOOK.phantora_unmodelled_reads()
    return tensor.tolist(), HOOK.phantora_unmodelled_reads() == before


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()

    large = torch.randn(300, 300, device="cuda")
    unknown = large @ large

    def mine() -> Tensor:
        """Unknown on rank 0."""
        if rank:
            return torch.full((4,), 2.0, device="cuda")
        return (torch.randn(300, 300, device="cuda") @ torch.randn(300, 300, device="cuda"))[0, :4].clone()

    for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.AVG):
        tensor = mine()
        dist.all_reduce(tensor, op)
        assert read(tensor) == ([0.0] * 4, False), op
    part, whole = torch.empty(2, device="cuda"), torch.empty(8, device="cuda")
    dist.reduce_scatter_tensor(part, mine())
    assert read(part) == ([0.0] * 2, False)
    dist.all_gather_into_tensor(whole, mine())
    assert read(whole) == ([0.0] * 8, False)
    tensor = mine()
    dist.broadcast(tensor, 1)
    assert read(tensor) == ([2.0] * 4, True)
    tensor = mine()
    dist.broadcast(tensor, 0)
    assert read(tensor) == ([0.0] * 4, False)
    positive = (mine() > 1).long()
    dist.all_reduce(positive)
    assert read(positive) == ([1] * 4, False)
    mixed = torch.full((32,), 7, dtype=torch.uint8, device="cuda")  # as FSDP gathers parameters of several dtypes
    mixed.view(torch.float32)[4:6] = unknown[0, :2]
    gathered, objects = torch.empty(64, dtype=torch.uint8, device="cuda"), [None, None]
    dist.all_gather_into_tensor(gathered, mixed)
    sevens = torch.full((16,), 7, dtype=torch.uint8).view(torch.float32).tolist()
    for at in (0, 8):
        part = gathered.view(torch.float32)[at : at + 8]
        assert read(part[:4]) == (sevens, True)
        assert read(part[4:6]) == ([0.0] * 2, False)
        assert read(part[6:]) == (sevens[:2], True)
    before = HOOK.phantora_unmodelled_reads()
    dist.all_gather_object(objects, "long " * (1 + 20 * rank))
    assert objects == ["long ", "long " * 21]
    assert HOOK.phantora_unmodelled_reads() == before, "nobody has written the end of the shorter one"
    dist.destroy_process_group()
    print("PASSED")


main()
