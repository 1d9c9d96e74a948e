"""Questions of a script about its GPU, and a collective over all ranks."""

from __future__ import annotations

import torch
import torch.distributed as dist
from common import finish, start

rank, world, device = start()
found = torch.cuda.get_device_properties(device)
scaled = torch.cuda.get_device_capability(device) >= (8, 9)
if rank == 0:
    print(f"{found.name}, {found.major}.{found.minor}, {found.multi_processor_count} SMs, {found.total_memory} bytes")
    print(f"L2 {found.L2_cache_size}, {found.shared_memory_per_block_optin} per block, fp8 {scaled}")
    print(f"{torch.cuda.device_count()} GPUs, bf16 {torch.cuda.is_bf16_supported()}", flush=True)
dist.all_reduce(torch.ones(1 << 24, device=device))
torch.cuda.synchronize()
finish()
