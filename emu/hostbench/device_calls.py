"""Training steps with more calls of CUDA: events, copies, synchronisations, memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .model import Model, blocks, step_of, tokens
from .workload import Run, workload


@workload
def events_and_streams() -> Run:
    side = torch.cuda.Stream()

    def around(layer: nn.Module, x: Tensor) -> Any:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x * 2.0
            event = side.record_event()
        torch.cuda.current_stream().wait_event(event)
        y.record_stream(torch.cuda.current_stream())
        return layer(x + y)

    return step_of(Model(blocks(6), around).cuda().bfloat16())


@workload
def host_copies() -> Run:
    pinned = torch.zeros(16, dtype=torch.bfloat16).pin_memory()

    def around(layer: nn.Module, x: Tensor) -> Any:
        for _ in range(6):
            x = x + pinned.to("cuda", non_blocking=True).sum()
        return layer(x)

    return step_of(Model(blocks(6), around).cuda().bfloat16())


@workload
def synchronisations() -> Run:
    def around(layer: nn.Module, x: Tensor) -> Any:
        y = layer(x)
        for _ in range(4):
            torch.cuda.current_stream().synchronize()
        return y

    return step_of(Model(blocks(6), around).cuda().bfloat16())


@workload
def values_read() -> Run:
    def around(layer: nn.Module, x: Tensor) -> Any:
        y = layer(x)
        y.sum().item()
        return y

    return step_of(Model(blocks(6), around).cuda().bfloat16())


@workload
def device_memory() -> Run:
    """Blocks that PyTorch's allocator does not have."""

    def around(layer: nn.Module, x: Tensor) -> Any:
        block = torch.empty(24 << 20, dtype=torch.uint8, device="cuda")
        del block
        torch.cuda.empty_cache()
        return layer(x)

    model, x = Model(blocks(4), around).cuda().bfloat16(), tokens()

    def run() -> None:
        with torch.no_grad():
            model(x)

    return run


@workload
def memory_taken() -> Run:
    def around(layer: nn.Module, x: Tensor) -> Any:
        for size in range(10):
            torch.empty(64 * (size + 1), device="cuda")
            x.new_empty((4, 4))
        return layer(x)

    return step_of(Model(blocks(6), around).cuda().bfloat16())
