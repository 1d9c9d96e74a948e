"""A server of weights refuses an update, and the trainer reads the answer and does without. 3 ranks."""

import urllib.error
import urllib.request
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
        server.handle_request()


def train():
    dist.barrier()
    for step in range(4):
        dist.all_reduce(weights, group=trainers)
        if rank == 0:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:18123/update/{step}", b"")
            except urllib.error.HTTPError as refusal:
                print(refusal, flush=True)
            else:
                dist.broadcast(weights, 0, group=transfer)
        torch.cuda.synchronize()


if rank == world - 1:
    serve()
else:
    train()
