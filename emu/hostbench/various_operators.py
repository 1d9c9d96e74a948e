"""Programs of few or of many different operators, pointwise ones or others, without a model around them.

What an operator takes that has not run for a while can only be told from what any operator takes where the programs
differ in how many operators they run before they come back to one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from .model import WIDTH
from .workload import Run, operators_alone, phase_ends

Step = Callable[[Tensor], Tensor]
POSITIONS = 16


def pointwise() -> list[Step]:
    return [
        torch.exp,
        torch.expm1,
        torch.sin,
        torch.cos,
        torch.tanh,
        torch.sigmoid,
        torch.erf,
        torch.erfc,
        torch.atan,
        torch.asinh,
        functional.softplus,
        functional.elu,
        functional.celu,
        functional.selu,
        functional.mish,
        functional.silu,
        functional.gelu,
        functional.hardswish,
        functional.hardsigmoid,
        functional.hardtanh,
        functional.logsigmoid,
        functional.leaky_relu,
        functional.relu6,
        functional.softsign,
        functional.tanhshrink,
        functional.softshrink,
        functional.hardshrink,
        torch.square,
        torch.abs,
        torch.neg,
        lambda x: x.clamp(-1, 1),
        lambda x: x * 0.5,
        lambda x: x + 1.0,
        lambda x: 1.0 - x,
        lambda x: x / 3.0,
        lambda x: x.pow(2),
        lambda x: torch.maximum(x, -x),
        lambda x: torch.lerp(x, x, 0.3),
        lambda x: torch.where(x > 0, x, 0.1),
        lambda x: torch.addcmul(x, x, x),
    ]


def others() -> list[Step]:
    """Reductions, norms, products, gathers, copies."""
    w = torch.randn(WIDTH, WIDTH, device="cuda") * 0.01
    bias, at = torch.zeros(WIDTH, device="cuda"), torch.arange(POSITIONS, device="cuda")
    half, shape = WIDTH // 2, (2, POSITIONS, WIDTH)
    return [
        lambda x: x.softmax(-1),
        lambda x: x.log_softmax(-1),
        lambda x: functional.layer_norm(x, (WIDTH,)),
        lambda x: functional.group_norm(x, 4),
        lambda x: functional.normalize(x, dim=-1),
        lambda x: x.roll(1, 1),
        lambda x: x.flip(1),
        lambda x: torch.cat((x[..., half:], x[..., :half]), -1),
        lambda x: torch.stack((x, x)).sum(0),
        lambda x: x.cumsum(-1),
        lambda x: x + x.mean(-1, keepdim=True),
        lambda x: x + x.sum(1, keepdim=True),
        lambda x: x + x.var(-1, keepdim=True),
        lambda x: x + x.amax(-1, keepdim=True),
        lambda x: x + x.logsumexp(-1, keepdim=True),
        lambda x: x.sort(-1).values,
        lambda x: x.index_select(1, at),
        lambda x: x[:, at],
        lambda x: x.gather(-1, at.expand(2, POSITIONS, POSITIONS)).repeat(1, 1, WIDTH // POSITIONS),
        lambda x: functional.linear(x, w),
        lambda x: x @ w,
        lambda x: torch.bmm(x, w.expand(2, WIDTH, WIDTH)),
        lambda x: torch.einsum("bij,jk->bik", x, w),
        lambda x: torch.addmm(bias, x.flatten(0, 1), w).view(shape),
        lambda x: x.tril(),
        lambda x: x.triu(),
        lambda x: functional.pad(x, (1, 1))[..., 1:-1],
        lambda x: functional.dropout(x, 0.1),
        lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
        lambda x: x.masked_fill(x > 2, 0.0),
        lambda x: functional.conv1d(x.transpose(1, 2), w[:, :, None]).transpose(1, 2),
        lambda x: functional.avg_pool1d(x, 3, 1, 1),
        lambda x: functional.rms_norm(x, (WIDTH,)),
        lambda x: x + x.norm(dim=-1, keepdim=True),
        lambda x: functional.glu(torch.cat((x, x), -1)),
        lambda x: x.repeat_interleave(2, -1)[..., ::2],
        lambda x: functional.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None])[:, 0],
        lambda x: x.unfold(-1, WIDTH, WIDTH)[..., 0, :],
        lambda x: x.cumprod(-1),
        lambda x: functional.interpolate(x, WIDTH),
    ]


def _chain(steps: Sequence[Step], times: int) -> Run:
    """Forward and backward of the steps, one after the other, so often."""
    scale = nn.Parameter(torch.ones(WIDTH, device="cuda"))
    x = torch.rand(2, POSITIONS, WIDTH, device="cuda")

    def run() -> None:
        y = x * scale
        for _ in range(times):
            for step in steps:
                y = step(y)
        loss = y.sum()
        phase_ends("forward")
        loss.backward()
        phase_ends("backward")
        scale.grad = None

    return run


def _layers(*makes: Callable[[], nn.Module], times: int) -> Run:
    model = nn.Sequential(*(make() for _ in range(times) for make in makes)).cuda()
    x = torch.rand(2, POSITIONS, WIDTH, device="cuda")

    def run() -> None:
        loss = model(x).sum()
        phase_ends("forward")
        loss.backward()
        phase_ends("backward")
        model.zero_grad()
        phase_ends("zero_grad")

    return run


@operators_alone
def pointwise_40() -> Run:
    return _chain(pointwise(), 2)


@operators_alone
def pointwise_8() -> Run:
    return _chain(pointwise()[:8], 10)


@operators_alone
def others_40() -> Run:
    return _chain(others(), 2)


@operators_alone
def others_20() -> Run:
    return _chain(others()[::2], 3)


@operators_alone
def others_8() -> Run:
    return _chain(others()[::5], 8)


@operators_alone
def other_others_8() -> Run:
    return _chain(others()[2::5], 8)


@operators_alone
def all_80() -> Run:
    return _chain(pointwise() + others(), 1)


@operators_alone
def mixed_10() -> Run:
    return _chain(pointwise()[::8] + others()[::8], 6)


@operators_alone
def linear_layers() -> Run:
    return _layers(lambda: nn.Linear(WIDTH, WIDTH), nn.ReLU, times=24)


@operators_alone
def products() -> Run:
    return _layers(lambda: nn.Linear(WIDTH, WIDTH, bias=False), times=32)


@operators_alone
def norm_layers() -> Run:
    return _layers(lambda: nn.LayerNorm(WIDTH), nn.GELU, times=24)
