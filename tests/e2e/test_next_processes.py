"""Several processes of one GPU under a launcher, one after the other: jobs in a row, pools, programs run again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from .conftest import DEADLOCK_SOON, SCRIPTS, Finished, Run

pytestmark = pytest.mark.torch
SCRIPT = str(SCRIPTS / "launched.py")
STEP = """
import time, torch
weight = torch.ones(64, 64, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([weight], 0.1)
for _ in range(2):
    weight.sum().backward()
    optimizer.step()
    torch.cuda.synchronize()
print("AT", time.time(), flush=True)
"""


def launch(run: Run, *command: str, gpus: int = 2, constants: dict[str, float] | None = None) -> Finished:
    options = ("--nproc-per-node", str(gpus), "--launcher", "--")
    return run(Path(command[0]), *command[1:], n=gpus, options=options, constants=constants)


def test_two_jobs_of_a_shell_script(run: Run, tmp_path: Path) -> None:
    """The second one begins, on all its ranks, when the first one has ended."""
    script = tmp_path / "jobs.sh"
    job = f"torchrun --standalone --nproc-per-node 2 {SCRIPT} ranks"
    script.write_text(f"set -e\n{job}\n{job}\necho BOTH\n")
    done, single = launch(run, "sh", str(script)), launch(run, "sh", "-c", job)
    assert done.exit_code == single.exit_code == 0, done.output
    assert done.log(0).count("SEEN [(0, 0") == 2
    assert "BOTH" in done.log(0)
    assert done.simulated["restarts"] == []
    for rank in (0, 1):
        assert done.simulated["ranks"][rank]["steps"] == 2 * single.simulated["ranks"][rank]["steps"]
    assert done.simulated["collectives"] == 2 * single.simulated["collectives"]
    assert done.simulated["virtual_ns"] == pytest.approx(2 * single.simulated["virtual_ns"], rel=0.05)


def test_a_program_that_is_run_again_goes_on_in_virtual_time(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "again.py"
    script.write_text(
        "import subprocess, sys\n"
        f"for _ in range(3):\n    subprocess.run([sys.executable, '-c', {STEP!r}], check=True)\n"
    )
    done = launch(run, "python", str(script), gpus=1)
    assert done.exit_code == 0, done.output
    times = [float(at) for at in re.findall(r"AT (\S+)", done.log(0))]
    assert times == sorted(set(times))
    assert len(times) == 3
    assert done.simulated["ranks"][0]["steps"] == 6


@pytest.mark.parametrize("parent_works", ["", "1"])
def test_a_pool_that_ends_its_workers(run: Run, tmp_path: Path, parent_works: str) -> None:
    """Leaving the block sends SIGTERM to workers that have used the GPUs. That is no failure, and the GPUs are free."""
    script = tmp_path / "pool.py"
    script.write_text(
        "import sys, multiprocessing, torch\n"
        "def device(otherwise):\n"
        "    worker = multiprocessing.current_process().name.rpartition('-')[2]\n"
        "    return f'cuda:{int(worker) % 2 if worker.isdigit() else otherwise}'\n"
        "def begin():\n"
        "    torch.zeros(1, device=device(0))\n"  # else one worker may take all tasks before the other one has begun
        "def work(number):\n"
        "    return torch.full((4,), number, device=device(number % 2)).sum().item()\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(2, initializer=begin) as pool:\n"
        "        print('SUMS', pool.map(work, range(4), chunksize=1))\n"
        "    if sys.argv[1]:\n"
        "        print('PARENT', [work(number) for number in range(2)])\n"
    )
    done = launch(run, "python", str(script), parent_works)
    assert done.exit_code == 0, done.output
    assert "SUMS [0, 4, 8, 12]" in done.log(0)
    assert ("PARENT [0, 4]" in done.log(0)) == bool(parent_works)
    assert done.simulated["warnings"] == []


def test_workers_of_one_gpu_that_end_one_after_the_other(run: Run, tmp_path: Path) -> None:
    """The first one to use the GPU ends first: the rank does not end with it."""
    script = tmp_path / "workers.py"
    script.write_text(
        "import multiprocessing, torch\n"
        "def work(number, before, ended):\n"
        "    if before is not None:\n"
        "        before[0].wait()\n"
        "    total = torch.ones(4, device='cuda').sum().item()\n"
        "    ended[0].set()\n"
        "    if before is not None:\n"
        "        before[1].wait()\n"
        "    print('SUM', number, total + torch.ones(4, device='cuda').sum().item(), flush=True)\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    first, second = [(context.Event(), context.Event()) for _ in range(2)]\n"
        "    workers = [context.Process(target=work, args=args) for args in ((0, None, first), (1, first, second))]\n"
        "    [worker.start() for worker in workers]\n"
        "    workers[0].join()\n"
        "    first[1].set()\n"
        "    workers[1].join()\n"
        "    print('CODES', [worker.exitcode for worker in workers])\n"
    )
    done = launch(run, "python", str(script), gpus=1)
    assert done.exit_code == 0, done.output
    assert "SUM 0 8.0" in done.log(0)
    assert "SUM 1 8.0" in done.log(0)
    assert "CODES [0, 0]" in done.log(0)


def test_a_launcher_that_uses_one_gpu_of_two(run: Run, tmp_path: Path) -> None:
    """Virtual time waits for the other rank, and then goes on without it."""
    script = tmp_path / "one.py"
    script.write_text(STEP)
    done = launch(run, "python", str(script), constants=DEADLOCK_SOON)
    assert done.exit_code == 0, done.output
    assert "AT " in done.log(0)
    assert done.simulated["ranks"][0]["steps"] == 2
    assert any("no process has used this GPU" in warning["text"] for warning in done.simulated["warnings"]), done.output


def test_workers_that_meet_on_the_host_after_they_have_chosen_their_gpus(run: Run, tmp_path: Path) -> None:
    """vLLM's workers do: that of GPU 0, which PyTorch does not tell CUDA of, must not become a rank after the other
    one waits for it in virtual time.
    """
    script = tmp_path / "chosen.py"
    script.write_text(
        "import multiprocessing, sys, time, torch, torch.distributed as dist\n"
        "def work(number, address):\n"
        "    torch.accelerator.set_device_index(number)\n"
        "    dist.init_process_group('gloo', init_method=address, rank=number, world_size=2)\n"
        "    if number:\n"
        "        time.time()\n"
        "    dist.barrier()\n"
        "    print('SUM', torch.ones(4, device=f'cuda:{number}').sum().item(), flush=True)\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('spawn')\n"
        f"    address = 'file://{tmp_path}/met'\n"
        "    workers = [context.Process(target=work, args=(number, address)) for number in (0, 1)]\n"
        "    [worker.start() for worker in workers]\n"
        "    [worker.join() for worker in workers]\n"
        "    sys.exit(max(worker.exitcode for worker in workers))\n"
    )
    done = launch(run, "python", str(script), gpus=2)
    assert done.exit_code == 0, done.output
    assert done.log(0).count("SUM 4.0") == 2
    assert not done.simulated["warnings"], done.output


def test_sigterm_before_the_run_has_begun_leaves_no_folder(tmp_path: Path) -> None:
    """The command's folder exists while it reads descriptions and tables."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # short, or the command would use another one
    program = (
        "import os, signal, sys\n"
        "from phantora_async import cli, session\n"
        "def begin(*_):\n"
        "    assert os.listdir(os.environ['TMPDIR'])\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "session.Coordinator = begin\n"
        "cli.main(['run', '-n', '1', '--run-dir', sys.argv[1], sys.argv[2]])\n"
    )
    script = tmp_path / "empty.py"
    script.write_text("")
    command = [sys.executable, "-c", program, str(tmp_path / "run"), str(script)]
    ended = subprocess.run(command, env=os.environ | {"TMPDIR": str(folder)}, capture_output=True, text=True)
    assert ended.returncode == 130, ended.stderr
    folder.rmdir()  # which is an error if something is left in it


def test_a_server_that_may_not_open_more_files(run: Run, tmp_path: Path) -> None:
    """A program of the script is refused, with a message, and the server goes on."""
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, resource, subprocess, sys\n"
        "server = os.getppid()\n"
        "used = {int(name) for name in os.listdir(f'/proc/{server}/fd')}\n"
        "free = next(number for number in range(4096) if number not in used)\n"
        "before = resource.prlimit(server, resource.RLIMIT_NOFILE)\n"
        "for limit in (free, free + 1, free + 4, before[0]):\n"
        "    resource.prlimit(server, resource.RLIMIT_NOFILE, (limit, before[1]))\n"
        "    print('CHILD', subprocess.run([sys.executable, '-c', 'pass']).returncode, flush=True)\n"
    )
    done = run(script, n=1)
    assert done.exit_code == 0, done.output
    assert re.findall(r"CHILD (\d+)", done.log(0)) == ["70", "70", "70", "0"]
    assert done.log(0).count("the emulated server may not open more files (ulimit -n)") == 3
