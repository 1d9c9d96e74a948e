"""A thread writes a log for longer than the training takes, and is told the end. 2 ranks."""

import queue
import threading
import time

import torch
import torch.distributed as dist
from job import start

rank, _, device = start()
lines = queue.Queue()


def write():
    while True:
        line = lines.get()
        if line is None:
            break
        time.sleep(30 * rank)
        print(line, flush=True)


threading.Thread(target=write).start()
for step in range(2):
    loss = torch.ones(1, device=device)
    dist.all_reduce(loss)
    lines.put(f"step {step}: {loss.item()}")
dist.barrier()
torch.cuda.synchronize()
dist.destroy_process_group()
lines.put(None)
