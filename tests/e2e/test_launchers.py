"""Every way to start a job: launchers and scripts that start their own ranks, once on each server."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from .conftest import RANKS_PYTHON, SCRIPTS, Finished, Run, needs

pytestmark = pytest.mark.torch
SCRIPT = str(SCRIPTS / "launched.py")
SPAWNS = ("--nproc-per-node", "2", "--show-ranks", "all", "--launcher", "--")


def launch(run: Run, *command: str, servers: int = 2, gpus: int = 2) -> Finished:
    """Runs `phantora-async run --launcher -- command`, on servers of two GPUs."""
    options = ("--nproc-per-node", str(gpus), "--launcher")
    return run(Path(command[0]), *command[1:], n=servers * gpus, options=(*options, "--"))


def check(done: Finished, servers: int = 2, gpus: int = 2) -> None:
    assert done.exit_code == 0, done.output
    line = next(line for line in done.log(0).splitlines() if line.startswith("SEEN "))
    seen = ast.literal_eval(line.removeprefix("SEEN "))
    assert [(rank, device) for rank, device, _, _ in seen] == [(r, r % gpus) for r in range(servers * gpus)]
    if seen[0][2] == "node000":
        assert [host for _, _, host, _ in seen] == [f"node{rank // gpus:03}" for rank in range(servers * gpus)]
    assert len(done.simulated["ranks"]) == servers * gpus
    assert all(0 < time_us < 10_000 for _, _, _, times in seen for time_us in times), "virtual time"
    assert done.simulated["collectives"] > 0


def by_torchrun(shared_run: Run) -> Finished:
    return launch(shared_run, "torchrun", "--nproc-per-node", "2", SCRIPT, "ranks")


def by_spawn(shared_run: Run) -> Finished:
    return shared_run("sh", "-c", "echo FROM $NODE_RANK; exec python " + SCRIPT + " spawn", n=4, options=SPAWNS)


def test_torchrun(shared_run: Run) -> None:
    check(by_torchrun(shared_run))


@pytest.mark.thorough  # in one command; others here and in test_restarts.py have each of them
def test_torchrun_with_arguments_of_each_server(run: Run) -> None:
    command = ["torchrun", "--nnodes", "$NNODES", "--node-rank", "$NODE_RANK", "--nproc-per-node", "$GPUS_PER_NODE"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "$MASTER_ADDR:$MASTER_PORT"]
    done = launch(run, *command, SCRIPT, "ranks")
    assert done.exit_code == 0, done.output
    assert "SEEN [(0, 0" in done.log(0) + done.log(2)


def test_a_script_that_spawns_its_ranks_and_each_line_of_a_server_is_shown_once(shared_run: Run) -> None:
    done = by_spawn(shared_run)
    check(done)
    assert "ALL ENDED" in done.log(0)
    assert [done.output.count(f"[server {server}] FROM {server}\n") for server in (0, 1)] == [1, 1]
    assert done.output.count("FROM") == 2


def test_a_shell_script_that_starts_torchrun_as_a_module(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "launch.sh"
    script.write_text(f"#!/bin/sh\nexec python -m torch.distributed.run --nproc-per-node=2 {SCRIPT} ranks\n")
    check(launch(run, "sh", str(script)))


def test_a_shell_script_that_starts_a_python_script_by_its_path(run: Run, tmp_path: Path) -> None:
    """In a server with files of its own a copy has its place, which names the stub as its interpreter."""
    pip = Path(RANKS_PYTHON).parent / "pip"
    if not pip.exists():
        pytest.skip("pip is not installed beside the interpreter")
    before = pip.read_bytes()
    script = tmp_path / "launch.sh"
    script.write_text(f"#!/bin/sh\nhead -1 {pip}\n{pip} --version\nexec python {SCRIPT} spawn\n")
    done = run(Path("sh"), str(script), n=2, options=("--isolation", "full", *SPAWNS))
    if done.exit_code == 69 and "--isolation full: " in done.output:
        pytest.skip("user namespaces are forbidden here")
    check(done, servers=1)
    lines = done.log(0).splitlines()
    first = next(line for line in lines if line.startswith("#!"))
    assert first.endswith("/bin/python")
    assert first.encode() not in before
    assert any(line.startswith("pip ") for line in lines)
    assert pip.read_bytes() == before


def test_deepspeed(run: Run) -> None:
    needs("deepspeed")
    check(launch(run, "deepspeed", "--num_gpus", "2", SCRIPT, "ranks", servers=1), servers=1)


def test_accelerate(run: Run) -> None:
    needs("accelerate")
    command = ["accelerate", "launch", "--multi_gpu", "--num_machines", "2", "--num_processes", "4"]
    command += [
        "--machine_rank",
        "$NODE_RANK",
        "--main_process_ip",
        "$MASTER_ADDR",
        "--main_process_port",
        "$MASTER_PORT",
    ]
    check(launch(run, *command, "--mixed_precision", "no", "--dynamo_backend", "no", SCRIPT, "ranks"))


@pytest.mark.parametrize("how", [pytest.param("forkserver", marks=pytest.mark.thorough), "fork"])
def test_a_script_that_starts_its_own_ranks(run: Run, how: str) -> None:
    done = launch(run, "python", SCRIPT, how)
    check(done)
    assert "ALL ENDED" in done.log(0)


@pytest.mark.parametrize("workers", [pytest.param("0", marks=pytest.mark.thorough), "2"])
def test_one_process_that_spawns_one_for_each_gpu(run: Run, workers: str) -> None:
    """The script has the form of pytorch/examples' imagenet with --multiprocessing-distributed."""
    script = str(SCRIPTS / "spawning.py")
    url = ["--dist-url", "tcp://$MASTER_ADDR:$MASTER_PORT", "--world-size", "$NNODES", "--rank", "$NODE_RANK"]
    done = launch(run, "python", script, *url, "--workers", workers)
    assert done.exit_code == 0, done.output
    for rank in range(4):
        assert f"[2] rank {rank} of 4: 32 images" in done.log(rank)
    assert "ALL ENDED" in done.log(0)
    assert [rank["steps"] for rank in done.simulated["ranks"]] == [3] * 4


