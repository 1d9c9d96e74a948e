"""Holders of GPU memory at its peak, against what is known of the model."""

from __future__ import annotations

import re

import pytest

from .conftest import Run, needs

MIB = 1 << 20
WEIGHTS = 6 * 2048 * 2048 * 4
ACTIVATION = 4096 * 2048 * 4


def test_memory_by_what_it_holds(run: Run) -> None:
    done = run("memory_holders.py", n=1)
    assert done.exit_code == 0, done.output
    memory = done.simulated["memory"]
    parts = memory["fullest"]["parts"]
    assert parts["parameters"] == WEIGHTS
    assert parts["optimizer state"] == 2 * WEIGHTS
    # At the beginning of the second step's backward pass: the batch, the layers' outputs, the mean and its gradient.
    assert parts["activations"] == 7 * ACTIVATION + 2 * 512
    inside = {name: nbytes for name, nbytes in parts.items() if name not in ("cached or fragmented", "outside PyTorch")}
    (peak,) = re.findall(r"^PEAK (\d+)$", done.output, re.MULTILINE)
    assert sum(inside.values()) == memory["max_allocated_nbytes"] == int(peak)
    assert memory["verdict"]["fits"] is True
    assert sum(parts.values()) == memory["verdict"]["needed_nbytes"]
    lines = {(one["part"], one["op"]): one["site"] for one in memory["fullest"]["holders"]}
    assert lines["optimizer state", "aten::zeros_like"].endswith("memory_holders.py:20")
    assert "memory: fits: rank 0 needs" in done.output
    # By module: each layer has its weight, two states of it and its output.
    modules = done.simulated["modules"]
    held = {(*one["path"], one["part"]): one["nbytes"] for one in modules["memory"]}
    assert sum(held.values()) == memory["max_allocated_nbytes"]
    for layer in map(str, range(6)):
        assert held["Sequential", layer, "parameters"] == WEIGHTS // 6
        assert held["Sequential", layer, "optimizer state"] == 2 * WEIGHTS // 6
        assert held["Sequential", layer, "activations"] == ACTIVATION
    # A product forward, one for the gradient of the weight, one for that of the input, which the first layer lacks.
    products = {tuple(one["path"]): one for one in modules["parts"] if one["family"].startswith("gemm")}
    assert {path: one["launches"] for path, one in products.items()} == {
        ("Sequential", str(layer)): 3 if layer else 2 for layer in range(6)
    }
    assert len({one["forward_ns"] for one in products.values()}) == 1
    assert {one["class"] for one in products.values()} == {"Linear"}
    assert 1.5 < products["Sequential", "1"]["backward_ns"] / products["Sequential", "0"]["backward_ns"] < 2.5
    (stepped,) = (one for one in modules["parts"] if one["path"] == ["(optimizer)"])
    assert stepped["backward_ns"] == 0


def test_gradients_that_are_kept(run: Run) -> None:
    done = run("memory_holders.py", "keep", n=1)
    assert done.exit_code == 0, done.output
    assert done.simulated["memory"]["fullest"]["parts"]["gradients"] == WEIGHTS


def test_what_does_not_fit_says_by_how_much(run: Run) -> None:
    """It fails in the second step, in a run of two ranks: virtual time does not come to the failure."""
    done = run("memory_holders.py", "more")
    assert done.exit_code == 1
    memory = done.simulated["memory"]
    assert memory["verdict"]["fits"] is False
    assert memory["verdict"]["asked_nbytes"] == 1 << 50
    assert memory["verdict"]["missing_nbytes"] > (1 << 50) - memory["total_nbytes"]
    assert "memory_holders.py:19" in memory["verdict"]["site"]
    assert memory["fullest"]["parts"]["parameters"] == WEIGHTS
    told = done.simulated["ranks"][memory["fullest"]["rank"]]["memory"]
    assert told["allocated_peak_nbytes"] >= (1 << 30) + 3 * WEIGHTS
    inside = (
        nbytes for name, nbytes in told["parts"].items() if name not in ("cached or fragmented", "outside PyTorch")
    )
    assert sum(inside) == told["allocated_peak_nbytes"]
    assert "memory: does not fit: rank 0 asked for" in done.output


def test_sharded_parameters_are_told_apart_from_gathered_ones(shared_run: Run) -> None:
    needs("torch.distributed.fsdp")
    done = shared_run("fsdp_hybrid.py", n=4)
    assert done.exit_code == 0, done.output
    for rank in done.simulated["ranks"]:
        parts = rank["memory"]["parts"]
        inside = [nbytes for name, nbytes in parts.items() if name not in ("cached or fragmented", "outside PyTorch")]
        assert sum(inside) == rank["memory"]["allocated_peak_nbytes"]
        assert parts["parameters"] > 0
        assert parts["communication buffers"] > 0
        assert "not told" not in parts


def test_other_allocators_than_pytorch_s_own(
    run: Run, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory of an allocator that counts nothing is counted where CUDA gives memory out, in pages of 2 MiB,
    the cuBLAS handle of autograd's thread (64 MiB) included.
    """
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync")
    done = run("allocators.py", str(tmp_path_factory.mktemp("allocator") / "own.so"), n=2)
    assert done.exit_code == 0, done.output
    memory = [rank["memory"] for rank in done.simulated["ranks"]]
    for rank, (name, rounded) in enumerate((("cudaMallocAsync", 1), ("pluggable", (64 + 16) << 20))):
        most = int(done.log(rank).split(f"{name} at most ")[1])
        assert most <= memory[rank]["allocated_peak_nbytes"] < most + rounded
    assert "Exception ignored" not in done.output
