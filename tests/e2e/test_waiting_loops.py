"""Loops that wait for a value that is not computed end the run, and other loops do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .conftest import Run

pytestmark = pytest.mark.torch
UNCOMPUTED = 77
HEAD = """\
import itertools, os, sys, torch
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
layer = torch.nn.Linear(256, 256, device="cuda")
def step():
    out = layer(torch.randn(256, 256, device="cuda")).pow(2).mean()
    out.backward()
    return out.detach()
"""
WAITS = {
    "a condition": "while step().item() < 0.5:  # A B\n    pass\n",
    "a tensor as a condition": "while step() < 0.5:  # A B\n    pass\n",
    "a variable": "done = False\nwhile not done:  # A\n    done = float(step()) > 0.5  # B\n",
    "break": "while True:  # A\n    if step().item() > 0.5:  # B\n        break\n",
    "continue": "while True:  # A\n    if step().item() < 0.5:  # B\n        continue\n    break\n",
    "now and then": (
        "for i in itertools.count():  # A\n    loss = step()\n    if i % 3 == 0 and loss.item() > 0.5:  # B\n"
        "        break\n"
    ),
    "an attribute that a method sets": (
        "class Trainer:\n    done = False\n    limit = None\n    def epoch(self):\n        loss = step().item()  # B\n"
        "        if loss > 0.5:\n            self.done = True\n"
        "    def fit(self):\n        while not self.done:  # A\n            self.epoch()\n"
        "            if self.limit and self.limit < 3:\n                return\n"
        "Trainer().fit()\n"
    ),
    "rejection sampling in a function": (
        "def sample():\n    while True:  # A\n        x = step()\n        if x.cpu().numpy() > 0.5:  # B\n"
        "            return x\nsample()\n"
    ),
    "a sum over an epoch": (
        "accuracy = 0.0\nwhile accuracy < 0.9:  # A\n    correct = 0\n    for _ in range(4):\n"
        "        correct += (step() > 0.5).sum().item()  # B\n    accuracy = correct / 4\n"
    ),
}
ENDS = {
    "a loop over an iterator": "for _ in range(200):\n    if step().item() > 0.5:\n        break\n",
    "a number of steps": "i = 0\nwhile i < 200:\n    i += 1\n    if step().item() > 0.5:\n        break\n",
    "both": "i = 0\nwhile step().item() < 0.5 and i < 200:\n    i += 1\n",
    "patience": (
        "best, bad = float('inf'), 0\nwhile True:\n    loss = step().item()\n"
        "    best, bad = (loss, 0) if loss < best else (best, bad + 1)\n    if bad > 200:\n        break\n"
    ),
    "a counter behind a variable": (
        "done, i = False, 0\nwhile not done:\n    loss = step().item()\n    i += 1\n"
        "    if loss > 0.5 or i >= 200:\n        done = True\n"
    ),
    "a counter in what is assigned": (
        "done, i = False, 0\nwhile not done:\n    i += 1\n    done = step().item() > 0.5 or i >= 200\n"
    ),
    "a counter behind two variables": (
        "done, late, i = False, False, 0\nwhile not done:\n    i += 1\n    late = i >= 200\n"
        "    if late or step().item() > 0.5:\n        done = True\n"
    ),
    "an iterator's end": (
        "batches = iter(range(200))\ntry:\n    while True:\n        next(batches)\n"
        "        if step().item() > 0.5:\n            break\nexcept StopIteration:\n    pass\n"
    ),
    "a loop that is left at once": (
        "for _ in [None] * 200:\n    while True:\n        if step().item() < 0.5:\n            break\n"
    ),
    "a function that is left at once": (
        "def sample():\n    while True:\n        if step().item() < 0.5:\n            return\n"
        "for _ in itertools.repeat(None, 200):\n    sample()\n"
    ),
    "an event": (
        "import threading\nover, i = threading.Event(), 0\ndef count():\n    global i\n    i += 1\n"
        "    if i > 200:\n        over.set()\nwhile not over.is_set():\n    count()\n"
        "    if step().item() > 0.5:\n        break\n"
    ),
}


def places(text: str, file: str = "case.py") -> dict[str, str]:
    return {
        mark: f"{file}:{number}"
        for number, line in enumerate(text.splitlines(), start=1)
        for mark in line.partition("  # ")[2].split()
    }


def test_a_loop_that_waits_for_an_uncomputed_value(run: Run, tmp_path: Path) -> None:
    script, text = tmp_path / "case.py", HEAD + WAITS["a condition"]
    script.write_text(text)
    at = places(text)
    done = run(script, n=1, options=("--loop-turns", "20"))
    assert done.exit_code == UNCOMPUTED, done.output
    assert f"rank 0 has repeated the loop at {at['A']}" in done.output
    assert f"it can end only by what is read at {at['B']}" in done.output
    assert f"--value '{at['B']}=EXPRESSION'" in done.output
    assert done.report["failure"]["kind"] == "uncomputed_value"
    (loop,) = done.report["failure"]["loops"]
    assert loop["turns"] >= 20
    check_loop(loop, at)


STEPS_OF_A_READ = {"now and then": 3}
"""Steps between two reads, for loops that do not read in each step."""


def test_every_kind_of_loop_that_waits(run: Run, tmp_path: Path) -> None:
    """Each rank is in another one. They read together, so all are told of before the run ends."""
    (tmp_path / "common.py").write_text((Path(__file__).parent / "scripts" / "common.py").read_text())
    found = []
    for number, (name, lines) in enumerate(WAITS.items()):
        text = HEAD.replace(
            "def step():\n",
            "from common import start\n*_, device = start()\n"
            "x, steps = torch.ones(8, device=device), itertools.count()\n"
            f"def step():\n    if next(steps) % {STEPS_OF_A_READ.get(name, 1)} == 0:\n"
            "        torch.distributed.all_reduce(x)\n",
        )
        (tmp_path / f"case{number}.py").write_text(text + lines)
        found.append(places(text + lines, f"case{number}.py"))
    script = tmp_path / "all.py"
    script.write_text(
        f"import os, runpy\nscript = {str(tmp_path / 'case')!r} + os.environ['RANK'] + '.py'\n"
        "runpy.run_path(script, run_name='__main__')\n"
    )
    done = run(script, n=len(WAITS), options=("--loop-turns", "20", "--nproc-per-node", "3"))
    assert done.exit_code == UNCOMPUTED, done.output
    loops = done.report["failure"]["loops"]
    assert [loop["rank"] for loop in loops] == list(range(len(WAITS)))
    for loop, at, name in zip(loops, found, WAITS, strict=True):
        check_loop(loop, at, name)


def check_loop(loop: dict[str, Any], at: dict[str, str], name: str = "") -> None:
    assert f"{Path(loop['loop']['file']).name}:{loop['loop']['line']}" == at["A"], name
    assert f"{Path(loop['read']['file']).name}:{loop['read']['line']}" == at["B"], name
    assert loop["dtype"] in ("float32", "bool", "int64")
    assert loop["operation"] in ("aten::mean", "aten::sum", "aten::lt", "aten::gt")


def test_loops_that_end_otherwise(run: Run, tmp_path: Path) -> None:
    """One script, a function for each loop."""
    script = tmp_path / "case.py"
    functions = [
        f"def loop{number}():\n    global i\n" + "".join(f"    {line}\n" for line in lines.splitlines())
        for number, lines in enumerate(ENDS.values())
    ]
    calls = [f"loop{number}()\nprint('end of', {name!r})\n" for number, name in enumerate(ENDS)]
    script.write_text(HEAD + "".join(functions + calls))
    done = run(script, n=1, options=("--loop-turns", "20"))
    assert done.exit_code == 0, done.output
    ended = [line.removeprefix("end of ") for line in done.output.splitlines() if line.startswith("end of ")]
    assert ended == list(ENDS)


def test_all_ranks_of_a_job(run: Run, tmp_path: Path) -> None:
    """Each rank waits in its loop; the other ranks' collectives do not keep the run."""
    script = tmp_path / "case.py"
    script.write_text(
        HEAD.replace("import itertools", "from common import start\nrank, world, device = start()\nimport itertools")
        + "x = torch.ones(8, device=device)\nwhile step().item() < 0.5:\n    torch.distributed.all_reduce(x)\n"
    )
    (tmp_path / "common.py").write_text((Path(__file__).parent / "scripts" / "common.py").read_text())
    done = run(script, n=2, options=("--loop-turns", "20"))
    assert done.exit_code == UNCOMPUTED, done.output
    assert "ranks 0-1 have repeated the loop at case.py:" in done.output


def test_stated_values_end_a_loop(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "case.py"
    script.write_text(HEAD + "n = 0\nwhile step().item() < 0.5:\n    n += 1\nprint('turns', n)\n")
    done = run(script, n=1, options=("--loop-turns", "20", "--value", "9=0.01*n"))
    assert done.exit_code == 0, done.output
    assert "turns 50" in done.output


def test_a_loop_with_long_turns_ends_by_time(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "case.py"
    script.write_text(HEAD + "while step().item() < 0.5:\n    pass\n")
    done = run(script, n=1, options=("--loop-turns", "0", "--stall-timeout", "3"))
    assert done.exit_code == UNCOMPUTED, done.output
    assert "(--stall-timeout)" in done.output
