"""Simulated results do not depend on how fast, or how busy, this machine is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .conftest import SCRIPTS, Run

pytestmark = pytest.mark.torch


@contextmanager
def load() -> Iterator[None]:
    """Lets another program use each processor, too."""
    spins = [sys.executable, "-c", "while True: pass"]
    spinning = [subprocess.Popen(spins) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def simulated(document: dict[str, object]) -> str:
    return json.dumps(document, sort_keys=True, indent=1)


@pytest.mark.parametrize(
    ("gpus", "speculation"),
    [
        (2, "eager"),
        pytest.param(4, "never", marks=pytest.mark.thorough),
        pytest.param(8, "eager", marks=pytest.mark.thorough),
    ],
)
def test_two_runs_agree_to_the_byte(run: Run, shared_run: Run, gpus: int, speculation: str) -> None:
    """The job has two servers; one run speculates on demand, as it does by default."""
    options = ("--nproc-per-node", str(gpus), "--isolation", "none")
    quiet = shared_run("determinism.py", n=2 * gpus, options=options)
    assert quiet.exit_code == 0, quiet.output
    with load():
        busy = run("determinism.py", n=2 * gpus, options=(*options, "--speculation", speculation))
    assert busy.exit_code == 0, busy.output
    assert quiet.simulated["servers"] == [gpus, gpus]
    assert simulated(busy.simulated) == simulated(quiet.simulated)
    printed = [line for line in quiet.log(0).splitlines() if line.startswith("times ")]
    assert printed
    assert printed == [line for line in busy.log(0).splitlines() if line.startswith("times ")]


@pytest.mark.thorough
def test_jobs_one_after_the_other_agree_to_the_byte(run: Run) -> None:
    """DistributedDataParallel, then FSDP2 in the same processes, which destroy their groups at the end."""
    quiet = run("jobs_in_one_process.py")
    assert quiet.exit_code == 0, quiet.output
    with load():
        busy = run("jobs_in_one_process.py")
    assert busy.exit_code == 0, busy.output
    assert simulated(busy.simulated) == simulated(quiet.simulated)


def test_a_rank_that_waits_long_in_real_time_frees_no_memory_earlier(run: Run) -> None:
    """It waits for another rank, not for its NCCL watchdog, which looks at finished collectives meanwhile. Both ranks
    do the same in the same virtual time, so they hold the same.
    """
    done = run("waits_elsewhere.py", n=2, options=("--isolation", "none"))
    assert done.exit_code == 0, done.output
    waiting, working = ([line for line in done.log(rank).splitlines() if line.startswith("held ")] for rank in (0, 1))
    assert waiting
    assert waiting == working


def test_workers_of_a_data_loader_make_no_difference(run: Run, tmp_path: Path) -> None:
    """Their batches arrive in another order, and their ends are waited for in another way, in every run. Nor does it
    make a difference that only the first run imports the compiler, which the script mentions and does not use.
    """
    (tmp_path / "common.py").write_text((SCRIPTS / "common.py").read_text())
    script = tmp_path / "workers.py"
    script.write_text(
        "import random, time, torch\nfrom torch.utils.data import DataLoader\nfrom common import start\n"
        "# No torch.compile here.\n"
        "rank, _, device = start()\nrandom.seed()\n"
        "class Data(torch.utils.data.Dataset):\n"
        "    def __len__(self):\n        return 24\n"
        "    def __getitem__(self, number):\n"
        "        for _ in range(random.randrange(20_000)):\n            pass\n"
        "        return torch.full((64,), float(number))\n"
        "for in_order in (True, True, False, False):\n"
        "    for batch in DataLoader(Data(), batch_size=4, num_workers=3, in_order=in_order):\n"
        "        batch.to(device).add_(1)\n        print('batch', batch[0, 0].item())\n"
        "torch.cuda.synchronize()\nprint(time.perf_counter())\n"
    )
    first, second = (run(script, n=1) for _ in range(2))
    assert first.exit_code == 0, first.output
    assert first.simulated == second.simulated
    batches = [line for line in first.log(0).splitlines() if line.startswith("batch")]
    assert batches == [f"batch {number}.0" for number in range(0, 24, 4)] * 4


ANYWHERE = """
import argparse, multiprocessing, os, sys, threading, time, torch
import torch.distributed as dist
from torch.utils.data import DataLoader
argparse.ArgumentParser().parse_args()
print('here', os.path.dirname(os.path.realpath(__file__)) == os.path.abspath(sys.path[0]))
dict(os.environ)
print('cpus', os.cpu_count(), len(os.sched_getaffinity(0)), multiprocessing.cpu_count(), torch.get_num_threads())
print('cpus', os.sysconf('SC_NPROCESSORS_ONLN'), torch.get_num_interop_threads())
dist.init_process_group('nccl')
torch._logging._internal.make_module_path_relative(dist.__file__)  # as for each file that logs something
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 24
    def __getitem__(self, number):
        return torch.full((64,), float(number))
