"""A program that serves from its GPU, and a client of it that works for a while in real time before it asks. Argument:
which of them; the third waits for what nobody sends.
"""

import os
import socket
import sys

import torch

ADDRESS = ("127.0.0.1", 29317)
WORKS_S = 12


def works():
    """By a clock of the system, which is real."""
    until = os.times().elapsed + WORKS_S
    while os.times().elapsed < until:
        pass


if sys.argv[1] == "server":
    weights = torch.ones(64, device="cuda")
    with socket.create_server(ADDRESS) as server:
        connection, _ = server.accept()
    asked = int.from_bytes(connection.recv(1), "little")
    connection.send((weights * asked).sum().to(torch.int64).cpu().item().to_bytes(2, "little"))
else:
    works()
    client = socket.create_connection(ADDRESS)
    if sys.argv[1] == "client":
        client.send(b"\x03")
    print("ANSWER", client.recv(2).hex(), flush=True)
