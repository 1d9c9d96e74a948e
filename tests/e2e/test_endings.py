"""However a run ends, it says why, exits with the right code and leaves nothing running."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from .conftest import SCRIPTS, Run

pytestmark = pytest.mark.torch


HEAD = (
    "import atexit, ctypes, os, sys, time, torch\nfrom common import start\nrank, _, device = start()\n"
    "x = torch.ones(8, device=device)\ntorch.distributed.all_reduce(x)\ntorch.cuda.synchronize()\n"
)


def ends(tmp_path: Path, lines: str) -> Path:
    """A script whose rank 1 ends as `lines` say, while rank 0 asks for the time."""
    (tmp_path / "common.py").write_text((SCRIPTS / "common.py").read_text())
    script = tmp_path / "ends.py"
    script.write_text(f"{HEAD}if rank == 1:\n    {lines}\ntime.perf_counter()\n")
    return script


@pytest.mark.parametrize(
    ("lines", "exit_code"),
    [
        pytest.param("os.execv('/bin/true', ['true'])", 0, marks=pytest.mark.thorough),
        ("os.execvp('sh', ['sh', '-c', 'exit 5'])", 5),
        pytest.param("os._exit(256)", 0, marks=pytest.mark.thorough),
        ("os._exit(-1)", 255),  # Linux keeps the last eight bits
        ("time.sleep(1); time.perf_counter(); ctypes.CDLL(None)._exit(0)", 0),
    ],
)
def test_a_rank_that_ends_without_python_s_end(run: Run, tmp_path: Path, lines: str, exit_code: int) -> None:
    done = run(ends(tmp_path, lines), n=2, options=("--stall-timeout", "60"))
    assert done.exit_code == exit_code, done.output
    assert done.report["exit_code"] == exit_code


def test_sparse_tensors_whose_indices_are_not_computed(run: Run, tmp_path: Path) -> None:
    lines = (
        "x = torch.randn(512, 512, device=device) @ torch.randn(512, 512, device=device)\n"
        "    at = torch.randint(0, 1000, (2, 200_000), device=device)\n"
        "    torch.sparse_coo_tensor(at, torch.randn(200_000, device=device), (1000, 1000)).coalesce()\n"
        "    torch.cuda.synchronize()"
    )
    assert run(ends(tmp_path, lines), n=2, options=("--stall-timeout", "60")).exit_code == 0


def test_escapes_in_an_exception_do_not_reach_the_terminal(run: Run, tmp_path: Path) -> None:
    done = run(
        ends(tmp_path, "raise ValueError(chr(27) + '[31mred' + chr(27) + '[2J')"), n=2, options=("--show-ranks", "none")
    )
    assert done.exit_code == 1
    assert "ValueError: red\\x1b[2J (" in done.output
    assert "\x1b" not in done.output
    assert "phantora_async/" not in done.log(1), "only the script's own frames belong in its traceback"
    allocated = [rank["memory"]["allocated_peak_nbytes"] for rank in done.simulated["ranks"]]
    assert allocated == [512, 512], "32 bytes, in a block of the allocator's: rank 0, which did not fail, has it, too"


def test_an_exit_handler_that_does_not_end(run: Run, tmp_path: Path) -> None:
    lines = "def loop():\n        while True:\n            pass\n    atexit.register(loop)"
    done = run(ends(tmp_path, lines), n=2, options=("--stall-timeout", "5"))
    assert done.exit_code == 75, done.output
    assert "for rank 1, which is running at ends.py:" in done.output
    assert "in loop; rank 0 has ended" in done.output


def test_a_loop_that_no_other_rank_waits_for(run: Run, tmp_path: Path) -> None:
    """A rank that runs for ever alone, here in an exit handler, makes no progress, either."""
    script = tmp_path / "ends.py"
    script.write_text(
        "import atexit, torch\ntorch.ones(8, device='cuda').add_(1)\n"
        "def loop():\n    while True:\n        pass\natexit.register(loop)\n"
    )
    done = run(script, n=1, options=("--stall-timeout", "5"))
    assert done.exit_code == 75, done.output
    assert "rank 0 is running at ends.py:" in done.output
    assert done.report["failure"]["kind"] == "stalled"


def test_a_rank_that_ends_first_gives_what_its_collectives_have_promised(run: Run) -> None:
    """Its inputs depend on what the other rank sends later."""
    done = run("ends_first.py", n=2)
    assert done.exit_code == 0, done.output
    assert "x is [15.0, 15.0, 15.0, 15.0]" in done.output


C_EXIT = """
import ctypes, subprocess, torch
from common import start
rank, _, device = start()
ctypes.CDLL({library!r})
x = torch.arange(100, device=device)
torch.distributed.all_reduce(x)
torch.cuda.synchronize()
torch.distributed.barrier()
if rank == 1:
    subprocess.run(["sleep", "0.7"])
    torch.distributed.send(x, 0)
else:
    torch.distributed.irecv(x, 1).wait()
    late = [x + i for i in range(2000)]
    ctypes.CDLL(None).exit(3)
"""


def test_nothing_deferred_runs_while_c_s_exit_takes_libraries_down(run: Run, tmp_path: Path) -> None:
    """Rank 0's sums wait for rank 1's message, which comes after the destructors of torch's objects have run."""
    source, library = tmp_path / "slow_end.c", tmp_path / "slow_end.so"
    source.write_text("#include <unistd.h>\n__attribute__((destructor)) static void end(void) { usleep(1500000); }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    (tmp_path / "common.py").write_text((SCRIPTS / "common.py").read_text())
    script = tmp_path / "c_exit.py"
    script.write_text(C_EXIT.format(library=str(library)))
    done = run(script, n=2)
    assert done.exit_code == 3, done.output
    assert "the program has called C's exit" in done.output
    assert "Error" not in done.log(0), done.log(0)
    assert done.report["simulated"]["ranks"][0]["memory"]["allocated_peak_nbytes"] > 0


MADE_AGAIN = """
import os, subprocess, torch, torch.distributed as dist
rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
for late in (0, world_size - 1, 0):
    dist.init_process_group("nccl")
    group = dist.new_group([0, world_size - 1])
    x = torch.tensor([rank], device=device)
    dist.all_reduce(x)
    if rank in (0, world_size - 1):
        dist.all_reduce(x, group=group)
    if rank == late:
        subprocess.run(["sleep", "0.7"])
    dist.destroy_process_group()
print("made again", int(x))
"""


def test_process_groups_are_made_again_although_ranks_are_far_apart(run: Run, tmp_path: Path) -> None:
    """Ranks are far apart in real time: a rank finds the store of the former groups as long as rank 0 has not ended
    them.
    """
    script = tmp_path / "made_again.py"
    script.write_text(MADE_AGAIN)
    done = run(script, n=2)
    assert done.exit_code == 0, done.output
    assert "made again 2" in done.output
