"""The end of a search with beams, as a library of language models decides it; the scores are not computed."""

from __future__ import annotations

import torch

BATCH, BEAMS, WORDS, MOST, NEVER = 8, 4, 20000, 6, -1e9

weight = torch.randn(64, WORDS, device="cuda")
hidden = torch.randn(BATCH * BEAMS, 64, device="cuda")
running = torch.zeros(BATCH, BEAMS, device="cuda")
running[:, 1:] = NEVER
best = torch.full((BATCH, BEAMS), NEVER, device="cuda")
ended = torch.zeros(BATCH, BEAMS, dtype=torch.bool, device="cuda")
steps, goes_on = 0, True
while goes_on:
    steps += 1
    scores = (hidden @ weight).log_softmax(-1).view(BATCH, BEAMS, WORDS) + running[:, :, None]
    top, places = scores.view(BATCH, -1).topk(2 * BEAMS)
    end = (places % WORDS == 2) | (steps >= MOST)
    running = torch.gather(top, 1, (top + end * NEVER).topk(BEAMS).indices)
    chosen = torch.cat((best, top / steps + ~end * NEVER), 1).topk(BEAMS).indices
    best = torch.gather(torch.cat((best, top), 1), 1, chosen)
    ended = torch.gather(torch.cat((ended, end), 1), 1, chosen)
    worst = torch.where(ended, best.min(1, keepdim=True).values, NEVER)
    goes_on = bool(((running[:, :1] / steps > worst).any() & ~end.all()).item())

assert steps == MOST, steps
print("PASSED")
