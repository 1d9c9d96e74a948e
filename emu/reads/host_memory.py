"""Notes where the host's memory holds values that nobody computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .elements import MOST, Flags, addresses, flags_in, pieces
from .marked import Mark

if TYPE_CHECKING:
    from torch import Tensor

_MOST_PARTS = 1024
"""The most parts of one tensor's memory that are noted: beyond, all between the first and the last counts as one."""


_Parts = list[tuple[int, int, Mark]]
"""Parts of memory: addresses from and up to which nobody computed what is there, and where it comes from."""


@dataclass(slots=True)
class _Storage:
    """A tensor's memory."""

    alive: Any
    """A weak reference to the memory."""
    parts: _Parts = field(default_factory=list)


class HostMemory:
    """The memory of one process's CPU tensors, of which the program reads what it copied from the device, or made of
    that.
    """

    def __init__(self, at_first: Callable[[], None], on: Callable[[bool], None]) -> None:
        """`at_first` is called when there is such a value for the first time; `on` whenever there is one, or none."""
        self._at_first = at_first
        self._on = on
        self._seen_one = False
        self._storages: dict[int, _Storage] = {}
        """The storages with such values, by address."""
        self._look_after = 64

    def __bool__(self) -> bool:
        return bool(self._storages)

    def mark(self, tensor: Tensor, mark: Mark, flags: Flags | None = None) -> None:
        """Notes that nobody computed the values of this tensor of the host's; `flags`: of these elements, the others
        are known.
        """
        if not _in_host_memory(tensor):
            return
        at = _address(tensor)
        if not at:
            return
        storage = self._storages.get(at)
        if storage is None or storage.alive.expired():
            self._forget_dead()
            storage = self._storages[at] = _Storage(reference(tensor))
            if len(self._storages) == 1:
                self._on(True)
        parts = self._known_apart(storage.parts, tensor)
        unknown = [_span(tensor)] if flags is None else pieces(tensor, flags)
        parts += [(first, last, mark) for first, last in unknown]
        if len(parts) > _MOST_PARTS:
            parts = [(min(one[0] for one in parts), max(one[1] for one in parts), mark)]
        storage.parts = parts
        if not self._seen_one:
            self._seen_one = True
            self._at_first()

    def clear(self, tensor: Tensor) -> None:
        """Notes that all values of the tensor are known now."""
        if not self._storages:
            return
        at = _address(tensor)
        storage = self._storages.get(at)
        if storage is None:
            return
        storage.parts = self._known_apart(storage.parts, tensor)
        if not storage.parts:
            del self._storages[at]
            if not self._storages:
                self._on(False)

    def find(self, tensor: Tensor) -> Mark | None:
        """Returns where a value in the tensor comes from that nobody computed; None if all are known."""
        storage = self._storages.get(_address(tensor)) if self._storages and _in_host_memory(tensor) else None
        if storage is None or storage.alive.expired():
            return None
        first, last = _span(tensor)
        found = next((mark for begin, end, mark in storage.parts if begin < last and first < end), None)
        if found is None or tensor.is_contiguous() or tensor.numel() > MOST:
            return found
        overlap = _overlap(storage.parts)
        return found if any(overlap(*one) for one in _elements(tensor)) else None

    def flags(self, tensor: Tensor) -> Flags | None:
        """Returns which elements nobody computed, if there is one; None: all of them."""
        storage = self._storages.get(_address(tensor))
        return None if storage is None else flags_in(tensor, _overlap(storage.parts))

    def _known_apart(self, parts: _Parts, tensor: Tensor) -> _Parts:
        """Returns the parts without the tensor's elements."""
        if tensor.is_contiguous() or tensor.numel() == 1:
            return _without(parts, *_span(tensor))
        first, last = _span(tensor)
        if tensor.numel() <= MOST and any(begin < last and first < end for begin, end, _ in parts):
            for begin, nbytes in _elements(tensor):
                parts = _without(parts, begin, begin + nbytes)
        return parts

    def find_in(self, values: Iterable[Any]) -> Mark | None:
        """Returns the mark of the first of these tensors, or of those in lists of them, that has such a value; None if
        none has.
        """
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


def _overlap(parts: _Parts) -> Callable[[int, int], int]:
    """Returns a function that counts how many of some bytes are in the parts."""
    return lambda first, nbytes: sum(max(0, min(end, first + nbytes) - max(begin, first)) for begin, end, _ in parts)


def _elements(tensor: Tensor) -> Iterator[tuple[int, int]]:
    item = tensor.element_size()
    return ((address, item) for address in addresses(tensor))


def _without(parts: _Parts, first: int, last: int) -> _Parts:
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
    """Returns the address of a tensor's memory; 0 if it has none, as tensors that only tell shapes."""
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


def reference(tensor: Tensor) -> Any:
    """Returns a weak reference to a tensor's memory."""
    from torch.multiprocessing.reductions import StorageWeakRef

    return StorageWeakRef(tensor.untyped_storage())
