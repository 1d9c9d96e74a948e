"""torch.distributed._symmetric_memory: members wait for each other, bytes cross the network, small values are right."""

import os
import time

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
world, group = dist.get_world_size(), dist.group.WORLD
ops, name = torch.ops.symm_mem, group.group_name


def elapsed_ms(call):
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - start)


small = symmetric.empty(256, dtype=torch.float32, device="cuda")
handle = symmetric.rendezvous(small, group)
assert (handle.rank, handle.world_size) == (rank, world)
small.fill_(rank + 1)
total = sum(range(1, world + 1))
assert ops.one_shot_all_reduce(small, "sum", name).tolist() == [total] * 256
ops.two_shot_all_reduce_(small, "sum", name)
assert small.tolist() == [total] * 256

if rank == 0:
    time.sleep(0.5)
waited_ms = elapsed_ms(handle.barrier)
assert waited_ms > 400 or rank == 0, waited_ms

large = symmetric.empty(32 << 20, dtype=torch.bfloat16, device="cuda")
peers = symmetric.rendezvous(large, group)
copied_ms = elapsed_ms(
    lambda: torch.empty_like(large).copy_(peers.get_buffer((rank + 1) % world, large.shape, large.dtype))
)
assert 0.1 < copied_ms < 0.7, copied_ms  # 64 MiB at 267 or 400 GB/s, and taking the memory
if handle.multicast_ptr:
    elapsed_ms(lambda: ops.multimem_all_reduce_(large, "sum", name))

# Signals: the one that signals does not wait for the other.
peers.put_signal((rank + 1) % world)
torch.cuda.synchronize()
peers.wait_signal((rank - 1) % world)
torch.cuda.synchronize()

shard = torch.randn(1024 // world, 1024, device="cuda", dtype=torch.bfloat16)
weight = torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16)
gathered, (product,) = ops.fused_all_gather_matmul(shard, [weight], 0, name)
assert gathered.shape == product.shape == (1024, 1024)
assert ops.fused_matmul_reduce_scatter(product, weight, "sum", 0, name).shape == (1024 // world, 1024)
torch.cuda.synchronize()
print(f"rank {rank} PASSED")
dist.destroy_process_group()
