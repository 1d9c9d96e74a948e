"""Forks a process that uses the GPU before this one does, and one after it has."""

import os
import time
import warnings

import torch

warnings.filterwarnings("ignore", "This process .* is multi-threaded")  # Python 3.12 says so of any fork beside threads


def child(work: str) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            if work == "train":
                train()
            else:
                torch.zeros(1).cuda()
        except RuntimeError as error:
            print(f"{work}: {error}", flush=True)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def train() -> None:
    model = torch.nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        model(torch.randn(8, 1024, device="cuda")).sum().backward()
        optimizer.step()
        began = time.monotonic()
        time.sleep(5)
        print(f"slept {time.monotonic() - began:.0f} s", flush=True)


child("train")
assert not torch.cuda.is_initialized()
print(torch.ones(3, device="cuda").sum().item(), flush=True)
child("after")
