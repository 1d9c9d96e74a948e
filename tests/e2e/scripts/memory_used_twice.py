"""Each launch computes `doubled` in the memory that `sums`, which nobody computes, has afterwards."""

import torch

ids, large = torch.arange(64, device="cuda"), torch.ones(64, 4096, device="cuda")


def step():
    doubled = ids * 2
    address, count = doubled.data_ptr(), doubled.sum()
    del doubled
    sums = (large * large).sum(1)
    assert sums.data_ptr() == address
    return sums, sums + 1, count


s = torch.cuda.Stream()
with torch.cuda.stream(s):
    step()
g = torch.cuda.CUDAGraph()
with torch.cuda.graph(g):
    sums, more, count = step()
for _ in range(2):
    g.replay()
    print("sums", set(sums.tolist()), set(more.tolist()), count.item())
