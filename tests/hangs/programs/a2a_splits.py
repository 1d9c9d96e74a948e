"""Tokens go to experts by all-to-all, and what one rank expects is not what the other one sends."""

import torch
import torch.distributed as dist
from job import start

rank, _, device = start()
sent = [3, 1] if rank == 0 else [2, 2]
received = [3, 2]
tokens = torch.rand(sum(sent), 8, device=device)
routed = torch.empty(sum(received), 8, device=device)
dist.all_to_all_single(routed, tokens, received, sent)  # G
torch.cuda.synchronize()
