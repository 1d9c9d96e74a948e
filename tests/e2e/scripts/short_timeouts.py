"""Ranks wait for one that is busy in real time, three times as long as any timeout."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.rpc as rpc
from torch.utils.data import DataLoader, IterableDataset

TIMEOUT = timedelta(milliseconds=250)


def busy() -> None:
    """For real time, which processor time is; hardly any virtual time passes."""
    until = time.process_time() + 3 * TIMEOUT.total_seconds()
    while time.process_time() < until:
        pass


def group(backend: str, rank: int) -> None:
    if rank == 1:
        busy()
    dist.init_process_group(backend, timeout=TIMEOUT)
    device = torch.device("cuda" if backend == "nccl" else "cpu", 0 if backend == "gloo" else rank)
    ones = torch.ones(4, device=device)
    if rank == 0:
        busy()
    dist.all_reduce(ones)
    assert ones.tolist() == [2.0] * 4, ones
    other = dist.new_group([0, 1], timeout=TIMEOUT)
    if rank == 1:
        busy()
    assert dist.all_reduce(ones, group=other, async_op=True).wait(TIMEOUT)
    assert ones.tolist() == [4.0] * 4, ones
    if backend == "gloo":
        if rank == 1:
            busy()
        dist.monitored_barrier(timeout=TIMEOUT)
    options = dist.distributed_c10d._get_default_group()._get_backend(device).options
    assert options._timeout == TIMEOUT, options._timeout
    dist.barrier()
    dist.destroy_process_group()
    for given in (timedelta(milliseconds=301), timedelta(seconds=1234, milliseconds=567)):
        dist.init_process_group(backend, timeout=given)
        options = dist.distributed_c10d._get_default_group()._get_backend(device).options
        assert options._timeout == given, options._timeout
        dist.destroy_process_group()


def store(rank: int) -> None:
    if rank == 1:
        busy()
    port = int(os.environ["MASTER_PORT"])
    shared = dist.TCPStore(os.environ["MASTER_ADDR"], port, 2, is_master=rank == 0, timeout=TIMEOUT)
    assert shared.timeout == TIMEOUT == dist.PrefixStore("a", shared).timeout
    if rank == 1:
        busy()
        shared.set("first", "1")
        shared.wait(["second"], TIMEOUT)
    else:
        assert shared.get("first") == b"1"
        busy()
        shared.set("second", "2")
    shared.set_timeout(timedelta(hours=1))
    assert shared.timeout == timedelta(hours=1)
    assert dist.HashStore().timeout == timedelta(minutes=5)
    if rank == 1:
        shared.set("ended", "")
    else:  # it serves the other one until then
        shared.get("ended")


class Slow(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[int]:
        for number in range(2):
            busy()
            yield number


def loader() -> None:
    assert [batch.tolist() for batch in DataLoader(Slow(), num_workers=1, timeout=TIMEOUT.total_seconds())] == [
        [0],
        [1],
    ]


def busy_and(value: int) -> int:
    busy()
    return value


def remote_calls(rank: int) -> None:
    """An agent's own timeout, those of calls, and that of a value that is fetched."""
    seconds = TIMEOUT.total_seconds()
    if rank == 1:
        busy()
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=4, rpc_timeout=seconds)
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2, rpc_backend_options=options)
    assert rpc.get_rpc_timeout() == seconds, rpc.get_rpc_timeout()
    if rank == 0:
        assert rpc.rpc_sync("worker1", busy_and, (5,)) == 5
        assert rpc.rpc_async("worker1", busy_and, (6,), timeout=seconds).wait() == 6
        assert rpc.remote("worker1", busy_and, (7,), timeout=seconds).to_here(timeout=seconds) == 7
    rpc.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="+", choices=["nccl", "gloo", "store", "loader", "rpc"])
    given = parser.parse_args().what
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    for what in given:
        if what == "store":
            store(rank)
        elif what == "loader":
            loader()
        elif what == "rpc":
            remote_calls(rank)
        else:
            group(what, rank)
    if rank == 0:
        print("PASSED", *given, flush=True)


if __name__ == "__main__":  # from Python 3.14 on, workers of a data loader import this file
    main()