stream, event, stop = torch.cuda.Stream(), torch.cuda.Event(), threading.Event()
def poll():
    while not stop.is_set():
        time.perf_counter(), stream.query(), event.query()
threads = [threading.Thread(target=poll, daemon=daemon) for daemon in (False, True)]
for thread in threads:
    thread.start()
layer = torch.nn.Linear(64, 64, device='cuda')
for batch in DataLoader(Data(), batch_size=4, num_workers=3, pin_memory=True):
    layer(batch.cuda()).sum().backward()
    event.record()
stop.set()
for thread in threads:
    thread.join()
torch.cuda.synchronize()
before = time.perf_counter()
def wait():
    while time.perf_counter() < before + 2:
        pass
    torch.ones(8, device='cuda')
waiting = threading.Thread(target=wait)
waiting.start()
waiting.join()
print('waited', time.perf_counter() - before)
"""
"""Threads that only ask move no clock, unless the program waits for one of them."""


def test_neither_load_nor_place_nor_surroundings_make_a_difference(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "script.py"
    script.write_text(ANYWHERE)
    quiet = run(script, n=1)
    assert quiet.exit_code == 0, quiet.output
    deep = tmp_path / "folder" / "within" / "a" / "folder" / "script.py"
    packages = tmp_path / "packages"
    for folder in (deep.parent, packages / "some-1.0.dist-info"):
        folder.mkdir(parents=True)
    deep.write_text(ANYWHERE)
    (packages / "some-1.0.dist-info" / "METADATA").write_text("Name: some\nVersion: 1.0\n")
    changed = {
        "PYTHONPATH": os.pathsep.join(str(folder) for folder in (packages, tmp_path / "none", tmp_path / "neither")),
        "LANGUAGE": "de_DE:fr:it",
        "TERM": "dumb",
        "TZ": "Asia/Tokyo",
        "HOME": deep.parent,
    }
    for name, value in {**changed, **{f"VARIABLE{number}": "x" * 1000 for number in range(20)}}.items():
        monkeypatch.setenv(name, str(value))
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        with load():
            busy = run(deep, n=1)
    finally:
        os.sched_setaffinity(0, allowed)
    assert busy.exit_code == 0, busy.output
    assert simulated(quiet.simulated) == simulated(busy.simulated).replace("folder/within/a/folder/script", "script")
    assert quiet.log(0) == busy.log(0)
    assert "cpus 224 224 224 112\ncpus 224 112\n" in quiet.log(0)
    assert 2 < float(quiet.log(0).rpartition("waited ")[2]) < 2.01


def test_threads_that_launch_side_by_side_are_named(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "threads.py"
    script.write_text(
        "import threading, torch\nbarrier = threading.Barrier(2)\n"
        "def work():\n    for _ in range(4):\n        torch.ones(8, device='cuda')\n        barrier.wait()\n"
        "threads = [threading.Thread(target=work) for _ in range(2)]\n"
        "for thread in threads:\n    thread.start()\n"
        "for thread in threads:\n    thread.join()\n"
    )
    done = run(script, n=1)
    assert done.exit_code == 0, done.output
    assert "threads of the program give the GPU work side by side" in done.output


def test_slow_workers_of_a_data_loader_make_no_difference(run: Run, tmp_path: Path) -> None:
    """A rank that waits long enough is asleep, and ends the segments of its kernels. One that waits less does not."""
    (tmp_path / "common.py").write_text((SCRIPTS / "common.py").read_text())
    script = tmp_path / "workers.py"
    script.write_text(
        "import sys, torch\nfrom torch.utils.data import DataLoader\nfrom common import start\n"
        "rank, _, device = start()\n"
        "class Data(torch.utils.data.Dataset):\n"
        "    def __len__(self):\n        return 6\n"
        "    def __getitem__(self, number):\n"
        "        for _ in range(TURNS):\n            pass\n"
        "        return torch.full((64,), float(number))\n"
        "for batch in DataLoader(Data(), batch_size=1, num_workers=1):\n"
        "    batch.to(device).add_(1)\n"
        "torch.cuda.synchronize()\n"
    )
    text, found = script.read_text(), []
    for turns in (0, 5_000_000):
        script.write_text(text.replace("TURNS", f"{turns:9d}"))
        found.append(run(script, n=1))
        assert found[-1].exit_code == 0, found[-1].output
    assert found[0].simulated == found[1].simulated


@pytest.mark.thorough
def test_virtual_time_waits_for_ranks_whose_store_is_served_late(run: Run) -> None:
    done = run("late_store.py", n=4, options=("--nproc-per-node", "2"))
    assert done.exit_code == 0, done.output
    assert done.report["simulator"]["passed_over"] == 0
