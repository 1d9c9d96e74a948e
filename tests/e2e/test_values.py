"""Values that a script reads are right, or reported as not computed."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Run

pytestmark = pytest.mark.torch


SEVERAL = ("--nproc-per-node", "1", "--isolation", "none")
SCALES = [(f, k, 4.0 if f == "1.0" else 2.0) for f in ("1.0", "inf", "nan") for k in (True, False)]
SIDE_BY_SIDE = {
    "values.py 1 300": "PASSED",
    "values.py 2 300": "PASSED",
    "kept_eager.py 1 60": "PASSED 120",
    "kept_eager.py 2 60": "PASSED 120",
    "indices.py": "PASSED",
    "foreign_kernels.py": "PASSED",
    "unknown_inputs.py": "132 operations, known: none",
    "loss_scaler.py": "\n".join(f"SCALE {number} {known} {scale} 0.25" for number, known, scale in SCALES),
    "graph_overwrites.py": "X [4.0, 4.0, 4.0, 4.0] Y [6.0, 6.0, 6.0, 6.0]",
    "unread.py": "PASSED",
    "argument_checks.py": "PASSED",
    "extension_ops.py": "PASSED",
    "memory_used_twice.py": "sums {0.0} {0.0} 4032\n" * 2,
}
"""Scripts that need one rank, and what they print. They share a run."""
WITH_EACH_VERSION = {
    "control_tensors.py": "PASSED",
    "large_values.py": "PASSED",
    "other_tensors.py": "PASSED",
}


def log_of(shared_run: Run, scripts: dict[str, str], script: str) -> str:
    done = shared_run("side_by_side.py", *scripts, n=len(scripts), options=SEVERAL)
    assert done.exit_code == 0, done.output
    return done.log(list(scripts).index(script))


@pytest.mark.parametrize("script", SIDE_BY_SIDE)
def test_every_value_is_right_or_counted(shared_run: Run, script: str) -> None:
    assert SIDE_BY_SIDE[script] in log_of(shared_run, SIDE_BY_SIDE, script)


@pytest.mark.versions
@pytest.mark.parametrize("script", WITH_EACH_VERSION)
def test_values_are_the_cpu_s(shared_run: Run, script: str) -> None:
    log = log_of(shared_run, WITH_EACH_VERSION, script)
    assert WITH_EACH_VERSION[script] in log
    assert "RecordFunction" not in log, "PyTorch says that nested tensors have no sizes"


def test_every_value_of_compiled_functions_is_right_or_counted(run: Run) -> None:
    pytest.importorskip("triton")
    done = run("values.py", "3", "40", "compile", n=1)
    assert done.exit_code == 0, done.output + done.log(0)
    assert "PASSED" in done.log(0)


def test_what_follows_from_another_rank_s_unknown_values_is_unknown(run: Run) -> None:
    done = run("partly_unknown.py", n=2)
    assert done.exit_code == 0, done.output + done.log(0)
    assert "PASSED" in done.log(0)
    assert "PASSED" in done.log(1)


def test_what_is_stored_through_a_table_of_pointers_is_unknown_and_nothing_else(run: Run) -> None:
    pytest.importorskip("triton")
    done = run("pointer_table.py", n=1)
    assert done.exit_code == 0, done.output + done.log(0)
    assert f"stored {[[0] * 8, [0] * 8, [7] * 8]}" in done.log(0), done.log(0)


def test_a_search_with_beams_goes_on_until_it_is_long_enough(run: Run) -> None:
    done = run("beams.py", n=1)
    assert done.exit_code == 0, done.output + done.log(0)
    assert "PASSED" in done.log(0)
    assert "beams.py:26 reads bool values" in done.output


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


def test_an_index_that_is_out_of_range_stops_the_program(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "range.py"
    script.write_text(
        "import torch\n"
        "weight = torch.empty(100, 5000, device='cuda')\n"
        "torch.nn.functional.embedding(torch.tensor([3, 100]).cuda(), weight)\n"
    )
    done = run(script, n=1)
    assert done.exit_code == 1
    assert "torch.AcceleratorError: CUDA error: device-side assert" in done.output
    assert "range.py:3" in done.output
