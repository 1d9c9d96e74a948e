"""Programs that cannot go on: the run ends, and says who waits for whom and in which lines of the script.

A script here is `HEAD`, a case's lines, `TAIL`. Lines that a message must name end in a comment with a capital letter;
`{A}` in what is expected stands for that line's `file:line`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from .conftest import DEADLOCK_SOON, SCRIPTS, Finished, Run, descendants_of, needs_torch

pytestmark = pytest.mark.torch
STUCK = 75
HEAD = """\
import ctypes, os, pathlib, queue, signal, sys, time
import torch
import torch.distributed as dist
from common import start
rank, world, device = start()
x = torch.ones(8, device=device)
dist.all_reduce(x)
"""
TAIL = """
torch.cuda.synchronize()  # T
time.perf_counter()
"""


@dataclass(frozen=True, slots=True)
class Case:
    lines: str
    exit_code: int
    expected: tuple[str, ...]
    n: int = 2
    kind: str = ""
    """The kind of the failure, as the report has it."""
    options: tuple[str, ...] = ()


def mismatch(rank_0: str, rank_1: str, *expected: str) -> Case:
    lines = f"if rank == 0:\n    {rank_0}  # A\nelse:\n    {rank_1}  # B\n"
    return Case(lines, STUCK, ("rank 0: ", "rank 1: ", "called at {A}", "called at {B}", *expected), kind="mismatch")


CASES = {
    "raises": Case(
        "def load():\n    raise ValueError('no such luck')  # A\nif rank == 1:\n    load()\n",
        1,
        ("rank 1 (server 0) ended with exit code 1: ValueError: no such luck ({A})", "rank1.log"),
        kind="rank_died",
    ),
    "os._exit": Case(
        "if rank == 1:\n    os._exit(7)\n", 7, ("rank 1 (server 0) ended with exit code 7",), kind="rank_died"
    ),
    "sys.exit": Case(
        "if rank == 1:\n    sys.exit(3)  # A\n", 3, ("ended with exit code 3: SystemExit ({A})",), kind="rank_died"
    ),
    "segfault": Case(
        "if rank == 1:\n    ctypes.string_at(0)  # A\n",
        128 + signal.SIGSEGV,
        ("rank 1 (server 0) was ended by SIGSEGV at {A}", "Fatal Python error: Segmentation fault"),
        kind="rank_died",
    ),
    "killed from outside": Case(
        "note = pathlib.Path('pid')\n"
        "if rank == 1:\n"
        "    dist.all_reduce(x)\n"
        "    note.with_suffix('.new').write_text(str(os.getpid()))\n"
        "    note.with_suffix('.new').rename(note)\n"
        "    queue.Queue().get()\n"
        "dist.all_reduce(x)\n"
        "while not note.exists():\n    time.sleep(0.01)\n"
        "os.kill(int(note.read_text()), signal.SIGKILL)\n",
        128 + signal.SIGKILL,
        ("rank 1 (server 0) was ended by SIGKILL; its last call before was at case.py:", "; it had allocated at most "),
        kind="rank_died",
    ),
    "out of memory": Case(
        # Of each segment of 20 MiB a block of 4 MiB stays: 14 of the last 20 GiB are free, in pieces of 16 MiB.
        "if rank == 1:\n"
        "    free, _ = torch.cuda.mem_get_info()\n"
        "    kept = [torch.empty(free - (20 << 30), dtype=torch.uint8, device=device)]\n"
        "    cached = [torch.empty(4 << 20, dtype=torch.uint8, device=device) for _ in range(4500)]\n"
        "    kept += cached[::5]\n"
        "    del cached\n"
        "    y = torch.empty(10 << 30, dtype=torch.uint8, device=device)  # A\n",
        1,
        (
            "rank 1 (server 0) ended with exit code 1: torch.OutOfMemoryError: CUDA out of memory",
            "({A})",
            "rank 1 asked for 10.00 GiB at {A}",
            "14.06 GiB of the allocator's cache are in pieces that are too small (fragmentation); with "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True this request would have fitted",
        ),
        kind="rank_died",
    ),
    "other order": mismatch("dist.all_reduce(x)", "dist.broadcast(x, src=0)", "all_reduce #1", "broadcast #1"),
    "other size": mismatch("dist.all_reduce(x)", "dist.all_reduce(x[:4])", "of 8 f32", "of 4 f32"),
    "other dtype": mismatch("dist.all_reduce(x)", "dist.all_reduce(x.int())", "of 8 f32", "of 8 i32"),
    "other reduction": mismatch(
        "dist.all_reduce(x)", "dist.all_reduce(x, op=dist.ReduceOp.MAX)", "f32 (sum)", "f32 (max)"
    ),
    "other root": mismatch("dist.broadcast(x, src=0)", "dist.broadcast(x, src=1)", "root rank 0", "root rank 1"),
    "sizes of send and receive": mismatch(
        "dist.send(x, dst=1)", "dist.recv(x[:4], src=0)", "send #0 of 8 f32 to rank 1", "recv #0 of 4 f32 from rank 0"
    ),
    "ends early": Case(
        "if rank == 1:\n    sys.exit(0)  # B\ndist.all_reduce(x)  # A\n",
        STUCK,
        ("rank 1 ended without calling all_reduce #1 of 8 f32", "called at {A}", "rank 1: finished: SystemExit ({B})"),
        kind="deadlock",
    ),
    "never calls": Case(
        "if rank != 1:\n    dist.all_reduce(x)  # A\n",
        STUCK,
        ("rank 1 ended without calling all_reduce #1 of 8 f32", "called at {A}", "rank 1: finished"),
        n=3,
        kind="deadlock",
    ),
    "a barrier of some": Case(
        "if rank != 2:\n    dist.barrier()  # A\n",
        STUCK,
        ("rank 2 ended without calling all_reduce #1", "called at {A}"),
        n=3,
        kind="deadlock",
    ),
    "a barrier too many": Case(
        "def save():\n    dist.barrier()  # A\nif rank == 0:\n    save()\ndist.barrier()  # B\n",
        STUCK,
        (
            "rank 1 ended without calling all_reduce #2",
            "since all_reduce #1 of 1 f32 (sum) on communicator of ranks 0-1 these ranks have paired calls",
            "rank 0: called at {A} in save",
            "rank 1: called at {B}",
        ),
        kind="deadlock",
    ),
    "a receive nobody sends": Case(
        "if rank == 0:\n    dist.recv(x, src=1)\n    dist.recv(x, src=1)  # A\nelse:\n    dist.send(x, dst=0)\n",
        STUCK,
        ("rank 1 ended without calling send/recv #1 of 8 f32", "from rank 1 to rank 0", "called at {A}"),
        kind="deadlock",
    ),
    "a communicator of some": Case(
        "if rank == 0:\n    dist.all_reduce(x, group=dist.new_group([0, 1]))  # A\n",
        STUCK,
        ("deadlock: ", "at {A}", "rank 1: finished"),
        kind="deadlock",
    ),
    "communicators in opposite order": Case(
        "groups = [dist.new_group([0, 1]) for _ in range(2)]\n"
        "for group in groups:\n    dist.all_reduce(x, group=group)\n"
        "torch.cuda.synchronize()\n"
        "if rank == 0:\n    dist.all_reduce(x, group=groups[0])  # A\n    dist.all_reduce(x, group=groups[1])  # B\n"
        "else:\n    dist.all_reduce(x, group=groups[1])  # C\n    dist.all_reduce(x, group=groups[0])  # D\n",
        STUCK,
        (
            "deadlock: no rank can ever continue",
            "called at {A}; rank 1 has called it at {D}, but its stream has not reached it",
            "called at {C}; rank 0 has called it at {B}, but its stream has not reached it",
            "{T}",
        ),
        kind="deadlock",
    ),
    "a circle of receives": Case(
        "for sender in range(world):\n"
        "    if rank == sender:\n        dist.send(x, dst=(sender - 1) % world)\n"
        "    if rank == (sender - 1) % world:\n        dist.recv(x, src=sender)\n"
        "dist.recv(x, src=(rank + 1) % world)  # A\ndist.send(x, dst=(rank - 1) % world)  # B\n",
        STUCK,
        ("deadlock: no rank can ever continue", "called at {A}", "called it at {B}, but its stream has not reached it"),
        n=3,
        kind="deadlock",
    ),
    "a connection that comes too late": Case(
        # NCCL connects both peers of a batch before it sends: rank 0 waits for rank 2, and that for rank 1.
        "def batch(*calls):\n"
        "    for work in dist.batch_isend_irecv([dist.P2POp(*call) for call in calls]):\n        work.wait()\n"
        "if rank == 0:\n    batch((dist.isend, x, 1), (dist.isend, x, 2))  # A\n"
        "elif rank == 1:\n    batch((dist.irecv, x, 0))  # B\n    batch((dist.isend, x, 2))\n"
        "else:\n    batch((dist.irecv, x, 0), (dist.irecv, x, 1))  # C\n",
        STUCK,
        (
            "deadlock: no rank can ever continue",
            "from {A} for the connection from rank 0 to rank 2 on the communicator of ranks 0-2, "
            "which rank 0 has joined; rank 2 has not",
            "from {B} for the end of connecting from rank 0 to rank 1",
            "from {C} for the connection from rank 1 to rank 2",
        ),
        n=3,
        kind="deadlock",
    ),
    "busy for ever": Case(
        "def spin():\n    while True:\n        pass  # A\nif rank == 1:\n    spin()\ndist.all_reduce(x)  # B\n",
        STUCK,
        ("for rank 1, which is running at ", "in spin; rank 0 waits", "--stall-timeout 6", "rank1.stack"),
        kind="stalled",
        options=("--stall-timeout", "6"),
    ),
    "asleep for ever": Case(
        "def load():\n    queue.Queue().get()  # A\nif rank == 1:\n    load()\n"
        "dist.all_reduce(x)  # B\ntorch.cuda.synchronize()\n",
        STUCK,
        (
            "deadlock: no rank has made progress for ",
            "now at {A} in load",
            "{B}; rank 1 has not called it",
            "rank1.stack",
        ),
        kind="deadlock",
    ),
}


def write(folder: Path, text: str) -> tuple[Path, dict[str, str]]:
    """Writes the script; returns it, and what its marked lines are called."""
    script = folder / "case.py"
    script.write_text(text)
    (folder / "common.py").write_text((SCRIPTS / "common.py").read_text())
    lines = enumerate(text.splitlines(), start=1)
    return script, {found[1]: f"case.py:{number}" for number, line in lines if (found := re.search("# ([A-Z])$", line))}


def check(done: Finished, case: Case, places: dict[str, str]) -> None:
    assert done.exit_code == case.exit_code, done.output
    for text in case.expected:
        assert text.format(**places) in done.output, f"{text.format(**places)!r} is not in:\n{done.output}"
    failure = done.report["failure"]
    assert done.report["exit_code"] == case.exit_code
    assert failure["kind"] == case.kind
    assert len(failure["ranks"]) == case.n
    assert all(Path(rank["log"]).exists() for rank in failure["ranks"])


THOROUGH = {
    # Unit tests of how calls are matched have each difference, who ended without a call, and what these are called.
    "other size",
    "other dtype",
    "other reduction",
    "other root",
    "sizes of send and receive",
    "never calls",
    "a barrier of some",
    "a receive nobody sends",
    # Shown by "communicators in opposite order".
    "a circle of receives",
    # test_endings.py, "ends early" and test_memory_holders.py have more ends of these kinds.
    "os._exit",
    "sys.exit",
    "out of memory",
}


def case_of(name: str) -> object:
    marks = [pytest.mark.thorough] if name in THOROUGH else [pytest.mark.versions] if name == "other order" else []
    return pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", [case_of(name) for name in CASES])
def test_it_ends_and_says_where(name: str, run: Run, tmp_path: Path) -> None:
    case = CASES[name]
    script, places = write(tmp_path, HEAD + case.lines + TAIL)
    done = run(script, n=case.n, options=case.options, constants=DEADLOCK_SOON)
    check(done, case, places)
    if case.kind == "mismatch":
        calls = done.report["failure"]["calls"]
        assert [call["rank"] for call in calls] in ([0, 1], [1, 0])
        sites = {call["rank"]: f"case.py:{call['site']['line']}" for call in calls}
        assert sites == {0: places["A"], 1: places["B"]}


def test_a_rank_that_never_joins(run: Run, tmp_path: Path) -> None:
    lines = "import os\nfrom common import start\nif os.environ['RANK'] == '0':\n    start()  # A\n"
    script, places = write(tmp_path, lines)
    case = Case(lines, STUCK, ("deadlock", "rank 0: asleep", "rank 1: finished", "common.py:"), kind="deadlock")
    check(run(script, constants=DEADLOCK_SOON), case, places)


def test_lines_are_those_of_the_user_not_of_libraries(run: Run, tmp_path: Path) -> None:
    """FSDP calls of itself: the user's line is where forward or backward was asked for."""
    script, places = write(
        tmp_path,
        HEAD
        + "from torch.distributed.fsdp import fully_shard\n"
        + "model = torch.nn.Linear(64, 64, device=device)\n"
        + "fully_shard(model)\n"
        + "loss = model(torch.ones(1, 64, device=device)).sum()\n"
        + "if rank == 0:\n    loss.backward()  # A\nelse:\n    dist.broadcast(x, src=0)  # B\n"
        + TAIL,
    )
    done = run(script)
    assert done.exit_code == STUCK, done.output
    assert re.search(rf"called at {places['A']} \(via torch/distributed/fsdp/\S+:\d+ in ", done.output), done.output
    assert f"called at {places['B']};" in done.output