def test_the_interpreter_by_its_absolute_path(run: Run) -> None:
    script = str(SCRIPTS / "spawning.py")
    url = ["--dist-url", "tcp://127.0.0.1:$MASTER_PORT", "--world-size", "1", "--rank", "0"]
    done = launch(run, "python", script, *url, "--python", RANKS_PYTHON, servers=1)
    assert done.exit_code == 0, done.output
    assert "[2] rank 1 of 2: 16 images" in done.log(0)


VISIBLE = """
import os, subprocess, sys
import torch
import torch.distributed as dist
if len(sys.argv) == 1:  # each of two processes sees one GPU, as with Ray or Slurm
    variables = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost"}
    gpus = {"RANK": "0", "CUDA_VISIBLE_DEVICES": "1"}, {"RANK": "1", "CUDA_VISIBLE_DEVICES": "0"}
    start = [subprocess.Popen([sys.executable, __file__, "rank"], env=os.environ | variables | own) for own in gpus]
    sys.exit(max(process.wait() for process in start))
assert torch.cuda.device_count() == 1
uuid = str(torch.cuda.get_device_properties(0).uuid)
dist.init_process_group("nccl")
seen = [None] * 2
torch.cuda.set_device(0)
dist.all_gather_object(seen, (uuid, torch.cuda.get_device_properties(0).pci_bus_id))
try:
    torch.ones(1, device="cuda:1")
except Exception as error:
    line = f"{type(error).__name__} {len(set(seen))} {[bus for _, bus in seen]}\\n"
    os.write(1, line.encode())  # at once: both processes write to one log
dist.destroy_process_group()
"""


def test_processes_that_see_one_gpu_each(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "visible.py"
    script.write_text(VISIBLE)
    done = launch(run, "python", str(script), servers=1, gpus=2)
    assert done.exit_code == 0, done.output
    assert "AcceleratorError 2 [17, 16]" in done.log(0)


def test_a_script_that_chooses_its_gpu_itself(run: Run, tmp_path: Path) -> None:
    """The script sets the variable before it uses a GPU; the network sees the GPU that it has chosen."""
    script = tmp_path / "chooses.py"
    script.write_text(
        "import os, torch\nos.environ['CUDA_VISIBLE_DEVICES'] = os.environ['LOCAL_RANK']\n"
        "print('SEES', torch.cuda.device_count(), torch.cuda.get_device_properties(0).pci_bus_id)\n"
        "torch.distributed.init_process_group('nccl')\ntotal = torch.ones(1, device='cuda:0')\n"
        "torch.distributed.all_reduce(total)\nprint('SUM', total.item())\n"
        "torch.distributed.destroy_process_group()\n"
    )
    done = run(script, n=2)
    assert done.exit_code == 0, done.output
    assert [f"SEES 1 {16 + rank}\nSUM 2.0" in done.log(rank) for rank in (0, 1)] == [True, True]


def test_times_do_not_depend_on_the_launcher(run: Run, shared_run: Run) -> None:
    """The steps of ranks that a launcher starts take what those of ranks take that are started without one."""
    plain = run("launched.py", "ranks", n=4, options=("--nproc-per-node", "2"))
    times = [done.simulated["step"]["median_ns"] for done in (by_torchrun(shared_run), by_spawn(shared_run), plain)]
    assert times[0] == times[1] == times[2]


@pytest.mark.thorough  # as one GPU of two is used in test_next_processes.py
def test_fewer_ranks_than_gpus(run: Run) -> None:
    done = launch(run, "torchrun", "--nproc-per-node", "1", SCRIPT, "ranks")
    assert done.exit_code == 0, done.output
    assert "SEEN [(0, 0, " in done.log(0)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("torchrun", "--nproc-per-node", "2", SCRIPT, "ranks"), marks=pytest.mark.thorough),
        ("python", SCRIPT, "spawn"),
        pytest.param(("python", SCRIPT, "fork"), marks=pytest.mark.thorough),
    ],
)
def test_a_rank_that_fails(run: Run, command: tuple[str, ...]) -> None:
    done = launch(run, *command, "fails", servers=1)
    assert done.exit_code == 1, done.output
    assert "ValueError: no such luck" in done.output


