"""Calls of the CUDA runtime, with as little else as possible."""

from __future__ import annotations

import torch

from .workload import Run, workload


@workload
def fills() -> Run:
    x = torch.empty(64, device="cuda")

    def run() -> None:
        for _ in range(40):
            x.fill_(1.0)

    return run


@workload
def events() -> Run:
    first, second = torch.cuda.current_stream(), torch.cuda.Stream()
    made = [torch.cuda.Event() for _ in range(4)]

    def run() -> None:
        for _ in range(8):
            for event in made:
                event.record(first)
                second.wait_event(event)

    return run


@workload
def side_streams() -> Run:
    side, x = torch.cuda.Stream(), torch.empty(64, device="cuda")

    def run() -> None:
        for _ in range(8):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                y = torch.empty_like(x)
                y.copy_(x)
            y.record_stream(torch.cuda.current_stream())
            torch.cuda.current_stream().wait_stream(side)

    return run


@workload
def copies() -> Run:
    x, pinned = torch.empty(64, device="cuda"), torch.empty(64).pin_memory()

    def run() -> None:
        for _ in range(16):
            x.copy_(pinned, non_blocking=True)
            pinned.copy_(x, non_blocking=True)

    return run


@workload
def synchronisations() -> Run:
    stream = torch.cuda.current_stream()

    def run() -> None:
        for _ in range(20):
            stream.synchronize()
            torch.cuda.synchronize()

    return run


@workload
def device_memory() -> Run:
    def run() -> None:
        for _ in range(2):
            blocks = [torch.empty(24 << 20, dtype=torch.uint8, device="cuda") for _ in range(4)]
            del blocks
            torch.cuda.empty_cache()

    return run
