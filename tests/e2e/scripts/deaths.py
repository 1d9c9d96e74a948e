"""Steps of one product and one collective; each rank says when it comes to the end of a step."""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

os.environ["TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"] = "1000"
dist.init_process_group("nccl", timeout=timedelta(seconds=60))
rank = dist.get_rank()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
summed = torch.zeros(1 << 24, device="cuda")
product = torch.zeros(8192, 8192, device="cuda")
began_s = time.time()
print(f"BEGINS at {began_s - int(began_s):.6f}", flush=True)
try:
    for step in range(8):
        product = product @ product
        dist.all_reduce(summed)
        torch.cuda.synchronize()
        print(f"STEP {step}", flush=True)
except RuntimeError as error:
    first_line = str(error).splitlines()[0]
    print(f"FAILS at {time.time() - began_s:.6f} {type(error).__name__} {first_line}", flush=True)
    raise
