"""Trains with checkpoints; the rank FAILS fails HOW in step STEP, unless it has been restarted TIMES times."""

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

fails, how, at_step, times, folder = (
    int(sys.argv[1]),
    sys.argv[2],
    int(sys.argv[3]),
    int(sys.argv[4]),
    Path(sys.argv[5]),
)
STEPS = 6
rank, count = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
restarts = int(os.environ["TORCHELASTIC_MAX_RESTARTS"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
model = DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(4)]).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
checkpoint = folder / "checkpoint.pt"
first = torch.load(checkpoint)["step"] + 1 if checkpoint.exists() else 0
attempts = folder / f"attempts{rank}"
attempt = len(attempts.read_text()) if attempts.exists() else 0
attempts.write_text("x" * (attempt + 1))
print(f"START rank {rank} attempt {attempt} count {count} of {restarts} from {first} at {time.time():.6f}", flush=True)
for step in range(first, STEPS):
    if rank == fails and step == at_step and attempt < times:
        print(f"FAILS at {time.time():.6f}", flush=True)
        if how == "raises":
            raise ValueError("no such luck")
        if how == "exits":
            os._exit(7)
        os.kill(os.getpid(), signal.SIGKILL)
    loss = model(torch.ones(512, 2048, device=device)).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if rank == 0:
        torch.save({"step": step, "model": model.state_dict()}, folder / "new.pt")
        (folder / "new.pt").replace(checkpoint)
    print(f"STEP {step} rank {rank} at {time.time():.6f} allocated {torch.cuda.memory_allocated()}", flush=True)
print(f"END rank {rank} peak {torch.cuda.max_memory_allocated()}", flush=True)
dist.destroy_process_group()
