"""The programs that `profile --host` times, counted and timed in front of the hook library."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import profiles
from emu.contract.installed import EMU, HOOK_LIBRARY
from phantora_async.config import find_python
from phantora_async.host_profile import measure

from .conftest import Run

AGAIN = profiles.AGAIN


def test_programs_differ_in_how_long_ago_their_operators_ran() -> None:
    """Else the cost of an operator that has not run for a while cannot be told from that of any operator."""
    known = profiles.load_host("xeon-h200")
    programs = ("pointwise_8", "all_80", "transformer")
    measured = measure(find_python(None), 0, 2, known, lambda text: None, programs)
    assert measured.failed == {}
    assert {"pointwise_8", "all_80"} < set(measured.no_calls)
    assert "transformer" not in measured.no_calls
    phases = {"transformer": ("forward", "backward", "zero_grad")}
    assert set(measured.counts) == {
        f"{name}: {phase}{which}"
        for name in programs
        for phase in phases.get(name, ("forward", "backward"))
        for which in ("", AGAIN)
    }
    assert measured.detached_ns is not None
    assert set(measured.detached_ns) == set(measured.counts)
    steps: dict[str, Counter[str]] = {}
    for part, units in measured.counts.items():
        name = part.removesuffix(AGAIN).partition(": ")[0] + (AGAIN if part.endswith(AGAIN) else "")
        steps.setdefault(name, Counter()).update(units)
    aged = {name: (units["warm_op"] + units["cold_op"]) / units["op"] for name, units in steps.items()}
    assert aged[f"pointwise_8{AGAIN}"] < 0.1 < aged["pointwise_8"] < 0.3
    assert aged[f"all_80{AGAIN}"] > 0.5
    assert aged["all_80"] > 0.5
    assert steps[f"transformer{AGAIN}"]["cold_op"] < steps["transformer"]["cold_op"]
    forward, backward, dropped = (measured.counts[f"transformer: {phase}"] for phase in phases["transformer"])
    assert forward["made_node"] > forward["outer_op"] > 100
    assert "node" not in forward
    assert "made_node" not in backward
    assert backward["node"] > forward["made_node"], "gradients are accumulated by nodes, too"
    assert dropped["freed_block"] == 98, "as many as there are parameters"


def test_each_kind_of_work_on_tensors_of_the_cpu_is_counted() -> None:
    """An operator counts as the kind that takes longest, so the costs of a known host decide."""
    kinds = {
        "large_tensors": "tensor_kib",
        "cached_tensors": "cached_tensor_kib",
        "new_tensors": "fresh_tensor_kib",
        "functions_of_tensors": "function_value",
        "random_tensors": "random_value",
        "gathered_tensors": "scattered_value",
        "sorted_tensors": "sorted_value",
        "products_on_cpu": "kilo_product",
        "half_products_on_cpu": "half_kilo_product",
    }
    known = profiles.load_host("xeon-h200")
    measured = measure(find_python(None), 0, 1, known, lambda text: None, tuple(kinds))
    assert measured.failed == {}
    for name, kind in kinds.items():
        units = sum((Counter(of) for part, of in measured.counts.items() if part.startswith(name)), Counter())
        assert units[kind] > 0, (name, units)


MEASURED_ALONE = """
import os, sys
os.environ |= {"PHANTORA_DETACHED": sys.argv[3], "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
sys.path.insert(0, sys.argv[1])
from emu.interpreter.hook_library import Hook
hook = Hook(sys.argv[2])
hook.load(sys.argv[4])
import torch
torch.empty(1 << 20, device="cuda")
print(hook.memory_grew())
"""


def test_nothing_is_kept_of_blocks_while_the_programs_own_work_is_timed(tmp_path: Path) -> None:
    """It would take longer than PyTorch's allocator itself, which a GPU's process does not have."""
    device_file = tmp_path / "device.txt"
    lines = profiles.load_gpu("h200").device_file_lines()
    device_file.write_text("\n".join([*lines, "device_count=1", "host_mode=none", ""]))
    kept = {}
    for how in ("1", "timed"):
        command = [sys.executable, "-c", MEASURED_ALONE, str(EMU.parent), str(HOOK_LIBRARY), how, str(device_file)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        kept[how] = done.stdout.splitlines()[-1]
    assert kept == {"1": "True", "timed": "False"}


@pytest.mark.torch
def test_no_program_waits_for_another_rank(run: Run) -> None:
    """The programs that `profile --host` times on several GPUs are each rank's own work: the slowest one is counted
    once, by `ranks` of the description. Collectives make the GPU wait for another rank that is 50 ms late, not the
    host.
    """
    done = run("lagging_ranks.py", n=2)
    assert done.exit_code == 0, done.output
    line = next(line for line in done.output.splitlines() if line.startswith("FOUND "))
    found: dict[str, list[list[int]]] = json.loads(line.removeprefix("FOUND "))
    assert len(found) == 7
    for together, late in found.values():
        assert late[0] == pytest.approx(together[0], rel=0.03)
        assert late[1] > together[1] + 30e6
