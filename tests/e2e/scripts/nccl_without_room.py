"""Leaves too little memory for what NCCL connects with the first collective."""

import torch
import torch.distributed as dist
from common import start

_, _, device = start()
free, _ = torch.cuda.mem_get_info()
held = torch.empty(free - (100 << 20), dtype=torch.uint8, device=device)
dist.all_reduce(held[:1024])
