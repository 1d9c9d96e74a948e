"""Looks at its server, at other servers and at this machine. Rank 0 prints what all see, as one line of JSON.

Arguments: a port on which this machine listens, and a folder that all servers share.
"""

import json
import os
import socket
import sys
from pathlib import Path

import torch
import torch.distributed as dist

PORT = 4321
"""Bound on every server."""
KINDS = ("user", "mnt", "uts", "pid", "ipc", "net")


def attempt(action):
    """Returns "" if the action succeeds, else the error's name."""
    try:
        action()
    except OSError as error:
        return type(error).__name__
    return ""


def greeting(host):
    with socket.create_connection((host, PORT), timeout=10) as connection:
        return connection.recv(64).decode()


def asks_another_server():
    """Returns what the other server answers to a program that asks it for a process."""
    own = os.environ["PHANTORA_SERVER"]
    server, name = os.path.split(own)
    other = os.path.join(server[:-1] + ("0" if server.endswith("1") else "1"), name)
    if not os.path.exists(other):
        return "there is none"
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(other)
        return "nothing" if connection.recv(1) == b"" else "something"


def processes():
    """Returns the names of the processes that this one can see."""
    found = []
    for name in os.listdir("/proc"):
        try:
            found.append(Path("/proc", name, "comm").read_text().strip())
        except OSError:
            continue
    return found


def main():
    outside, shared = int(sys.argv[1]), Path(sys.argv[2])
    rank, first = int(os.environ["RANK"]), os.environ["LOCAL_RANK"] == "0"
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl")
    host = socket.gethostname()
    found = {"host": host, "master": os.environ["MASTER_ADDR"], "user": os.getuid()}
    found["namespaces"] = {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in KINDS}
    listener = socket.socket()
    if first:
        for folder in ("/tmp", "/dev/shm"):
            Path(folder, f"trace-of-{host}").touch()
        (shared / f"shared-by-{host}").touch()
        listener.bind(("", PORT))
        listener.listen(8)
    dist.barrier()
    found["traces"] = sorted(name for folder in ("/tmp", "/dev/shm") for name in os.listdir(folder) if "trace" in name)
    found["shared"] = sorted(path.name for path in shared.glob("shared-by-*"))
    servers = int(os.environ["GROUP_WORLD_SIZE"])
    found["addresses"] = [socket.gethostbyname(f"node{other:03}") for other in range(servers)]
    found["interfaces"] = sorted(name for _, name in socket.if_nameindex())
    dist.barrier()
    found["ranks seen"] = sorted({name for name in processes() if name.startswith("rank")})
    found["pid"] = os.getpid()
    found["first process"] = Path("/proc/1/comm").read_text().strip()
    if rank == 0 and dist.get_world_size() > 1:
        connection, _ = listener.accept()
        connection.sendall(host.encode())
        connection.close()
    if rank > 0 and rank == dist.get_world_size() - 1:
        found["greeting"] = greeting("node000")
    found["outside"] = attempt(lambda: socket.create_connection(("127.0.0.1", outside), timeout=10).close())
    found["asks another server"] = asks_another_server()
    found["system"] = attempt(lambda: Path("/usr/written-by-a-rank").touch())
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, found)
    total = torch.ones(1, device="cuda")
    dist.all_reduce(total)
    if rank == 0:
        threads = sorted(path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm"))
        print(json.dumps({"ranks": gathered, "sum": total.item(), "threads": threads}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