def test_a_launcher_that_cannot_start(run: Run) -> None:
    done = launch(run, "no-such-launcher", "train.py", servers=1)
    assert done.exit_code == 127, done.output
    assert "no-such-launcher on server 0 ended with exit code 127" in done.output


def test_a_launcher_that_fails(run: Run) -> None:
    done = launch(run, "torchrun", "--no-such-option", servers=1)
    assert done.exit_code == 2, done.output
    assert "torchrun on server 0 ended with exit code 2" in done.output


@pytest.mark.parametrize("how", [pytest.param("spawn", marks=pytest.mark.thorough), "forkserver"])
def test_a_child_of_a_rank_has_its_gpus(run: Run, how: str) -> None:
    done = run("launched.py", how, n=1)
    check(done, servers=1, gpus=1)


def test_a_rank_that_executes_another_program_stays_a_rank(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "executes.py"
    script.write_text(
        "import os, sys, time, torch\n"
        "if len(sys.argv) == 1:\n"
        "    torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"
        "    torch.ones(1 << 20, device='cuda')\n"
        "    time.sleep(5)\n"
        "    os.execv(sys.executable, [sys.executable, __file__, str(time.time())])\n"
        "assert 0 <= time.time() - float(sys.argv[1]) < 1, 'virtual time goes on'\n"
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"
        "torch.distributed.init_process_group('nccl')\n"
        "total = torch.ones(4, device='cuda')\n"
        "torch.distributed.all_reduce(total)\n"
        "print('SUM', total.tolist())\n"
        "torch.distributed.destroy_process_group()\n"
    )
    done = run(script, n=2)
    assert done.exit_code == 0, done.output
    assert [f"SUM {[2.0] * 4}" in done.log(rank) for rank in (0, 1)] == [True, True]
    assert done.simulated["virtual_ns"] > 5 * 10**9


def test_a_rank_whose_child_works_is_not_asleep(run: Run, tmp_path: Path) -> None:
    """The rank waits for a Python that it has started. Taken for asleep, it would be passed over, and after 30 s the
    run would end as a deadlock.
    """
    script = tmp_path / "starts_python.py"
    script.write_text(
        "import os, subprocess, sys, time\n"
        "WORK = 'import time\\nwhile time.process_time() < 3: pass'\n"
        "if os.environ['RANK'] == '0':\n"
        "    subprocess.run([sys.executable, '-c', WORK], check=True)\n"
        "print('at', time.time())\n"
    )
    done = run(script)
    assert done.exit_code == 0, done.output
    assert done.report["simulator"]["passed_over"] == 0


def test_a_launcher_that_pipes_its_ranks_output(run: Run) -> None:
    done = launch(run, "python", str(SCRIPTS / "piped.py"), str(Path(__file__).parents[2]), servers=1, gpus=1)
    assert done.exit_code == 0, done.output
    lines = [line for line in done.log(0).splitlines() if not line.startswith("phantora-async:")]
    assert lines[0] == "0 rank 0 3.0 ? said | an error ?"
    assert lines[1].startswith("0 phantora-async ")
    assert "69  | error: a rank of a run, or its launcher, has started this command" in done.log(0)
    assert lines[-1] == "closed 120 b'BrokenPipeError: [Errno 32] Broken pipe'", "as an ordinary interpreter ends"