NOTICES_SOON = """
import sys
from phantora_async import cli
from phantora_async.liveness import stall_watch
stall_watch.FIRST_NOTICE_S = stall_watch.STALL_S
cli.main(sys.argv[1:])
"""


def test_who_is_waited_for_is_told_while_waiting_and_at_ctrl_c(tmp_path: Path) -> None:
    needs_torch()
    case = CASES["busy for ever"]
    script, _ = write(tmp_path, HEAD + case.lines + TAIL)
    command = [sys.executable, "-c", NOTICES_SOON, "run", "-n", "2", "--run-dir", str(tmp_path / "run"), script]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, cwd=tmp_path
    )
    assert process.stdout is not None
    try:
        notices = (line for line in process.stdout if line.startswith("waiting "))
        notice = next((line for line in notices if line.endswith("in spin; rank 0 waits\n")), "")
        assert "for rank 1, which is running at case.py:" in notice
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate()
        assert process.returncode == 130, output
        assert "interrupted while waiting" in output
        assert re.search(r"rank 0: waits at case\.py:\d+ ", output), output
        assert re.search(r"rank 1: running.*, now at case\.py:\d+ in spin", output), output
        assert "in spin" in (tmp_path / "run" / "rank1.stack").read_text()
        assert descendants_of(process.pid) == []
    finally:
        if process.poll() is None or descendants_of(process.pid):
            os.killpg(process.pid, signal.SIGKILL)


def test_groups_of_one_name_may_hang(run: Run, tmp_path: Path) -> None:
    """Each pair makes its own group and no other, so both exchange their ids under the same keys. PyTorch's later
    backend exchanges none: it splits the communicator of all.
    """
    head = "import os\nos.environ['TORCH_DIST_USE_NCCL2'] = '0'\n" + HEAD
    lines = "group = dist.new_group([0, 1] if rank < 2 else [2, 3])  # A\ndist.all_reduce(x, group=group)\n"
    script, places = write(tmp_path, head + lines + TAIL)
    done = run(script, n=4)
    found = re.search(r"this may hang: ranks 0,1 at (\S+) and ranks 2,3 at (\S+) make different groups", done.output)
    assert found is not None, done.output
    assert [Path(place).name for place in found.groups()] == [places["A"]] * 2


@pytest.mark.thorough
def test_threads_that_allocate_side_by_side_go_on(run: Run) -> None:
    """PyTorch's allocator asks whether work is complete with its lock held, which another thread may want."""
    done = run("two_threads_allocate.py", n=1)
    assert "PASSED" in done.output, done.output
