"""Large copies to the host: whoever reads them gets the values, and nobody else pays for them."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import tempfile
import threading
from pathlib import Path

import numpy as np
import torch

COUNT = 3_000_001
PAGE = mmap.PAGESIZE


def resident_nbytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def served() -> bool:
    """May this process be told of its faults?"""
    allowed = Path("/proc/sys/vm/unprivileged_userfaultfd")
    return os.access("/dev/userfaultfd", os.W_OK) or (allowed.exists() and allowed.read_text().strip() == "1")


def child_sees(tensor: torch.Tensor, values: torch.Tensor) -> bool:
    child = os.fork()
    if not child:
        os._exit(0 if torch.equal(tensor, values) else 1)
    return os.waitpid(child, 0)[1] == 0


torch.cuda.manual_seed(1)
drawn = torch.empty(COUNT, device="cuda").normal_()
pieces = [drawn[at : at + 1000].cpu() for at in range(0, COUNT, 1000)]  # small copies are made at once
values = torch.cat(pieces)
del pieces

before = resident_nbytes()
copies = [drawn.cpu() for _ in range(8)]
grown = resident_nbytes() - before
assert not served() or grown < 8 * COUNT, grown
assert torch.equal(copies[0], values)
assert np.array_equal(copies[1].numpy(), values.numpy())
assert ctypes.c_float.from_address(copies[2].data_ptr() + 4 * 2_000_000).value == values[2_000_000]
assert child_sees(copies[3], values)
assert torch.equal(copies[3], values)
with tempfile.TemporaryFile() as file:  # the kernel reads the pages
    assert os.write(file.fileno(), copies[4].numpy().data) == 4 * COUNT
    assert os.pread(file.fileno(), 4 * COUNT, 0) == values.numpy().tobytes()
back = torch.empty(COUNT + 5, device="cuda")
back[5:].copy_(copies[5])
assert torch.equal(back[5:].cpu(), values)
copies[6][1_000_000:1_000_010] = 7.0
changed = values.clone()
changed[1_000_000:1_000_010] = 7.0
assert torch.equal(copies[6].cuda().cpu(), changed)
assert torch.equal(copies[6], changed)
equal: list[bool] = []
threads = [threading.Thread(target=lambda: equal.append(torch.equal(copies[7], values))) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert equal == [True] * 4

# Memory that the program gives back, or gets again, is not what it was.
unread = drawn.cpu()
first = (unread.data_ptr() // PAGE + 16) * PAGE
assert ctypes.CDLL(None).madvise(ctypes.c_void_p(first), 4 * PAGE, mmap.MADV_DONTNEED) == 0
given_back = unread.cuda().cpu()
place = (first - unread.data_ptr()) // 4
gap = slice(place, place + PAGE)  # four pages of four-byte numbers
assert not given_back[gap].any()
assert torch.equal(given_back[: gap.start], values[: gap.start])
assert torch.equal(given_back[gap.stop :], values[gap.stop :])
del unread
for _ in range(4):
    unread = drawn.cpu()
    del unread
    zeros = torch.zeros(COUNT)
    assert not zeros.cuda().cpu().any()
slices = torch.empty(2 * COUNT)
slices[:COUNT].copy_(drawn)
slices[COUNT:].copy_(drawn)
assert torch.equal(slices.cuda().cpu(), values.repeat(2))
torch.save({"w": drawn.cpu()}, path := Path(tempfile.mkdtemp(), "saved.pt"))
assert torch.equal(torch.load(path)["w"], values)
print("PASSED", flush=True)
