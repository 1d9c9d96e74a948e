"""Ranges that PyTorch hands to the hook library itself are those that it announces by NVTX."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
ROOT = Path(__file__).parents[3]
HOOK = ROOT / "emu/lib/libcuda.so.1"
PROGRAM = """
import json, sys
sys.path.insert(0, {root!r})
from emu.interpreter.hook_library import Hook
hook = Hook({hook!r})
import torch
from emu.interpreter.nvtx_ranges import NvtxRanges

if {by_nvtx}:
    hook.ranges_next = lambda kinds: None
ranges = NvtxRanges(hook)
ranges.install()

def work():
    x, w = torch.ones(4, 8, requires_grad=True), torch.ones(8, 8, requires_grad=True)
    with torch.profiler.record_function("mine, with a comma"):
        y = torch.nn.functional.layer_norm(torch.nn.functional.linear(x, w), [8], None, None)
    y.sum().backward()
    torch._foreach_add_([torch.ones(3), torch.ones(2, 2), torch.ones(())], 1.0)
    torch.cat([torch.ones(2), torch.ones(0)]).split([1, 1])
    torch.empty(0)

def counted():
    before = hook.host_counts()
    work()
    return {{kind: n - before[kind] for kind, n in hook.host_counts().items() if n != before[kind]}}

found = [counted()]
ranges.start()
found += [counted(), counted()]
with torch.profiler.profile() as profile:  # suspends ours, and sees all that it asks for
    beside = counted()
found.append(counted())
ranges.pause()
hook.uncounted(1)  # as while a compiler traces
torch.ones(2, requires_grad=True) * 2 * 3
hook.uncounted(-1)
ranges.start()
found.append(counted())
ranges.pause()
found.append(counted())
named = [event.key for event in profile.key_averages() if event.key == "mine, with a comma"]
print(json.dumps([found, named, beside]))
"""


def ranges(by_nvtx: bool) -> list[object]:
    environment = {**os.environ, "PHANTORA_DETACHED": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("NVTX_INJECTION64_PATH", None)
    if by_nvtx:
        environment["NVTX_INJECTION64_PATH"] = str(HOOK)
    program = PROGRAM.format(root=str(ROOT), hook=str(HOOK), by_nvtx=by_nvtx)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: list[object] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_same_ranges_come_from_pytorch_itself_and_by_nvtx() -> None:
    """Without the injection's path NVTX tells nothing: what is counted then came from PyTorch."""
    (before, first, again, after, aside, paused), named, beside = own = ranges(by_nvtx=False)  # type: ignore[misc]
    # linear (a transposition and a product), layer_norm, sum: NVTX does not say that they make nodes
    assert [of.pop("made_node") for of in (first, again, after, aside, beside)] == [4] * 5
    assert own[:2] == ranges(by_nvtx=True)[:2]
    assert before == paused == {}
    assert first["scope"] == 1
    assert first["listed_tensor"] == 4  # a number has no sizes
    assert first["node"] > 3
    assert first.pop("cold_op") > 10, "operators that ran a moment ago are not cold"
    assert first == again == after == aside
    beside.pop("cold_op", 0)
    assert beside == first, "a profiler of the script changes nothing"
    assert named == ["mine, with a comma"]


TRACING = """
import sys
sys.path.insert(0, {root!r})
from emu.interpreter.hook_library import Hook
hook = Hook({hook!r})
import torch
from emu.interpreter.nvtx_ranges import NvtxRanges

ranges = NvtxRanges(hook)
ranges.install()
ranges.start()
rows = torch.export.Dim("rows")
exported = torch.export.export(torch.nn.Linear(4, 2), (torch.ones(3, 4),), dynamic_shapes=({{0: rows}},))
print(list(exported.module()(torch.ones(5, 4)).shape))
"""


def test_sizes_that_a_tracer_leaves_open_stay_open() -> None:
    environment = {**os.environ, "PHANTORA_DETACHED": "1", "CUDA_VISIBLE_DEVICES": ""}
    program = TRACING.format(root=str(ROOT), hook=str(HOOK))
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[5, 2]"
