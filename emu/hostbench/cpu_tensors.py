"""Operators on tensors of the CPU, on one thread: the memory's rate and the processor's. None of them calls CUDA."""

from __future__ import annotations

import torch

from .workload import Run, operators_alone

_LARGE = 1 << 24
"""Elements of a tensor that no cache holds."""
_SMALL = 1 << 16
"""Elements of a tensor that a core's cache holds."""


def _tensors(count: int, of: int) -> list[torch.Tensor]:
    return [torch.rand(count) + 0.5 for _ in range(of)]


@operators_alone
def large_tensors() -> Run:
    a, b = _tensors(_LARGE, 2)

    def run() -> None:
        a.copy_(b)
        a.add_(b, alpha=-1e-3)
        a.sum()

    return run


@operators_alone
def cached_tensors() -> Run:
    a, b = _tensors(_SMALL, 2)

    def run() -> None:
        for _ in range(10):
            a.copy_(b)
            a.add_(b, alpha=-1e-3)
            a.mul_(0.9)

    return run


@operators_alone
def new_tensors() -> Run:
    a, b = _tensors(_LARGE, 2)
    return lambda: a + b


@operators_alone
def functions_of_tensors() -> Run:
    a, b = _tensors(_SMALL, 2)

    def run() -> None:
        for _ in range(10):
            torch.exp(b, out=a)
            torch.sigmoid(b, out=a)
            torch.tanh(b, out=a)

    return run


@operators_alone
def random_tensors() -> Run:
    (a,) = _tensors(4 * _SMALL, 1)

    def run() -> None:
        a.normal_()
        a.uniform_()

    return run


@operators_alone
def gathered_tensors() -> Run:
    (a,) = _tensors(4 * _SMALL, 1)
    at = torch.randint(0, len(a), (len(a),))
    return lambda: a.gather(0, at)


@operators_alone
def sorted_tensors() -> Run:
    (a,) = _tensors(_SMALL, 1)
    return lambda: a.sort()


@operators_alone
def products_on_cpu() -> Run:
    a, b = (one.view(512, 512) for one in _tensors(4 * _SMALL, 2))
    return lambda: a @ b


@operators_alone
def half_products_on_cpu() -> Run:
    a, b = (one.view(512, 512).bfloat16() for one in _tensors(4 * _SMALL, 2))
    return lambda: a @ b
