"""Estimates how much a kernel covers, by its sizes, grid and name."""

from __future__ import annotations

from math import prod

from profiles.kernel_names.kernel_name import KernelName, item_nbytes
from profiles.signature import Kernel, elements


def said(what: Kernel) -> int:
    return sum(elements(shape) for shape in what.sizes if shape)


def largest(what: Kernel) -> int:
    return max((elements(shape) for shape in what.sizes), default=0)


def covered(what: Kernel, per_thread: int) -> int:
    return prod(what.grid) * prod(what.block) * per_thread


def item_of(name: KernelName) -> float:
    return item_nbytes(name.arguments[0] if name.arguments else name.text)
