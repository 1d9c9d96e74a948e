"""`--value`: what scripts read where nobody computed it."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import SCRIPTS, Run

pytestmark = pytest.mark.torch
SCRIPT = """\
import warnings
import torch
from common import start
rank, world, device = start()
warnings.simplefilter("ignore")
layer = torch.nn.Linear(256, 256, device=device)
optimizer = torch.optim.SGD(layer.parameters(), 0.1)
small = torch.tensor([2.0, 3.0], device=device)
def report(value): return value.item()
for i in range(3):
    loss = layer(torch.randn(256, 256, device=device)).pow(2).mean()
    loss.backward(); optimizer.step()
    got = loss.item(), float(loss), loss.cpu().tolist(), loss.detach().half().item()  # A
    flags = bool(loss > 1), (loss > 1).cpu().item(), int((loss > 1).sum())  # B
    many = layer.weight[:2, :2].tolist()  # C
    known = small.sum().item()  # D
    called = report(loss)  # E
    user = loss.item()  # F
    print("step", i, [round(x, 3) for x in got], flags, many, known, called, user, flush=True)
"""


def test_every_kind_of_read(run: Run, tmp_path: Path) -> None:
    (tmp_path / "common.py").write_text((SCRIPTS / "common.py").read_text())
    (tmp_path / "curves.py").write_text("def loss(n, step, rank):\n    return 10 * step + n + rank / 2\n")
    script = tmp_path / "case.py"
    script.write_text(SCRIPT)
    lines = {line.rpartition("# ")[2]: number for number, line in enumerate(SCRIPT.splitlines(), 1)}
    stated = {"A": "0.5**step+rank", "B": "n%2", "C": "case_n", "D": "7", "E": "3", "F": "curves:loss"}
    stated["C"] = "step/4"
    options = [part for mark, value in stated.items() for part in ("--value", f"case.py:{lines[mark]}={value}")]
    done = run(script, n=2, options=(*options, "--value", "common.py:1=1"))
    assert done.exit_code == 0, done.output
    for rank in (0, 1):
        for i in range(3):
            loss = 0.5 ** (i + 1) + rank
            odd = bool(i % 2)  # three reads in each step
            flags = (odd, not odd, int(odd))
            weights = [[(i + 1) / 4] * 2] * 2
            expected = ["step", i, [loss] * 4, flags, weights, 5.0, 3.0, 10.0 * (i + 1) + i + rank / 2]
            assert " ".join(map(str, expected)) in done.log(rank)
    reads = {one["text"].rpartition("=")[2]: one for one in done.simulated["stated_values"]}
    assert [(one["reads"], one["computed"], one["ranks"]) for one in reads.values()] == [
        (24, 0, 2),
        (18, 0, 2),
        (6, 0, 2),
        (0, 6, 0),
        (6, 0, 2),
        (6, 0, 2),
        (0, 0, 0),
    ]
    assert "values stated by the user (--value), not computed:" in done.output
    assert "common.py:1=1: nothing was read there that was not computed" in done.output


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("8=1/(2-n)", "division by zero at n=2"),
        pytest.param("8=nowhere:loss", "No module named 'nowhere'", marks=pytest.mark.thorough),
        ("9=inf*(n>1)", "is not a whole number, which int64 needs"),
    ],
)
def test_a_value_that_fails_later(run: Run, tmp_path: Path, value: str, message: str) -> None:
    script = tmp_path / "case.py"
    script.write_text(
        "import torch\nlayer = torch.nn.Linear(256, 256, device='cuda')\n"
        "def step():\n    return layer(torch.randn(256, 256, device='cuda')).pow(2).mean().detach()\n"
        "for i in range(5):\n    x = step()\n    y = (x > 3).sum()\n    a = x.item()\n    b = y.item()\n"
    )
    done = run(script, n=1, options=("--value", value))
    assert done.exit_code == 1
    assert message in done.output
