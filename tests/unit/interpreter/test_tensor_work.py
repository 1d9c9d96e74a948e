"""The time of operators on tensors of the CPU follows from their bytes, their kind and the threads that share them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from emu.hostbench.workload import WORKLOADS
from phantora_async.launch.launcher import tensor_threads

pytest.importorskip("torch")
ROOT = Path(__file__).parents[3]
HOOK = ROOT / "emu/lib/libcuda.so.1"
PROGRAM = """
import json, sys
sys.path.insert(0, {root!r})
from emu.interpreter.hook_library import Hook
hook = Hook({hook!r})
import torch
from emu.interpreter import tensor_work
from emu.interpreter.nvtx_ranges import NvtxRanges

ranges = NvtxRanges(hook)
ranges.install()
ranges.start()
warnings = []
hook.warn_once = lambda *texts: warnings.append(texts)
tensor_work.find(hook)
KINDS = {kinds!r}

def counted(run):
    before = hook.host_counts()
    run()
    return {{kind: n - before[kind] for kind, n in hook.host_counts().items() if n != before[kind] and kind in KINDS}}

MEBI = 1 << 20
a, b = torch.ones(4 * MEBI), torch.ones(4 * MEBI)
m, image, weight = torch.ones(256, 256), torch.ones(4, 8, 64, 64), torch.ones(16, 8, 3, 3)
lists = [[one[k * MEBI : (k + 1) * MEBI] for one in [a]] for k in range(4)]
adamw = dict(amsgrad=False, beta1=0.9, beta2=0.9, lr=1e-3, weight_decay=0.0, eps=1e-8, maximize=False)
steps = [torch.ones(())]
large, few = torch.ones(12 * MEBI), torch.ones(1024)
with torch.device("meta"):
    elsewhere = torch.ones(4 * MEBI)
runs = {{
    "add_": lambda: a.add_(b),
    "copy_": lambda: a.copy_(b),
    "cast": lambda: a.to(torch.bfloat16),
    "sum": lambda: a.sum(),
    "cat": lambda: torch.cat([a, b]),
    "just smaller": lambda: torch.cat([a[256:], b[256:]]),
    "foreach": lambda: torch._foreach_add_([a], [b]),
    "small": lambda: a[:65536].add_(b[:65536]),
    "expanded": lambda: a.expand(16, 4 * MEBI).sum(),
    "adamw": lambda: torch._fused_adamw_(*lists, [], steps, **adamw),
    "normal_": lambda: a[:65536].normal_(),
    "sort": lambda: m.sort(),
    "product": lambda: m @ m,
    "linear": lambda: torch.nn.functional.linear(m, m),
    "convolution": lambda: torch.nn.functional.conv2d(image, weight, stride=2, padding=1),
    "large": lambda: torch.cat([a, b, a]),
    "out": lambda: torch.add(a, b, out=a),
    "large, out": lambda: torch.neg(large, out=large),
    "reduced, out": lambda: torch.sum(a.view(1024, -1), 1, out=few),
    "out without a size": lambda: torch.neg(a, out=torch.empty(0)),
    "meta": lambda: elsewhere.add_(1),
    "tiny": lambda: a[:10].add_(b[:10]),
    "uncounted": lambda: (hook.uncounted(1), a.add_(b), hook.uncounted(-1)),
}}
found = {{name: counted(run) for name, run in runs.items()}}
hook.tensor_threads(4)
found["four threads"] = counted(runs["add_"])
hook.tensor_threads(1)
hook.tensors_stand_for(4 * MEBI, 64)
found["stands for"] = counted(lambda: torch.ones(64).add_(1))
hook.tensors_stand_for(7 * MEBI // 2, MEBI)
found["stands for no whole number"] = counted(lambda: a[:MEBI].add_(b[:MEBI]))
hook.tensors_stand_for(1, 1)
print(json.dumps([found, warnings]))
"""
KINDS = (
    *("tensor_kib", "cached_tensor_kib", "fresh_tensor_kib"),
    *("function_value", "random_value", "scattered_value", "sorted_value", "kilo_product", "half_kilo_product"),
)


def test_work_on_tensors_of_the_cpu_is_counted_by_size() -> None:
    """A line is fetched before it is written to, so what is written moves twice. Nothing has a price here, so bytes
    count and not the work on elements.
    """
    environment = {**os.environ, "PHANTORA_DETACHED": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("NVTX_INJECTION64_PATH", None)
    program = PROGRAM.format(root=str(ROOT), hook=str(HOOK), kinds=KINDS)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found, warnings = json.loads(done.stdout.splitlines()[-1])
    assert warnings == []
    kib = 16 * 1024  # of a tensor of 16 MiB
    assert found["add_"] == found["copy_"] == found["foreach"] == {"tensor_kib": 3 * kib}
    assert found["cast"] == {"tensor_kib": kib + 2 * kib // 2}
    assert found["sum"] == {"tensor_kib": kib}, "the operator hands its work to another form of itself"
    assert found["cat"] == {"tensor_kib": 2 * kib + 2 * 2 * kib, "fresh_tensor_kib": 2 * kib}, "of 32 MiB"
    assert found["just smaller"] == {"tensor_kib": 2 * (kib - 1) + 2 * 2 * (kib - 1)}, "freed memory serves again"
    assert found["small"] == {"cached_tensor_kib": 3 * 256}
    assert found["expanded"] == {"tensor_kib": kib}, "of a tensor expanded from one element"
    assert found["adamw"] == {"tensor_kib": (4 + 3) * 4 * 1024}, "all but the gradient is written"
    assert found["large"] == {"tensor_kib": 3 * 3 * kib, "fresh_tensor_kib": 3 * kib}, "no freed memory is so large"
    assert found["out"] == {"tensor_kib": (2 + 2) * kib}, "both read, and the result, which is no new tensor, written"
    assert found["large, out"] == {"tensor_kib": 3 * (1 + 2) * kib}
    assert found["reduced, out"] == {"tensor_kib": kib + 2 * 4}
    assert found["out without a size"] == {"tensor_kib": (1 + 2) * kib}
    assert found["meta"] == found["tiny"] == found["uncounted"] == {}
    assert found["four threads"] == {"tensor_kib": pytest.approx(3 * kib * (36 - 1 + 4) / 36 / 4, abs=1)}
    assert found["stands for"] == {"tensor_kib": 2 * kib + 2 * kib}, "64 elements that are filled and added to"
    assert found["stands for no whole number"] == {"tensor_kib": 3 * 14 * 1024}, "3.5 times 4 MiB"


def test_each_kind_of_such_work_has_a_program_of_its_own() -> None:
    pytest.importorskip("torch")
    from emu.hostbench import cpu_tensors

    names = {one.name for one in WORKLOADS}
    assert {name for name in vars(cpu_tensors) if name.endswith(("tensors", "on_cpu")) and name[0] != "_"} <= names


def test_torchrun_gives_each_of_several_ranks_one_thread() -> None:
    assert tensor_threads({}, 8, 112) == 1
    assert tensor_threads({}, 1, 112) == 112
    assert tensor_threads({"OMP_NUM_THREADS": "4"}, 8, 112) == 4
    assert tensor_threads({"OMP_NUM_THREADS": "6,2"}, 1, 112) == 6
    assert tensor_threads({"OMP_NUM_THREADS": "many"}, 8, 112) == 1
