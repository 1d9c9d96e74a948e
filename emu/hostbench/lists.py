"""Work on lists of tensors: optimizers, foreach operators, FSDP's packing, operators of other libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .model import Model, blocks, step_of
from .workload import Run, workload


def _trained(make: Callable[[Any], torch.optim.Optimizer], nlayers: int = 6) -> Run:
    model = Model(blocks(nlayers)).cuda().bfloat16()
    return step_of(model, then=make(model.parameters()).step)


@workload
def adamw_foreach() -> Run:
    return _trained(lambda parameters: torch.optim.AdamW(parameters, lr=1e-4, foreach=True))


@workload
def adamw_fused() -> Run:
    return _trained(lambda parameters: torch.optim.AdamW(parameters, lr=1e-4, fused=True))


@workload
def sgd_momentum() -> Run:
    return _trained(lambda parameters: torch.optim.SGD(parameters, lr=1e-4, momentum=0.9))


@workload
def adam_single_tensor() -> Run:
    return _trained(lambda parameters: torch.optim.Adam(parameters, lr=1e-4, foreach=False), nlayers=3)


@workload
def gradient_clipping() -> Run:
    model = Model(blocks(6)).cuda().bfloat16()
    return step_of(model, then=lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))


@workload
def lists_of_tensors() -> Run:
    model = Model(blocks(6)).cuda().bfloat16()
    xs = [torch.randn(16, device="cuda") for _ in range(60)]
    ys = [torch.randn(16, device="cuda") for _ in range(60)]

    def more() -> None:
        torch._foreach_add_(xs, ys, alpha=0.1)
        torch._foreach_mul_(xs, 0.9)
        torch._foreach_copy_(xs, ys)
        torch._foreach_norm(xs)
        torch._foreach_lerp_(xs, ys, 0.1)

    return step_of(model, then=more)


def _packing(*mebis: int, ranks: int = 4) -> Run:
    """Makes a workload of FSDP's packing of gradients: its operator makes a table for its kernel. For fewer ranks it is
    larger.
    """
    gradients = [torch.zeros(n << 20, device="cuda", dtype=torch.bfloat16) for n in mebis]
    packed = torch.empty(ranks, sum(gradient.numel() for gradient in gradients) // ranks, device="cuda")

    def run() -> None:
        torch._chunk_cat(gradients, 0, ranks, out=packed)

    return run


@workload
def tables() -> Run:
    """Packs the gradients of a layer, twice: the operator's table has 0.5 MiB."""
    run = _packing(4, 1, 1, 4, 8, 8, 8, ranks=1)

    def twice() -> None:
        run()
        run()

    return twice


@workload
def large_tables() -> Run:
    """Packs the gradients of a model's embedding and head: the operator's table has 3 MiB."""
    return _packing(100, 100, ranks=1)


_OPERATORS = torch.library.Library("phantora_hostbench", "DEF")
_OPERATORS.define("pass_on(Tensor[] parts, Tensor(a!) out, SymInt[] sizes, int rank) -> (Tensor(a!), Tensor)")


@torch.library.impl(_OPERATORS, "pass_on", "CUDA")
def _pass_on(parts: list[Tensor], out: Tensor, sizes: list[int], rank: int) -> tuple[Tensor, Tensor]:
    return out, parts[rank]


@workload
def library_operators() -> Run:
    """Calls operators of another library than PyTorch, written in Python, that take lists."""
    parts = [torch.zeros(16, device="cuda") for _ in range(9)]
    out, sizes = torch.zeros(16, device="cuda"), list(range(9))

    def around(layer: nn.Module, x: Tensor) -> Any:
        torch.ops.phantora_hostbench.pass_on(parts, out, sizes, 1)
        y = layer(x)
        torch.ops.phantora_hostbench.pass_on(parts[:2], out, sizes[:2], 0)
        return y

    return step_of(Model(blocks(6), around).cuda().bfloat16())
