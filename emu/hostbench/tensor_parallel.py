"""Training steps whose parameters and activations are DTensors throughout: sequence parallelism, optimizers over them;
and operators that a library defines in Python.

The programs of `distributed` have few operators of DTensor beside a model of plain tensors.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from .distributed import mesh_of_ranks
from .model import Model, blocks, step_of
from .workload import Run, workload


def _parallel(layers: int) -> Model:
    """Norms on parts of the sequence, products on parts of the weights."""
    model = Model(blocks(layers)).cuda().bfloat16()
    plan: dict[str, Any] = {"norm1": SequenceParallel(), "norm2": SequenceParallel()}
    plan |= {name: ColwiseParallel(input_layouts=Shard(1)) for name in ("attention.q", "attention.k", "attention.v")}
    plan |= {"attention.o": RowwiseParallel(output_layouts=Shard(1)), "up": ColwiseParallel(input_layouts=Shard(1))}
    plan["down"] = RowwiseParallel(output_layouts=Shard(1))
    for layer in model.layers:
        layer.attention.heads //= mesh_of_ranks().size()
        parallelize_module(layer, mesh_of_ranks(), plan)
    return model


@workload
def sequence_parallel() -> Run:
    model = _parallel(2)
    for layer in model.layers[:1]:
        layer.register_forward_pre_hook(_scattered)
    for layer in model.layers[-1:]:
        layer.register_forward_hook(_gathered)
    return step_of(model)


def _scattered(module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    return inputs[0].chunk(mesh_of_ranks().size(), 1)[0]


def _gathered(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    return output.repeat(1, mesh_of_ranks().size(), 1)


def _stepping(**options: Any) -> Run:
    model = _parallel(2)
    parameters = [parameter for layer in model.layers for parameter in layer.parameters()]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer = torch.optim.AdamW(parameters, 1e-4, **options)
    return optimizer.step


@workload
def dtensor_optimizer() -> Run:
    """Steps an optimizer that calls some ten operators for each parameter."""
    return _stepping(foreach=False)


@workload
def dtensor_lists() -> Run:
    """Steps an optimizer that calls some ten operators on lists of parameters."""
    return _stepping(foreach=True)


@torch.library.custom_op("phantora_hostbench::halved", mutates_args=())
def _halved(x: Tensor) -> Tensor:
    return x * 0.5


@_halved.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def _halved_backward(context: Any, gradient: Tensor) -> Tensor:
    return gradient * 0.5


_halved.register_autograd(_halved_backward)


@workload
def python_operators() -> Run:
    """Operators that a library defines in Python, with their gradient."""

    def around(layer: nn.Module, x: Tensor) -> Any:
        return layer(_halved(_halved(x)))

    return step_of(Model(blocks(4), around).cuda().bfloat16())
