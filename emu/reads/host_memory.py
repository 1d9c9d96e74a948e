"""Where the host's memory holds values that nobody computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .marked import Mark

if TYPE_CHECKING:
    from torch import Tensor

_MOST_PARTS = 256
"""Of one tensor's memory: beyond, all between the first and the last counts as one."""


@dataclass(slots=True)
class _Storage:
    """A tensor's memory."""

    alive: Any
    """A weak reference to it."""
    parts: list[tuple[int, int, Mark]] = field(default_factory=list)
    """Addresses from and up to which nobody computed what is there."""


class HostMemory:
    """Of one process: CPU tensors, of which the program reads what it copied from the device, or made of that."""

    def __init__(self, at_first: Callable[[], None], on: Callable[[bool], None]) -> None:
        """`at_first` is called when there is such a value for the first time; `on` whenever there is one, or none."""
        self._at_first = at_first
        self._on = on
        self._seen_one = False
        self._storages: dict[int, _Storage] = {}
        """By address."""
        self._look_after = 64

    def __bool__(self) -> bool:
        return bool(self._storages)

    def mark(self, tensor: Tensor, mark: Mark) -> None:
        """Nobody computed the values of this tensor of the host's."""
        if not _in_host_memory(tensor):
            return
        at = _address(tensor)
        if not at:
            return
        storage = self._storages.get(at)
        if storage is None or storage.alive.expired():
            self._forget_dead()
            storage = self._storages[at] = _Storage(_reference(tensor))
            if len(self._storages) == 1:
                self._on(True)
        first, last = _span(tensor)
        parts = _without(storage.parts, first, last)
        parts.append((first, last, mark))
        if len(parts) > _MOST_PARTS:
            parts = [(min(one[0] for one in parts), max(one[1] for one in parts), mark)]
        storage.parts = parts
        if not self._seen_one:
            self._seen_one = True
            self._at_first()

    def clear(self, tensor: Tensor) -> None:
        """All of its values are known now."""
        if not self._storages:
            return
        at = _address(tensor)
        storage = self._storages.get(at)
        if storage is None or not (tensor.is_contiguous() or tensor.numel() == 1):
            return
        storage.parts = _without(storage.parts, *_span(tensor))
        if not storage.parts:
            del self._storages[at]
            if not self._storages:
                self._on(False)

    def find(self, tensor: Tensor) -> Mark | None:
        """Where a value in it comes from that nobody computed; None if all are known."""
        storage = self._storages.get(_address(tensor)) if self._storages and _in_host_memory(tensor) else None
        if storage is None or storage.alive.expired():
            return None
        first, last = _span(tensor)
        return next((mark for begin, end, mark in storage.parts if begin < last and first < end), None)

    def find_in(self, values: Iterable[Any]) -> Mark | None:
        """In one of these tensors, or in lists of them."""
        import torch

        for value in values:
            if isinstance(value, torch.Tensor):
                found = self.find(value)
            elif isinstance(value, (list, tuple)):
                found = self.find_in(value)
            else:
                continue
            if found is not None:
                return found
        return None

    def _forget_dead(self) -> None:
        if len(self._storages) < self._look_after:
            return
        self._storages = {at: one for at, one in self._storages.items() if not one.alive.expired()}
        self._look_after = max(64, 2 * len(self._storages))


def _without(parts: list[tuple[int, int, Mark]], first: int, last: int) -> list[tuple[int, int, Mark]]:
    left = []
    for begin, end, mark in parts:
        if begin < first:
            left.append((begin, min(end, first), mark))
        if last < end:
            left.append((max(begin, last), end, mark))
    return left


def _in_host_memory(tensor: Tensor) -> bool:
    import torch

    return tensor.device.type == "cpu" and tensor.layout == torch.strided


def _address(tensor: Tensor) -> int:
    """Of its memory; 0 if it has none, as tensors that only tell shapes."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        return 0


def _span(tensor: Tensor) -> tuple[int, int]:
    first = tensor.data_ptr()
    if not tensor.numel():
        return first, first
    reach = sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))
    return first, first + (reach + 1) * tensor.element_size()


def _reference(tensor: Tensor) -> Any:
    from torch.multiprocessing.reductions import StorageWeakRef

    return StorageWeakRef(tensor.untyped_storage())
