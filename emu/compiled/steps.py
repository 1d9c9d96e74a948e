"""The computation of one launch of a Triton program, step by step.

A later launch with the same arguments does the same, as long as what it loads leads it the same way: only steps are
repeated whose numbers have changed since. Most of what a kernel computes at each step of an inference engine follows
from its arguments and from numbers in memory that stay, such as where a request's rows begin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from . import operations
from .places import Places

if TYPE_CHECKING:
    from torch import Tensor


class Value:
    """A number of all instances of a launch."""

    __slots__ = ("changed", "is_fixed", "tensor")

    def __init__(self, tensor: Tensor | None, *, is_fixed: bool = False) -> None:
        self.tensor = tensor
        """None: it is unknown."""
        self.is_fixed = is_fixed
        """It follows from the program and its arguments alone."""
        self.changed = False
        """It is another one than in the launch before."""


UNKNOWN = Value(None, is_fixed=True)


class Store(NamedTuple):
    """Elements that a launch stores."""

    places: Places
    values: Tensor | None
    """None: they are not known."""


class Otherwise(Exception):
    """Raised when a launch takes another way than the one whose steps are repeated."""


class MemoryReader(NamedTuple):
    """Reads device memory."""

    read: Callable[[Places, str], Tensor | None]
    """`read(places, element)`: the elements at these places; None if one of them is not known."""


class Computation:
    """Computes values from values."""

    __slots__ = ("_function", "found", "given")

    def __init__(
        self, function: Callable[..., Sequence[Tensor]], given: Sequence[Value], found: Sequence[Value]
    ) -> None:
        self._function, self.given, self.found = function, given, found

    def repeat(self) -> None:
        changed = _changed(self.given)
        if changed:
            tensors = self._function(*[one.tensor for one in self.given])
            for one, tensor in zip(self.found, tensors, strict=True):
                one.tensor = tensor
        for one in self.found:
            one.changed = changed


class Decision:
    """Decides which way the instances take."""

    __slots__ = ("_function", "_taken", "given")
    found: Sequence[Value] = ()

    def __init__(self, function: Callable[..., Tensor], given: Sequence[Value], taken: Tensor) -> None:
        self._function, self.given, self._taken = function, given, taken

    def repeat(self) -> None:
        """Raises Otherwise."""
        import torch

        if _changed(self.given) and not torch.equal(self._function(*[one.tensor for one in self.given]), self._taken):
            raise Otherwise


class Load:
    """Loads values from memory."""

    __slots__ = ("_inside", "_memory", "_places", "element", "found", "given")

    def __init__(self, memory: MemoryReader, element: str, given: Sequence[Value]) -> None:
        """`given`: the addresses; then, if it has them, the mask, and what masked elements are."""
        self._memory, self.element, self.given = memory, element, given
        self.found = (Value(None),)
        self._load()

    def _load(self) -> bool:
        """Returns whether the value is known."""
        mask = self.given[1].tensor if len(self.given) > 1 else None
        addresses: Any = self.given[0].tensor
        if mask is not None:
            addresses, mask = alike(addresses, mask)
            addresses = addresses[mask]
        self._places = Places(addresses, operations.dtype_of(self.element).itemsize)
        self._inside = self._memory.read(self._places, self.element)
        return self._finish()

    def _finish(self) -> bool:
        (value,) = self.found
        value.tensor = inside = self._inside
        if inside is None or len(self.given) == 1:
            return inside is not None
        mask: Any = self.given[1].tensor
        _, mask = alike(self.given[0].tensor, mask)
        value.tensor = result = inside.new_zeros(mask.shape)
        if len(self.given) > 2 and (other := self.given[2].tensor) is not None:
            result.copy_(other.expand(mask.shape))
        result[mask] = inside
        return True

    def repeat(self) -> None:
        """Raises Otherwise if it is no longer known, or has become known."""
        import torch

        (value,) = self.found
        was_known, value.changed = value.tensor is not None, True
        if _changed(self.given[:2]):
            is_known = self._load()
        else:
            before, self._inside = self._inside, self._memory.read(self._places, self.element)
            if before is not None and self._inside is not None and torch.equal(before, self._inside):
                value.changed = _changed(self.given)
            is_known = self._finish() if value.changed else True
        if is_known != was_known:
            raise Otherwise
        value.changed = value.changed and is_known


class Storing:
    """Stores values to memory."""

    __slots__ = ("_inside", "_item", "_places", "_shape", "given", "store")
    found: Sequence[Value] = ()

    def __init__(self, item: int, given: Sequence[Value]) -> None:
        """`given`: the addresses, the values, and perhaps a mask."""
        self._item, self.given = item, given
        self.store: Store | None = None
        """None: the mask leaves no element."""
        self._place()
        self._put()

    def _place(self) -> None:
        addresses: Any = self.given[0].tensor
        values = self.given[1].tensor
        self._inside: Tensor | None = None
        if len(self.given) > 2:
            mask: Any = self.given[2].tensor
            addresses, inside = alike(addresses, mask.expand(addresses.shape) if mask.shape[0] == 1 else mask)
            self._shape, self._inside, addresses = inside.shape, inside, addresses[inside]
        else:
            addresses, _ = alike(addresses, addresses if values is None else values)
            self._shape = addresses.shape
        self._places = Places(addresses.reshape(-1), self._item)

    def _put(self) -> None:
        values = self.given[1].tensor
        if values is not None:
            values = values.expand(self._shape)
            values = (values if self._inside is None else values[self._inside]).reshape(-1)
        self.store = Store(self._places, values) if self._places.addresses.numel() else None

    def repeat(self) -> None:
        placed = self.given[0].changed or _changed(self.given[2:])
        if placed:
            self._place()
        if placed or self.given[1].changed:
            self._put()


def _changed(values: Sequence[Value]) -> bool:
    for one in values:  # noqa: SIM110 (`any` takes three times as long)
        if one.changed:
            return True
    return False


AnyStep = Computation | Decision | Load | Storing


class Steps:
    """The steps of a launch, in order, without those that lead to no store and decide nothing."""

    def __init__(self, steps: Sequence[AnyStep], *, are_all: bool) -> None:
        """`are_all`: False if the launch may store elsewhere, too."""
        needed: set[int] = set()
        kept: list[AnyStep] = []
        for step in reversed(steps):
            # What an unknown number leads to is not among the steps: once it is known the launch is followed anew.
            is_unknown = isinstance(step, Load) and step.found[0].tensor is None
            if isinstance(step, Storing | Decision) or is_unknown or any(id(one) in needed for one in step.found):
                kept.append(step)
                needed.update(map(id, step.given))
        self._steps = kept[::-1]
        self.are_all = are_all

    @property
    def stores(self) -> list[Store]:
        return [step.store for step in self._steps if isinstance(step, Storing) and step.store is not None]

    @property
    def elements(self) -> int:
        """The elements of all values that are kept for a later launch."""
        values = {id(one): one.tensor for step in self._steps for one in (*step.given, *step.found)}
        return sum(tensor.numel() for tensor in values.values() if tensor is not None)

    def repeat(self) -> None:
        """Computes what the launch computes now. Raises Otherwise."""
        for step in self._steps:
            step.repeat()


def alike(*tensors: Tensor) -> Sequence[Tensor]:
    """Returns the tensors with the shape that they have together."""
    import torch

    if all(one.shape == tensors[0].shape for one in tensors):
        return tensors

    broadcast: Any = torch.broadcast_tensors  # untyped
    return broadcast(*tensors)
