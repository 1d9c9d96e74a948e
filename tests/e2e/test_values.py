"""Values that a script reads are right, or reported as not computed."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Run

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("seed", [1, 2])
def test_every_value_is_right_or_counted(run: Run, seed: int) -> None:
    done = run("values.py", str(seed), "300", n=1)
    assert done.exit_code == 0, done.output + done.log(0)
    assert "PASSED" in done.log(0)


def test_so_is_every_value_of_compiled_functions(run: Run) -> None:
    pytest.importorskip("triton")
    done = run("values.py", "3", "40", "compile", n=1)
    assert done.exit_code == 0, done.output + done.log(0)
    assert "PASSED" in done.log(0)


@pytest.mark.versions
def test_large_values_that_are_known_are_computed_when_they_are_read(run: Run) -> None:
    done = run("large_values.py", n=1)
    assert done.exit_code == 0, done.output + done.log(0)
    assert "PASSED" in done.log(0), done.log(0)


def test_a_loss_scaler_finds_infinities_in_large_gradients(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "scaler.py"
    script.write_text(
        "import itertools, math, torch\n"
        "large = torch.ones(300, 300, device='cuda')\n"
        "for number, known in itertools.product((1.0, math.inf, math.nan), (True, False)):\n"
        "    p, q = (torch.nn.Parameter(torch.ones(n, device='cuda')) for n in (10_000, 90_000))\n"
        "    optimizer, scaler = torch.optim.SGD([p, q], lr=0.1), torch.amp.GradScaler(init_scale=4.0)\n"
        "    scaler.scale(torch.zeros(1, device='cuda'))\n"
        "    p.grad, q.grad = torch.ones_like(p), torch.ones_like(q) if known else (large @ large).flatten()\n"
        "    p.grad[3] = number\n"
        "    scaler.step(optimizer)\n"
        "    scaler.update()\n"
        "    print('SCALE', number, known, scaler.get_scale(), p.grad[4].item())\n"
    )
    done = run(script, n=1)
    assert done.exit_code == 0, done.output
    scales = [line.split()[1:] for line in done.log(0).splitlines() if line.startswith("SCALE")]
    assert scales == [
        [f, k, "4.0" if f == "1.0" else "2.0", "0.25"] for f in ("1.0", "inf", "nan") for k in ("True", "False")
    ]


@pytest.mark.versions
def test_sparse_nested_and_other_tensors_have_the_cpu_s_values(run: Run) -> None:
    done = run("other_tensors.py", n=1)
    assert done.exit_code == 0, done.output + done.log(0)
    assert "PASSED" in done.log(0)
    assert "RecordFunction" not in done.log(0), "PyTorch says that nested tensors have no sizes"


def test_what_follows_from_another_rank_s_unknown_values_is_unknown(run: Run) -> None:
    done = run("partly_unknown.py", n=2)
    assert done.exit_code == 0, done.output + done.log(0)
    assert "PASSED" in done.log(0)
    assert "PASSED" in done.log(1)


def test_a_compiled_function_leaves_nothing_stale(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    script = tmp_path / "stale.py"
    script.write_text(
        "import torch\n"
        "x = torch.arange(8, device='cuda')\n"
        "@torch.compile\n"
        "def double_(x):\n    x.mul_(2)\n    return x + 1, (x.float().sin() * 10).int()\n"
        "y, z = double_(x)\n"
        "print('X', x.tolist())\nprint('Y', y.tolist())\nprint('Z', z.tolist())\n"
    )
    done = run(script, n=1)
    assert done.exit_code == 0, done.output
    assert "X [0, 2, 4, 6, 8, 10, 12, 14]" in done.log(0)
    assert "Y [1, 3, 5, 7, 9, 11, 13, 15]" in done.log(0)
    assert "Z [0, 0, 0, 0, 0, 0, 0, 0]" in done.log(0), "it follows from floating-point numbers"
    places = {warning["text"].split(" reads ")[0] for warning in done.simulated["warnings"]}
    assert places == {f"{script}:10"}


def test_a_graph_computes_and_overwrites_at_each_launch(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "graph.py"
    script.write_text(
        "import torch\n"
        "x = torch.ones(4, device='cuda')\n"
        "s = torch.cuda.Stream()\n"
        "with torch.cuda.stream(s):\n    x * 2\n"
        "g = torch.cuda.CUDAGraph()\n"
        "with torch.cuda.graph(g):\n    y = x * 2\n    x.add_(1)\n"
        "for _ in range(3):\n    g.replay()\n"
        "print('X', x.tolist(), 'Y', y.tolist())\n"
    )
    done = run(script, n=1)
    assert done.exit_code == 0, done.output
    assert "X [4.0, 4.0, 4.0, 4.0] Y [6.0, 6.0, 6.0, 6.0]" in done.log(0)


def test_a_graph_s_launch_leaves_nothing_stale_in_memory_that_is_used_twice(run: Run, tmp_path: Path) -> None:
    """Each launch computes `doubled` in the memory that `sums`, which nobody computes, has afterwards."""
    script = tmp_path / "twice.py"
    script.write_text(
        "import torch\n"
        "ids, large = torch.arange(64, device='cuda'), torch.ones(64, 4096, device='cuda')\n"
        "def step():\n"
        "    doubled = ids * 2\n"
        "    address, count = doubled.data_ptr(), doubled.sum()\n"
        "    del doubled\n"
        "    sums = (large * large).sum(1)\n"
        "    assert sums.data_ptr() == address\n"
        "    return sums, sums + 1, count\n"
        "s = torch.cuda.Stream()\n"
        "with torch.cuda.stream(s):\n    step()\n"
        "g = torch.cuda.CUDAGraph()\n"
        "with torch.cuda.graph(g):\n    sums, more, count = step()\n"
        "for _ in range(2):\n"
        "    g.replay()\n"
        "    print('sums', set(sums.tolist()), set(more.tolist()), count.item())\n"
    )
    done = run(script, n=1)
    assert done.exit_code == 0, done.output
    assert done.log(0).count("sums {0.0} {0.0} 4032") == 2, done.log(0)


def test_an_index_that_is_out_of_range_stops_the_program(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "range.py"
    script.write_text(
        "import torch\n"
        "weight = torch.empty(100, 5000, device='cuda')\n"
        "torch.nn.functional.embedding(torch.tensor([3, 100]).cuda(), weight)\n"
    )
    done = run(script, n=1)
    assert done.exit_code == 1
    assert "device-side assert" in done.output
    assert "range.py:3" in done.output


def test_indices_of_large_tensors_that_are_out_of_range_stop_the_program(run: Run) -> None:
    done = run("indices.py", n=1)
    assert done.exit_code == 0, done.output + done.log(0)
    assert "PASSED" in done.log(0)


def test_kernels_of_other_libraries_leave_nothing_stale(run: Run) -> None:
    done = run("foreign_kernels.py", n=1)
    assert done.exit_code == 0, done.output + done.log(0)
    assert "PASSED" in done.log(0)


def test_what_follows_from_unknown_values_is_unknown(run: Run) -> None:
    """Kernels of some operations first fill their result by other operations, which are computed."""
    done = run("unknown_inputs.py", n=1)
    assert done.exit_code == 0, done.output
    assert done.log(0).splitlines()[-1] == "127 operations, known: none"
