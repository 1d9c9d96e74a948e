"""Rank 0 asks a local socket that does not block, over and over, what rank 1 sends when virtual time has passed, as
Transformer Engine does to exchange descriptors of its user buffers.
"""

import array
import os
import socket
import time

import torch
import torch.distributed as dist
from common import start

ROUNDS = 3
rank, _, device = start()
path = "/tmp/exchange"
x = torch.ones(8, device=device)
own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
if rank == 0:
    own.bind(path)
    own.setblocking(False)
dist.all_reduce(x)
torch.cuda.synchronize()
got = []
for round_ in range(ROUNDS):
    if rank == 1:
        time.sleep(0.25)
        x.add_(1)
        torch.cuda.synchronize()
        began = time.time()
        with open(os.devnull, "rb") as file:
            files = array.array("i", [file.fileno()])
            own.sendmsg([b"%d" % round_], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)], 0, path)
        assert time.time() >= began
    while rank == 0:
        try:
            said, taken, _, _ = socket.recv_fds(own, 16, 1)
        except BlockingIOError:
            continue
        got.append(int(said))
        os.close(taken[0])
        break
    dist.all_reduce(x)
torch.cuda.synchronize()
if rank == 0:
    print("GOT", got, flush=True)
dist.destroy_process_group()
