"""Trains with CUDA's allocator (rank 0; PYTORCH_CUDA_ALLOC_CONF has it) and with one of the script's own (rank 1)."""

import ctypes
import os
import subprocess
import sys

import torch

SOURCE = """
#include <sys/types.h>
extern int cudaMalloc(void **, size_t), cudaFree(void *);
size_t now, most;
void *take(ssize_t n, int device, void *stream) {
    void *p;
    if (cudaMalloc(&p, n)) return 0;
    if ((now += n) > most) most = now;
    return p;
}
void give(void *p, ssize_t n, int device, void *stream) { now -= n; cudaFree(p); }
size_t at_most(void) { return most; }
"""
own = os.environ["RANK"] == "1"
if own:
    library = sys.argv[1]
    subprocess.run(["cc", "-x", "c", "-shared", "-fPIC", "-o", library, "-"], input=SOURCE.encode(), check=True)
    torch.cuda.memory.change_current_allocator(torch.cuda.memory.CUDAPluggableAllocator(library, "take", "give"))
model = torch.nn.Linear(2048, 2048).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.ones(4096, 2048, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
most = ctypes.CDLL(library).at_most() if own else torch.cuda.max_memory_allocated()
print(torch.cuda.get_allocator_backend(), "at most", most, flush=True)
