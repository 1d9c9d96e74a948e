"""Measures on real GPUs how long NCCL takes to make communicators: `python nccl_start.py OUT [PROCESSES ...]`.

Two parts, as lines of JSON in OUT. `bootstrap`: so many processes of one GPU find each other over loopback; NCCL then
ends the attempt, because a GPU may be in a communicator only once, but has told how long its bootstrap took. `torch`:
one process a GPU makes a first communicator, others, and parts of the first one, and does their first operations.
NCCL's own account of each (`NCCL_DEBUG_SUBSYS=PROFILE`) is kept beside the times.
"""

from __future__ import annotations

import ctypes
import glob
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

TIMINGS = re.compile(r"(Bootstrap timings|Init timings)[^\n]*")
PROFILE = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "PROFILE,INIT,BOOTSTRAP"}


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


def bootstrap_rank(rank: int, nranks: int, folder: Path) -> None:
    (path,) = glob.glob(f"{sysconfig.get_path('purelib')}/nvidia/nccl/lib/libnccl.so.2")
    nccl = ctypes.CDLL(path)
    unique, comm = UniqueId(), ctypes.c_void_p()
    (folder / f"ready{rank}").touch()
    if rank == 0:
        while len(list(folder.glob("ready*"))) < nranks:
            time.sleep(0.01)
        nccl.ncclGetUniqueId(ctypes.byref(unique))
        (folder / "id.part").write_bytes(bytes(unique))
        (folder / "id.part").rename(folder / "id")
    while not (folder / "id").exists():
        time.sleep(0.001)
    unique = UniqueId.from_buffer_copy((folder / "id").read_bytes())
    nccl.ncclCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, UniqueId, ctypes.c_int]
    began = time.perf_counter()
    status = nccl.ncclCommInitRank(ctypes.byref(comm), nranks, unique, rank)
    print(f"took {time.perf_counter() - began:.4f} status {status}", flush=True)
    os._exit(0)


def bootstrap(nranks: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | PROFILE | {"NCCL_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": "0"}
        ranks = [
            subprocess.Popen(
                [sys.executable, __file__, "rank", str(rank), str(nranks), folder],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(nranks)
        ]
        told = []
        for one in ranks:
            try:
                told.append(one.communicate(timeout=60)[0])
            except subprocess.TimeoutExpired:
                one.kill()
                told.append("timeout")
    lines = [[found.group(0) for found in TIMINGS.finditer(text)] for text in told]
    took = [re.findall(r"took (\S+) status (\d+)", text) for text in told]
    return {"part": "bootstrap", "ranks": nranks, "lines": lines[:4] + lines[-2:], "took": took[:4] + took[-2:]}


def torch_rank() -> None:
    import torch
    import torch.distributed as dist

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank)
    torch.zeros(1, device="cuda")
    times: list[tuple[str, float]] = []

    def timed(name: str, work: Any) -> Any:
        began = time.perf_counter()
        found = work()
        torch.cuda.synchronize()
        times.append((name, time.perf_counter() - began))
        return found

    timed("init_process_group", lambda: dist.init_process_group("nccl", device_id=torch.device("cuda", rank)))
    one = torch.ones(1 << 20, device="cuda")
    timed("first all_reduce", lambda: dist.all_reduce(one))
    timed("second all_reduce", lambda: dist.all_reduce(one))
    ends = [dist.P2POp(dist.isend, one, 1 - rank), dist.P2POp(dist.irecv, torch.empty_like(one), 1 - rank)]
    timed("first send", lambda: [work.wait() for work in dist.batch_isend_irecv(ends)])
    for number in range(3):
        group = timed(f"new_group {number}", lambda: dist.new_group(list(range(world))))
        timed(f"its first all_reduce {number}", lambda group=group: dist.all_reduce(one, group=group))
    own = timed("new_group of one", lambda: [dist.new_group([each]) for each in range(world)])
    timed("its first all_reduce of one", lambda: dist.all_reduce(one, group=own[rank]))
    print("times " + json.dumps(times), flush=True)
    dist.destroy_process_group()


def with_torch(number: int, gpus: int) -> list[dict[str, Any]]:
    base = os.environ | PROFILE | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29700 + number)}
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, "torch"],
            env=base | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(gpus)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(gpus)
    ]
    found = []
    for rank, one in enumerate(ranks):
        text = one.communicate(timeout=120)[0]
        times = re.search(r"times (.*)", text)
        found.append(
            {
                "part": "torch",
                "number": number,
                "rank": rank,
                "times": json.loads(times.group(1)) if times else text[-2000:],
                "lines": [line.group(0) for line in TIMINGS.finditer(text)],
            }
        )
    return found


def main() -> None:
    if sys.argv[1] == "rank":
        bootstrap_rank(int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
    elif sys.argv[1] == "torch":
        torch_rank()
    else:
        with open(sys.argv[1], "a") as out:
            for number in range(2):
                for row in with_torch(number, 2):
                    print(json.dumps(row), file=out, flush=True)
            for count in map(int, sys.argv[2:] or ["2", "8", "16", "32"]):
                print(json.dumps(bootstrap(count)), file=out, flush=True)


if __name__ == "__main__":
    main()
