"""A loss scaler finds infinities in large gradients, known or not."""

import itertools
import math

import torch

large = torch.ones(300, 300, device="cuda")
for number, known in itertools.product((1.0, math.inf, math.nan), (True, False)):
    p, q = (torch.nn.Parameter(torch.ones(n, device="cuda")) for n in (10_000, 90_000))
    optimizer, scaler = torch.optim.SGD([p, q], lr=0.1), torch.amp.GradScaler(init_scale=4.0)
    scaler.scale(torch.zeros(1, device="cuda"))
    p.grad, q.grad = torch.ones_like(p), torch.ones_like(q) if known else (large @ large).flatten()
    p.grad[3] = number
    scaler.step(optimizer)
    scaler.update()
    print("SCALE", number, known, scaler.get_scale(), p.grad[4].item())
