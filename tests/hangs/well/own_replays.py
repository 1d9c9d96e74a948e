"""Ranks replay a CUDA graph of their own work by different times, and one with an all-reduce equally often. 4 ranks."""

import torch
import torch.distributed as dist
from job import start

rank, _, device = start()
total = torch.ones(8, device=device)
dist.all_reduce(total)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    dist.all_reduce(total)
own = torch.cuda.CUDAGraph()
with torch.cuda.graph(own):
    other = total * 2
for _ in range(rank):
    own.replay()
for _ in range(4):
    graph.replay()
dist.barrier()
torch.cuda.synchronize()
