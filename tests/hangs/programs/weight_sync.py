"""A server of weights refuses an update, but the trainer does not read the answer and broadcasts."""

import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch
import torch.distributed as dist
from job import start

rank, world, device = start()
transfer = dist.new_group([0, world - 1])
trainers = dist.new_group(list(range(world - 1)))
weights = torch.ones(8, device=device)


class Updates(BaseHTTPRequestHandler):
    def do_POST(self):
        accepted = self.path != "/update/2"
        self.send_response(200 if accepted else 500)
        self.end_headers()
        if accepted:
            dist.broadcast(weights, 0, group=transfer)
            torch.cuda.synchronize()


def serve():
    server = HTTPServer(("127.0.0.1", 18123), Updates)
    dist.barrier()
    for _ in range(4):
        server.handle_request()  # G


def train():
    dist.barrier()
    with ThreadPoolExecutor(1) as pool:
        for step in range(4):
            dist.all_reduce(weights, group=trainers)
            if rank == 0:
                pool.submit(urllib.request.urlopen, f"http://127.0.0.1:18123/update/{step}", b"")
                dist.broadcast(weights, 0, group=transfer)  # W
            torch.cuda.synchronize()


if rank == world - 1:
    serve()
else:
    train()
