"""Training steps of small models, each with more of one kind of work than the others.

Loops over one operator keep the processor's caches and its branch prediction warm, which a training step never does:
there the same launch takes twice as long. So what a kind of work costs is taken mostly from these programs.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from .model import WIDTH, Model, blocks, step_of, tokens
from .workload import Run, phase_ends, workload


@workload
def transformer() -> Run:
    return step_of(Model(blocks(8)).cuda().bfloat16())


@workload
def transformer_autocast() -> Run:
    return step_of(Model(blocks(8, dropout=0.1)).cuda(), autocast=True)


@workload
def transformer_forward() -> Run:
    model, x = Model(blocks(12)).cuda().bfloat16(), tokens()

    def run() -> None:
        with torch.no_grad():
            model(x)

    return run


@workload
def recomputation() -> Run:
    def around(layer: nn.Module, x: Tensor) -> Any:
        return checkpoint(layer, x, use_reentrant=False)

    return step_of(Model(blocks(6), around).cuda().bfloat16())


class _ByHand(nn.Module):
    """Normalisation, rotation and gating written as single operators."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))
        self.up, self.gate = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = x.float()
        y = (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight
        a, b = y.chunk(2, -1)
        y = torch.cat((a * 0.5 - b, b * 0.5 + a), -1)
        return x + self.up(y) * functional.silu(self.gate(y))


@workload
def small_operators() -> Run:
    return step_of(Model([_ByHand() for _ in range(10)]).cuda().bfloat16())


class _Reshaped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        y = self.linear(x).view(b, t, 4, -1).transpose(1, 2).unsqueeze(1).expand(b, 2, 4, t, -1)
        y = y[:, 0].permute(0, 2, 1, 3).flatten(2).reshape(b * t, -1).view(b, t, -1)
        first, second = y.split(WIDTH // 2, -1)
        return x + torch.cat((second, first), -1).narrow(-1, 0, WIDTH)


@workload
def reshapes() -> Run:
    return step_of(Model([_Reshaped() for _ in range(12)]).cuda().bfloat16())


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        ctx.save_for_backward(x)
        return x * scale

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (_,) = ctx.saved_tensors
        return grad * ctx.scale, None


@workload
def custom_functions() -> Run:
    def around(layer: nn.Module, x: Tensor) -> Any:
        for _ in range(3):
            x = _Scaled.apply(x, 0.5)
        return layer(x)

    return step_of(Model(blocks(4), around).cuda().bfloat16())


class _Record:
    """The record that a framework keeps of a module's parameters, and its work before and after the module runs."""

    def __init__(self, module: nn.Module) -> None:
        self.parameters = list(module.parameters(recurse=False))
        self.state: dict[int, dict[str, Any]] = {}
        self.name = type(module).__name__

    @property
    def numel(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters)

    def before(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        for parameter in self.parameters:
            entry = self.state.setdefault(id(parameter), {"shape": tuple(parameter.shape), "uses": 0})
            if parameter.requires_grad and isinstance(entry, dict) and parameter.device.type == "cuda":
                entry["uses"] += 1
        if self.numel < 0 or not self._wanted(module, training=module.training):
            raise AssertionError

    def _wanted(self, module: nn.Module, *, training: bool = True) -> bool:
        return training and hasattr(module, "forward") and getattr(module, "skipped", None) is None

    def after(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        with self._swapped("name"), contextlib.nullcontext():
            return output

    def accumulated(self, parameter: Tensor) -> None:
        with torch.no_grad():
            self.state[id(parameter)]["uses"] -= 1
            self.before_all(parameter)

    def before_all(self, parameter: Tensor) -> list[int]:
        return [entry["uses"] for entry in self.state.values() if entry["shape"] == tuple(parameter.shape)]

    @contextlib.contextmanager
    def _swapped(self, name: str) -> Any:
        before = getattr(self, name)
        try:
            yield before
        finally:
            setattr(self, name, before)


def _hooked(model: nn.Module) -> nn.Module:
    for module in model.modules():
        record = _Record(module)
        module.register_forward_pre_hook(record.before)
        module.register_forward_hook(record.after)
        for parameter in record.parameters:
            parameter.register_post_accumulate_grad_hook(record.accumulated)
    return model


@workload
def module_hooks() -> Run:
    return step_of(_hooked(Model(blocks(8)).cuda().bfloat16()))


@workload
def gradient_hooks() -> Run:
    model = Model(blocks(8)).cuda().bfloat16()
    seen: list[int] = []
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: gradient)
        parameter.register_post_accumulate_grad_hook(lambda parameter: seen.append(parameter.numel()))

    return step_of(model, then=seen.clear)


@workload
def ranges() -> Run:
    def around(layer: nn.Module, x: Tensor) -> Any:
        with torch.profiler.record_function("layer"):
            for _ in range(3):
                with torch.profiler.record_function("part"):
                    x = x * 1.0
            return layer(x)

    return step_of(Model(blocks(6), around).cuda().bfloat16())


@workload
def convolutions() -> Run:
    def block() -> nn.Module:
        return nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())

    model = nn.Sequential(*(block() for _ in range(16)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 8)).cuda()
    x, y = torch.randn(2, 16, 8, 8, device="cuda"), torch.zeros(2, dtype=torch.int64, device="cuda")

    def run() -> None:
        loss = functional.cross_entropy(model(x), y)
        phase_ends("forward")
        loss.backward()
        phase_ends("backward")
        model.zero_grad()
        phase_ends("zero_grad")

    return run


@workload
def sorting() -> Run:
    """Runs operators of many launches and fills."""
    keys = torch.arange(1 << 16, device="cuda").flip(0)

    def around(layer: nn.Module, x: Tensor) -> Any:
        torch.sort(keys)
        return layer(x)

    return step_of(Model(blocks(4), around).cuda().bfloat16())


@workload
def in_place() -> Run:
    total = torch.zeros(2, 16, WIDTH, device="cuda", dtype=torch.bfloat16)

    def around(layer: nn.Module, x: Tensor) -> Any:
        with torch.no_grad():
            for _ in range(4):
                total.mul_(0.5).add_(x, alpha=0.1)
                total.zero_()
        return layer(x)

    return step_of(Model(blocks(6), around).cuda().bfloat16())


@workload
def backward_passes() -> Run:
    """Runs many short backward passes: autograd's thread is woken for each."""
    x = torch.randn(64, device="cuda", requires_grad=True)

    def run() -> None:
        for _ in range(20):
            (x * 2.0).sum().backward()
        x.grad = None

    return run
