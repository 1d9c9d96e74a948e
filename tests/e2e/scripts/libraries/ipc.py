"""CUDA memory and events between the ranks of a server, and managed memory."""

import ctypes
import os

import torch
import torch.distributed as dist
from torch.multiprocessing.reductions import reduce_tensor

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
world = dist.get_world_size()
mine = torch.full((1 << 20,), float(rank), device="cuda")
offered = [None] * world
dist.all_gather_object(offered, reduce_tensor(mine))
before = torch.cuda.mem_get_info()[0]
rebuild, arguments = offered[(rank + 1) % world]
theirs = rebuild(*arguments)
assert theirs.device.index == (rank + 1) % world
assert torch.cuda.mem_get_info()[0] == before  # it is the other GPU's memory
copy = torch.empty_like(mine).copy_(theirs)
event = torch.cuda.Event(interprocess=True)
event.record()
handles = [None] * world
dist.all_gather_object(handles, event.ipc_handle())
torch.cuda.Event.from_ipc_handle(torch.device("cuda", rank), handles[(rank + 1) % world]).synchronize()

runtime, managed = ctypes.CDLL(None), ctypes.c_void_p()
free = torch.cuda.mem_get_info()[0]
assert runtime.cudaMallocManaged(ctypes.byref(managed), ctypes.c_size_t(1 << 30), 1) == 0
ctypes.memset(managed, 7, 64)
assert torch.cuda.mem_get_info()[0] == free
assert runtime.cudaFree(managed) == 0
torch.cuda.synchronize()
print(f"rank {rank} PASSED")
dist.barrier()
dist.destroy_process_group()
