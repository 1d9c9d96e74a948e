"""What the interpreter does between operators: calls, attributes, containers, contexts, module trees."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from .workload import Run, workload


@workload
def calls() -> Run:
    def leaf(value: int, scale: int = 2, *, offset: int = 1) -> int:
        return value * scale + offset

    def middle(*values: int, **options: int) -> int:
        return leaf(*values, **options) + leaf(values[0], offset=3)

    def outer(value: int) -> int:
        return middle(value, 3, offset=value) if value % 2 else leaf(value)

    def run() -> int:
        total = 0
        for value in range(400):
            total += outer(value)
        return total

    return run


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


@workload
def objects() -> Run:
    groups = [_Group(f"group{i}", (i + 1, 4, 8), _Kind.SHARDED if i % 3 else _Kind.WHOLE) for i in range(60)]

    def describe(group: _Group) -> str:
        return f"{group.name}: {group.numel} {group.kind.name}"

    def run() -> int:
        found: dict[Any, list[_Group]] = {}
        for group in groups:
            key = (group.kind, len(group.sizes), isinstance(group.extra, dict))
            found.setdefault(key, []).append(group)
        for members in found.values():
            ordered = sorted(members, key=lambda group: (-group.numel, group.name))
            numels = [group.numel for group in ordered if group.is_sharded() or hasattr(group, "extra")]
            for group, numel in zip(ordered, numels, strict=False):
                group.extra["offset"] = sum(numels[:3]) + numel
                if getattr(group, "missing", None) is not None or not describe(group):
                    raise AssertionError
        return len([replace(group, name="copy") for group in groups[::4]])

    return run


@workload
def contexts() -> Run:
    @contextlib.contextmanager
    def swapped(holder: dict[str, int], name: str) -> Iterator[int]:
        before = holder.get(name)
        holder[name] = 1
        try:
            yield 1
        finally:
            holder[name] = before or 0

    class Entered:
        def __enter__(self) -> Entered:
            return self

        def __exit__(self, *details: object) -> None:
            return None

    def wrapped(function: Any) -> Any:
        @functools.wraps(function)
        def call(*values: Any, **options: Any) -> Any:
            with Entered():
                return function(*values, **options)

        return call

    @wrapped
    def work(value: int, step: int = 1) -> int:
        return value + step

    def run() -> int:
        holder: dict[str, int] = {}
        total = 0
        for value in range(80):
            with swapped(holder, "state"), contextlib.nullcontext():
                total += work(value, step=2)
            with contextlib.ExitStack() as stack:
                stack.enter_context(swapped(holder, "other"))
                total += sum(item for item in (value, total, 3) if item)
        return total

    return run


@workload
def grad_modes() -> Run:
    @torch.no_grad()
    def decorated() -> None:
        return None

    def run() -> None:
        for _ in range(40):
            with torch.no_grad(), torch.autocast("cuda", torch.bfloat16, enabled=False):
                decorated()
            with torch.enable_grad(), torch.set_grad_enabled(True):
                decorated()

    return run


@workload
def trees() -> Run:
    tree = {"a": [1, (2, 3), {"b": 4}], "c": (5, [6, 7]), "d": {"e": {"f": [8, 9, 10]}}}

    def run() -> None:
        for _ in range(12):
            leaves, spec = pytree.tree_flatten(tree)
            pytree.tree_unflatten([leaf + 1 for leaf in leaves], spec)
            pytree.tree_map(lambda leaf: leaf * 2, tree)

    return run


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
    tree = nn.Sequential(*(_Stage() for _ in range(16)))
    return lambda: tree(1)


@workload
def parameter_walk() -> Run:
    tree = nn.Sequential(*(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2), _Through()) for _ in range(12)))

    def run() -> int:
        numel = sum(parameter.numel() for parameter in tree.parameters() if parameter.requires_grad)
        for name, parameter in tree.named_parameters():
            numel += len(name) + parameter.dim()
        for module in tree.modules():
            if isinstance(module, nn.Linear):
                numel += module.weight.shape[0]
                module.weight = module.weight
        tree.zero_grad()
        return numel

    return run
