"""Operators at PyTorch's dispatcher: by kind, with and without autograd."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from .workload import Run, workload


def _tensor(*sizes: int, grad: bool = False, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*sizes, device="cuda").to(dtype).requires_grad_(grad)


def _elementwise(x: Tensor, y: Tensor) -> Tensor:
    for _ in range(8):
        x = torch.relu(x * y + 0.5) - y
        x = torch.tanh(x) / 2.0
        x = torch.where(x > 0, x, y)
        x = x.sigmoid().exp()
    return x


@workload
def elementwise() -> Run:
    x, y = _tensor(64), _tensor(64)
    return lambda: _elementwise(x, y)


@workload
def elementwise_grad() -> Run:
    x, y = _tensor(64, grad=True), _tensor(64)

    def run() -> None:
        _elementwise(x, y).backward(y)
        x.grad = None

    return run


@workload
def in_place() -> Run:
    x, y = _tensor(64), _tensor(64)

    def run() -> None:
        for _ in range(12):
            x.mul_(0.5).add_(y, alpha=2.0)
            x.zero_()
            x.copy_(y)
            x.clamp_(min=0.0)

    return run


def _views(x: Tensor) -> Tensor:
    for _ in range(10):
        x = x.view(4, 4, 8).transpose(0, 1).permute(2, 0, 1)[:4]
        x = x.unsqueeze(0).expand(2, 4, 4, 4).flatten(1).t().reshape(128)
        x = x.detach() if not x.requires_grad else x.narrow(0, 0, 128)
    return x


@workload
def views() -> Run:
    x = _tensor(128)
    return lambda: _views(x)


@workload
def views_grad() -> Run:
    x, y = _tensor(128, grad=True), _tensor(128)

    def run() -> None:
        _views(x).backward(y)
        x.grad = None

    return run


@workload
def splits() -> Run:
    x = _tensor(12, 16)

    def run() -> None:
        for _ in range(8):
            parts = x.split(4, 0)
            q, k, v = x.chunk(3, 0)
            torch.cat((q, k, v, *parts), 0)
            torch.stack(x.unbind(0)[:4])

    return run


@workload
def products() -> Run:
    x, w, b = _tensor(16, 32), _tensor(32, 32), _tensor(32)
    batch = _tensor(4, 8, 8)

    def run() -> None:
        for _ in range(8):
            y = functional.linear(x, w, b)
            y = functional.linear(y, w)
            torch.matmul(batch, batch)
            torch.addmm(b, y, w)

    return run


@workload
def products_half_grad() -> Run:
    x, w, b = (
        _tensor(2, 16, 32, dtype=torch.bfloat16),
        _tensor(32, 32, grad=True, dtype=torch.bfloat16),
        _tensor(32, grad=True, dtype=torch.bfloat16),
    )

    def run() -> None:
        y = x
        for _ in range(6):
            y = functional.linear(y, w, b)
            y = functional.linear(y, w)
        y.backward(x)
        w.grad = b.grad = None

    return run


@workload
def autocast_products() -> Run:
    x, w, b = _tensor(16, 32), _tensor(32, 32, grad=True), _tensor(32, grad=True)

    def run() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            y = x
            for _ in range(10):
                y = functional.relu(functional.linear(y, w, b))
                y = functional.layer_norm(y, (32,)) + 1.0

    return run


@workload
def network_functions() -> Run:
    x, table = _tensor(4, 8, 32), _tensor(64, 32)
    index = torch.zeros(4, 8, dtype=torch.int64, device="cuda")

    def run() -> None:
        for _ in range(5):
            y = functional.embedding(index, table)
            y = functional.gelu(functional.layer_norm(y + x, (32,)))
            y = functional.dropout(y, 0.1, training=True)
            functional.softmax(y, -1)
            functional.cross_entropy(y.flatten(0, 1), index.flatten())
            functional.rms_norm(y, (32,))

    return run


@workload
def attention() -> Run:
    q = _tensor(2, 4, 16, 16, grad=True, dtype=torch.bfloat16)

    def run() -> None:
        for _ in range(4):
            functional.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
        q.grad = None

    return run


@workload
def convolutions() -> Run:
    x, w = _tensor(2, 8, 8, 8), _tensor(8, 8, 3, 3)
    mean, var = torch.zeros(8, device="cuda"), torch.ones(8, device="cuda")

    def run() -> None:
        for _ in range(6):
            y = functional.conv2d(x, w, padding=1)
            y = functional.relu(functional.batch_norm(y, mean, var, training=True))
            functional.max_pool2d(y, 2)

    return run


@workload
def reductions() -> Run:
    x = _tensor(8, 32)

    def run() -> None:
        for _ in range(8):
            x.sum()
            x.mean(-1, keepdim=True)
            x.amax(0)
            x.norm()
            x.argmax(-1)

    return run


@workload
def allocations() -> Run:
    x = _tensor(64)

    def run() -> None:
        for size in range(1, 25):
            torch.empty(size * 100, device="cuda")
            torch.empty_like(x)
            x.new_empty((size, 8))

    return run


@workload
def creations() -> Run:
    x = _tensor(64)

    def run() -> None:
        for size in range(1, 17):
            torch.zeros(size * 100, device="cuda")
            torch.ones_like(x)
            torch.arange(size, device="cuda")
            torch.full((size,), 2.0, device="cuda")

    return run


@workload
def conversions() -> Run:
    x = _tensor(64)

    def run() -> None:
        for _ in range(12):
            y = x.to(torch.bfloat16)
            y.float().contiguous()
            x.to("cuda").to(x.dtype)
            x.clone().half()

    return run


@workload
def lists_of_tensors() -> Run:
    xs = [_tensor(16) for _ in range(60)]
    ys = [_tensor(16) for _ in range(60)]

    def run() -> None:
        torch._foreach_add_(xs, ys, alpha=0.1)
        torch._foreach_mul_(xs, 0.9)
        torch._foreach_copy_(xs, ys)
        torch._foreach_lerp_(xs, ys, 0.1)
        torch._foreach_norm(xs)

    return run
