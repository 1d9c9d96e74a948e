"""Prints the answers that a rank of four gets when the other three do not exist."""

import sys

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

backend = sys.argv[1]
dist.init_process_group(backend)
rank, size = dist.get_rank(), dist.get_world_size()
assert dist.get_backend() == backend
assert dist.get_process_group_ranks(dist.group.WORLD) == list(range(size))

own = torch.arange(8.0)
everyone = torch.empty(8 * size)
dist.all_gather_into_tensor(everyone, own)
assert torch.equal(everyone, own.repeat(size))
in_place = torch.zeros(2 * size)
in_place[2 * rank : 2 * rank + 2] = 3.0
dist.all_gather_into_tensor(in_place, in_place[2 * rank : 2 * rank + 2])
assert torch.equal(in_place, torch.full((2 * size,), 3.0))
uneven = [torch.empty(3 + n) for n in range(size)]
dist.all_gather(uneven, own)
assert all(torch.equal(one, own[: 3 + n]) for n, one in enumerate(uneven))
part = torch.empty(2)
dist.reduce_scatter_tensor(part, own)
assert torch.equal(part, own[2 * rank : 2 * rank + 2])
dist.reduce_scatter(part, [torch.full((2,), float(n)) for n in range(size)])
assert torch.equal(part, torch.full((2,), float(rank)))
total, count, most = own.clone(), torch.tensor([3]), torch.tensor([3])
version = total._version
work = dist.all_reduce(total, async_op=True)
assert work.wait()
assert torch.equal(work.get_future().value()[0], own)
assert total._version == version
dist.all_reduce(count)
dist.all_reduce(most, dist.ReduceOp.MAX)
assert (count.item(), most.item()) == (3 * size, 3)
swapped = torch.empty(8)
dist.all_to_all_single(swapped, own)
assert torch.equal(swapped, own)
more = torch.empty(10)
dist.all_to_all_single(more, own, [7, 1, 1, 1], [5, 1, 1, 1])
assert torch.equal(more, torch.cat([own, own[:2]]))
heard, broadcast, ids = torch.full((64,), torch.nan), torch.full((4,), torch.nan), torch.full((4,), 1 << 40)
dist.recv(heard, (rank + 1) % size)
assert heard.isfinite().all()
assert 0 < heard.std() < 0.1
dist.broadcast(broadcast, (rank + 1) % size)
assert broadcast.isfinite().all()
dist.broadcast(own, (rank + 1) % size)
assert torch.equal(own, torch.arange(8.0))
dist.recv(ids, (rank + 1) % size)
assert not ids.any()
pair = [dist.P2POp(dist.isend, own, (rank + 1) % size), dist.P2POp(dist.irecv, heard, (rank - 1) % size)]
assert all(work.wait() for work in dist.batch_isend_irecv(pair))

said = [None] * size
dist.all_gather_object(said, {"rank": rank})
assert said == [{"rank": rank}] * size
kept = ["mine"]
dist.broadcast_object_list(kept, src=0)
assert kept == ["mine"]
scattered = [None]
dist.scatter_object_list(scattered, [f"for {n}" for n in range(size)], src=0)
assert scattered == [f"for {rank}"]
gathered = [None] * size if rank == 0 else None
dist.gather_object("here", gathered, dst=0)
assert gathered in (["here"] * size, None)
problem = ""
try:
    dist.recv_object_list([None], src=(rank + 1) % size)
except RuntimeError as error:
    problem = str(error)
assert "waits for an object of another rank" in problem
dist.barrier()

subgroup = dist.new_group([0, rank] if rank else [0, 1], backend="gloo")
assert (dist.get_backend(subgroup), dist.get_world_size(subgroup), dist.get_rank(subgroup)) == (
    "gloo",
    2,
    int(rank > 0),
)
assert dist.new_group([(rank + 1) % size]) == dist.GroupMember.NON_GROUP_MEMBER
dist.monitored_barrier(subgroup)
assert dist.split_group(split_ranks=[[0, 1], [2, 3]]).size() == 2
store = dist.TCPStore("nowhere", 1, size, False)
store.set("key", "value")
assert store.get("key") == b"value"

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
assert mesh.get_coordinate() == [rank // 2, rank % 2] or mesh.get_coordinate() == (rank // 2, rank % 2)
assert torch.equal(functional.all_reduce(own, "sum", mesh["tp"]), own)
sharded = distribute_tensor(torch.ones(8, 8), mesh, [Shard(0), Shard(1)])
assert sharded.redistribute(placements=[Replicate(), Replicate()]).to_local().shape == (8, 8)
with dist._coalescing_manager(async_ops=True) as coalesced:
    dist.all_reduce(torch.ones(3))
coalesced.wait()

torch.manual_seed(0)
parallel = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
parallelize_module(parallel, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
fully_shard(parallel, mesh=mesh["dp"])
replicated = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
optimizers = [torch.optim.AdamW(parallel.parameters(), foreach=True), torch.optim.SGD(replicated.parameters(), 0.1)]
for _ in range(int(sys.argv[2])):
    loss = parallel(replicated(torch.randn(4, 8))).square().mean()
    loss.backward()
    nn.utils.clip_grad_norm_(parallel.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
assert loss.isfinite()
dist.destroy_process_group()
print("the script has ended", flush=True)
