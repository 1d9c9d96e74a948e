"""Workloads of the interpreter's work between operators, in the midst of training steps: calls, objects, contexts,
walks.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from .model import Model, blocks, step_of
from .workload import Run, workload


def _leaf(value: int, scale: int = 2, *, offset: int = 1) -> int:
    return value * scale + offset


def _middle(*values: int, **options: int) -> int:
    return _leaf(*values, **options) + _leaf(values[0], offset=3)


def _outer(value: int) -> int:
    return _middle(value, 3, offset=value) if value % 2 else _leaf(value)


@workload
def calls() -> Run:
    def around(layer: nn.Module, x: Tensor) -> Any:
        total = 0
        for value in range(150):
            total += _outer(value)
        return layer(x) if total else x

    return step_of(Model(blocks(4), around).cuda().bfloat16())


class _Kind(Enum):
    SHARDED = 1
    WHOLE = 2


@dataclass
class _Group:
    name: str
    sizes: tuple[int, ...]
    kind: _Kind = _Kind.WHOLE
    extra: dict[str, int] = field(default_factory=dict)

    @property
    def numel(self) -> int:
        total = 1
        for size in self.sizes:
            total *= size
        return total

    def is_sharded(self) -> bool:
        return self.kind is _Kind.SHARDED


def _describe(group: _Group) -> str:
    return f"{group.name}: {group.numel} {group.kind.name}"


def _sorted_out(groups: list[_Group]) -> int:
    found: dict[Any, list[_Group]] = {}
    for group in groups:
        key = (group.kind, len(group.sizes), isinstance(group.extra, dict))
        found.setdefault(key, []).append(group)
    for members in found.values():
        ordered = sorted(members, key=lambda group: (-group.numel, group.name))
        numels = [group.numel for group in ordered if group.is_sharded() or hasattr(group, "extra")]
        for group, numel in zip(ordered, numels, strict=False):
            group.extra["offset"] = sum(numels[:3]) + numel
            if getattr(group, "missing", None) is not None or not _describe(group):
                raise AssertionError
    return len([replace(group, name="copy") for group in groups[::4]])


@workload
def objects() -> Run:
    groups = [_Group(f"group{i}", (i + 1, 4, 8), _Kind.SHARDED if i % 3 else _Kind.WHOLE) for i in range(40)]

    def around(layer: nn.Module, x: Tensor) -> Any:
        return layer(x) if _sorted_out(groups) else x

    return step_of(Model(blocks(4), around).cuda().bfloat16())


@contextlib.contextmanager
def _swapped(holder: dict[str, int], name: str) -> Iterator[int]:
    before = holder.get(name)
    holder[name] = 1
    try:
        yield 1
    finally:
        holder[name] = before or 0


class _Entered:
    def __enter__(self) -> _Entered:
        return self

    def __exit__(self, *details: object) -> None:
        return None


def _wrapped(function: Any) -> Any:
    @functools.wraps(function)
    def call(*values: Any, **options: Any) -> Any:
        with _Entered():
            return function(*values, **options)

    return call


@_wrapped
def _work(value: int, step: int = 1) -> int:
    return value + step


@workload
def contexts() -> Run:
    holder: dict[str, int] = {}

    def around(layer: nn.Module, x: Tensor) -> Any:
        total = 0
        for value in range(20):
            with _swapped(holder, "state"), contextlib.nullcontext():
                total += _work(value, step=2)
            with contextlib.ExitStack() as stack:
                stack.enter_context(_swapped(holder, "other"))
                total += sum(item for item in (value, total, 3) if item)
        return layer(x)

    return step_of(Model(blocks(4), around).cuda().bfloat16())


@torch.no_grad()
def _without_gradients() -> None:
    return None


@workload
def modes() -> Run:
    def around(layer: nn.Module, x: Tensor) -> Any:
        for _ in range(10):
            with torch.no_grad(), torch.autocast("cuda", torch.bfloat16, enabled=False):
                _without_gradients()
            with torch.enable_grad(), torch.set_grad_enabled(True):
                _without_gradients()
        return layer(x)

    return step_of(Model(blocks(4), around).cuda().bfloat16())


@workload
def trees() -> Run:
    tree = {"a": [1, (2, 3), {"b": 4}], "c": (5, [6, 7]), "d": {"e": {"f": [8, 9, 10]}}}

    def around(layer: nn.Module, x: Tensor) -> Any:
        for _ in range(3):
            leaves, spec = pytree.tree_flatten(tree)
            pytree.tree_unflatten([leaf + 1 for leaf in leaves], spec)
            pytree.tree_map(lambda leaf: leaf * 2, tree)
        return layer(x)

    return step_of(Model(blocks(4), around).cuda().bfloat16())


class _Through(nn.Module):
    def forward(self, value: Any, scale: float = 1.0) -> Any:
        return value


class _Stage(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = _Through(), _Through()
        self.inner = nn.Sequential(_Through(), _Through())

    def forward(self, value: Any) -> Any:
        value = self.first(value, scale=2.0)
        return self.second(self.inner(value))


@workload
def module_tree() -> Run:
    tree = nn.Sequential(*(_Stage() for _ in range(12)))

    def around(layer: nn.Module, x: Tensor) -> Any:
        return layer(tree(x))

    return step_of(Model(blocks(4), around).cuda().bfloat16())


@workload
def parameter_walk() -> Run:
    model = Model(blocks(5)).cuda().bfloat16()

    def walk() -> int:
        numel = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
        for name, parameter in model.named_parameters():
            numel += len(name) + parameter.dim()
        for module in model.modules():
            if isinstance(module, nn.Linear):
                numel += module.weight.shape[0]
                module.weight = module.weight
        return numel

    return step_of(model, then=walk)
