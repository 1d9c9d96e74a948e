"""CUDA memory and events between the ranks of a server, kernels that wait for each other there, and managed memory."""

import ctypes
import os
import time

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

# Transformer Engine's user buffers: a table of addresses at the begin of the own memory, flags in the other's.
PTX = b".version 7.0\n.target sm_80\n.address_size 64\n"
driver = ctypes.CDLL("libcuda.so.1")


def pointer(address):
    return ctypes.c_void_p(address)


def parameter(one):
    if not isinstance(one, int):
        return one
    return pointer(one) if one > 1 << 31 else ctypes.c_int(one)


def took(name, *parameters):
    """Milliseconds from the launch to the end of the kernel."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuModuleLoadData(ctypes.byref(module), PTX) == 0
    assert driver.cuModuleGetFunction(ctypes.byref(function), module, name) == 0
    given = [parameter(one) for one in parameters]
    addresses = (ctypes.c_void_p * len(given))(*map(ctypes.addressof, given))
    stream = pointer(torch.cuda.current_stream().cuda_stream)
    began = time.perf_counter()
    assert driver.cuLaunchKernel(function, 16, 1, 1, 1024, 1, 1, 0, stream, addresses, None) == 0
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - began)


own, other = mine.data_ptr(), theirs.data_ptr()
table = (ctypes.c_void_p * world)(*[own if one == rank else other for one in range(world)])
assert world == 2
assert ctypes.CDLL(None).cudaMemcpy(pointer(own), table, ctypes.c_size_t(ctypes.sizeof(table)), 1) == 0
LINES = 1 << 16  # of 16 bytes
gathered = b"_Z38userbuffers_fp16_sum_inplace_gpu_rw_agILi2EEviiiiiiiPPvim"
sent, received = b"_Z21kuserbuffers_pushsendPiS_P4int4S1_i", b"_Z21kuserbuffers_pushrecviiiiPiS_imS_S_"
if rank == 1:
    time.sleep(0.2)
waited_ms = took(gathered, 0, 0, 0, rank, 1, rank * LINES, LINES, own, 0, 1 << 40)
assert 150 < waited_ms < 210 if rank == 0 else waited_ms < 1, waited_ms
if rank == 1:
    time.sleep(0.2)
    assert took(sent, own + 256, other + 512, own, other, LINES) > LINES * 16 / 450e6  # at 450 GB/s at the most
    time.sleep(0.2)
    assert took(received, 0, 0, 1, 0, own + 256, own + 512, 1, 1 << 40, own + 256, own + 256) < 0.1  # set long ago
else:
    assert 150 < took(received, 0, 1, 0, 1, own + 256, own + 512, 1, 1 << 40, own + 256, own + 256) < 210
    assert took(sent, own + 256, other + 512, own, other, 0) < 0.1  # nobody has to ask for it

# vLLM's all-reduce: the members' signals in a struct of eight, and this member's one. Its members wait for each other.
reduced = b"_ZN4vllm26cross_device_reduce_1stageI13__nv_bfloat16Li2EEEvPNS_8RankDataENS_11RankSignalsEPNS_6SignalEPT_ii"
at = [(own if one == rank else other) + (1 << 20) for one in range(world)]
for late in range(world):
    dist.barrier()
    torch.cuda.synchronize()
    if rank == late:
        time.sleep(0.2)
    waited_ms = took(reduced, own, (ctypes.c_void_p * 8)(*at), at[rank], own + (2 << 20), rank, 1 << 10)
    assert waited_ms < 1 if rank == late else 150 < waited_ms < 210, waited_ms

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
