"""Trains with causal attention, logs its speed, and shows progress bars that have nothing to do with it."""

import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

STEPS, BATCH, HEADS, LENGTH, DEPTH = 5, 2, 4, 256, 64


def bar(name: str, done: int, whole: int, rate: float) -> None:
    print(f"\r{name}: {done / whole:.0%}|###| {done}/{whole} [00:00<00:00, {rate}it/s]", end="")


model = torch.nn.Linear(HEADS * DEPTH, 3 * HEADS * DEPTH, dtype=torch.bfloat16, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), 0.1)
print("tokenised at 900000 tokens/s")
for step in range(STEPS):
    began = time.time()
    x = torch.randn(BATCH, LENGTH, HEADS * DEPTH, dtype=torch.bfloat16, device="cuda")
    q, k, v = model(x).view(BATCH, LENGTH, 3, HEADS, DEPTH).permute(2, 0, 3, 1, 4)
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
    rate = BATCH * LENGTH / (time.time() - began)
    print(f"step {step + 1}: {rate:.0f} tokens/s, MFU 1.5%")
    for shard in range(4):
        bar("Writing shards", shard + 1, 4, 2736)
    print()
bar("Saving", 4, 4, 5000)
