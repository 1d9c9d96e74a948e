"""Attends to a cache of keys and values of which each of 16 sequences uses some, and prints how long that takes."""

from __future__ import annotations

import torch

SEQUENCES, ROOM, HEADS, KEY_HEADS, DEPTH = 16, 4096, 32, 8, 128
q = torch.randn(SEQUENCES, HEADS, DEPTH, device="cuda", dtype=torch.bfloat16)
k = torch.randn(SEQUENCES * ROOM, KEY_HEADS, DEPTH, device="cuda", dtype=torch.bfloat16)
v = torch.randn_like(k)
ends_q = torch.arange(SEQUENCES + 1, device="cuda", dtype=torch.int32)
ends_k = ends_q * ROOM
used = torch.full((SEQUENCES,), 128, device="cuda", dtype=torch.int32)


def attend() -> None:
    torch.ops.aten._flash_attention_forward(
        q, k, v, ends_q, ends_k, 1, ROOM, 0.0, True, False, seqused_k=used, scale=DEPTH**-0.5
    )


graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    attend()
for what, work in (("launched", attend), ("replayed", graph.replay)):
    for keys in (128, 3500, 128):
        used.copy_(torch.full((SEQUENCES,), keys, dtype=torch.int32))
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        print(f"{what} {keys} keys {begin.elapsed_time(end) * 1e3:.3f} us")
print("PASSED")
