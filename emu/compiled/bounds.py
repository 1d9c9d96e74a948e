"""Bounds of what integer operations of Triton's programs give, from bounds of their operands."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ..formats.ttir import Operation, Type
from . import operations
from .integer_stores import INTEGERS, NotEvaluated

if TYPE_CHECKING:
    from torch import Tensor


class Bounds(NamedTuple):
    """The bounds of a value, int64 and [lanes, pieces]; either is 1 where all have the same. A boolean is 0 or 1.

    Both are the same tensor if the value is known.
    """

    lowest: Tensor
    highest: Tensor

    @property
    def is_known(self) -> bool:
        return self.lowest is self.highest


def known(value: int) -> Bounds:
    """Returns a number that all lanes and pieces have."""
    import torch

    return exactly(torch.tensor([[value]], dtype=torch.int64, device="cpu"))


def exactly(tensor: Tensor) -> Bounds:
    """Returns a value that is known, [lanes, pieces]."""
    return Bounds(tensor, tensor)


def same(value: Bounds) -> Bounds:
    """Returns a value whose bounds are one tensor if they are equal."""
    import torch

    return exactly(value.lowest) if torch.equal(value.lowest, value.highest) else value


def checked(operation: Operation, value: Bounds) -> Bounds:
    """Raises NotEvaluated if a bound is no number of the result's type: the program would compute another one."""
    kind = operation.types[-1]
    is_address = operation.types[0].is_pointer or kind.is_pointer
    if is_address or kind.element in ("i1", "i64") or kind.element not in INTEGERS:
        return value
    most = 1 << (int(kind.element[1:]) - 1)
    if int(value.lowest.min()) < -most or int(value.highest.max()) >= most:
        raise NotEvaluated(f"numbers that wrap around: {operation.text}")
    return value


def _monotone(function: Callable[..., Tensor]) -> Callable[..., Bounds]:
    """Returns the bounds of a function that grows with all its operands."""

    def bounds(_: Operation, *values: Bounds) -> Bounds:
        low = function(*(value.lowest for value in values))
        return Bounds(low, low if all(v.is_known for v in values) else function(*(value.highest for value in values)))

    return bounds


def _constant(operation: Operation) -> Bounds | None:
    """None: it is no integer."""
    kind = operation.types[-1] if operation.types else Type((), "i1", False)
    if kind.element not in INTEGERS:
        return None
    value = operations.constant(operation)
    return known(int(value.flatten()[0]))


def added(operation: Operation, a: Bounds, b: Bounds) -> Bounds:
    if operation.types[-1].element == "i1":
        raise NotEvaluated("a sum of bits")
    low = a.lowest + b.lowest
    return Bounds(low, low if a.is_known and b.is_known else a.highest + b.highest)


def _subtracted(operation: Operation, a: Bounds, b: Bounds) -> Bounds:
    return added(operation, a, _negative(b))


def _negative(a: Bounds) -> Bounds:
    low = -a.highest
    return Bounds(low, low if a.is_known else -a.lowest)


def _multiplied(_: Operation, a: Bounds, b: Bounds) -> Bounds:
    import torch

    if a.is_known and b.is_known:
        return exactly(a.lowest * b.lowest)
    products = torch.stack(torch.broadcast_tensors(*(one * other for one in a for other in b)))
    return Bounds(products.amin(0), products.amax(0))


def _divisor(b: Bounds) -> Tensor:
    if not b.is_known or bool((b.lowest <= 0).any()):
        raise NotEvaluated("a divisor that is not known to be positive")
    return b.lowest


def _divided(_: Operation, a: Bounds, b: Bounds) -> Bounds:
    import torch

    by = _divisor(b)
    return _monotone(lambda x: torch.div(x, by, rounding_mode="trunc"))(_, a)


def _remainder(_: Operation, a: Bounds, b: Bounds) -> Bounds:
    import torch

    by = _divisor(b)
    if a.is_known:
        return exactly(torch.fmod(a.lowest, by))
    is_one_turn = (a.lowest >= 0) & (a.lowest // by == a.highest // by)
    low = torch.where(is_one_turn, a.lowest % by, torch.where(a.lowest < 0, 1 - by, 0))
    return Bounds(low, torch.where(is_one_turn, a.highest % by, torch.where(a.highest > 0, by - 1, 0)))


def _unsigned(function: Callable[..., Bounds]) -> Callable[..., Bounds]:
    def bounds(operation: Operation, *values: Bounds) -> Bounds:
        if any(bool((value.lowest < 0).any()) for value in values):
            raise NotEvaluated("large unsigned integers")
        return function(operation, *values)

    return bounds


def _compared(operation: Operation, a: Bounds, b: Bounds) -> Bounds:
    how = operation.text.split(None, 2)[1].rstrip(",")
    if how.startswith("u"):
        return _unsigned_relation(how[1:], a, b)
    if how.startswith("s") and operation.types[0].element == "i1":
        raise NotEvaluated("an order of bits")
    return _relation(how.removeprefix("s"), a, b)


def _unsigned_relation(how: str, a: Bounds, b: Bounds) -> Bounds:
    """Negative numbers are larger than all others."""
    import torch

    if a.is_known and b.is_known:
        lowest = torch.iinfo(torch.int64).min
        return _relation(how, exactly(a.lowest ^ lowest), exactly(b.lowest ^ lowest))
    found, is_certain = _relation(how, a, b), (a.lowest >= 0) & (b.lowest >= 0)
    return Bounds(torch.where(is_certain, found.lowest, 0), torch.where(is_certain, found.highest, 1))


def _relation(how: str, a: Bounds, b: Bounds) -> Bounds:
    if how in ("gt", "ge"):
        return _relation("l" + how[1], b, a)
    if how == "ne":
        return _not(_relation("eq", a, b))
    is_known = a.is_known and b.is_known
    if how == "eq":
        certain = (a.lowest == b.highest) & (a.highest == b.lowest)
        possible = certain if is_known else (a.lowest <= b.highest) & (b.lowest <= a.highest)
    elif how == "lt":
        certain = a.highest < b.lowest
        possible = certain if is_known else a.lowest < b.highest
    else:
        certain = a.highest <= b.lowest
        possible = certain if is_known else a.lowest <= b.highest
    low = certain.long()
    return Bounds(low, low if is_known else possible.long())


def _not(a: Bounds) -> Bounds:
    low = 1 - a.highest
    return Bounds(low, low if a.is_known else 1 - a.lowest)


def _logical(how: str) -> Callable[..., Bounds | None]:
    """Returns the function for an operation on bits; on numbers, these must be known."""

    def bounds(operation: Operation, a: Bounds, b: Bounds) -> Bounds | None:
        import torch

        is_known = a.is_known and b.is_known
        if operation.types[-1].element != "i1" and not is_known:
            raise NotEvaluated("bits of a number that is not known")
        function = getattr(torch, f"bitwise_{how}")
        low = function(a.lowest, b.lowest)
        if is_known:
            return exactly(low)
        if how == "xor":
            certain = (a.lowest == a.highest) & (b.lowest == b.highest)
            return Bounds(torch.where(certain, low, 0), torch.where(certain, low, 1))
        return Bounds(low, function(a.highest, b.highest))

    return bounds


def selected(_: Operation, condition: Bounds, a: Bounds, b: Bounds) -> Bounds:
    import torch

    if condition.is_known:
        yes = condition.lowest == 1
        low = torch.where(yes, a.lowest, b.lowest)
        return Bounds(low, low if a.is_known and b.is_known else torch.where(yes, a.highest, b.highest))
    yes, no = condition.lowest == 1, condition.highest == 0
    low = torch.where(yes, a.lowest, torch.where(no, b.lowest, torch.minimum(a.lowest, b.lowest)))
    return Bounds(low, torch.where(yes, a.highest, torch.where(no, b.highest, torch.maximum(a.highest, b.highest))))


def _widened(operation: Operation, a: Bounds) -> Bounds | None:
    """`arith.extui`, and `arith.extsi`, for which a bit is 0 or -1."""
    if operation.name == "arith.extsi" and operation.types[0].element == "i1":
        return _negative(a)
    return a if operation.name == "arith.extsi" else _unsigned(lambda _, x: x)(operation, a)


def _narrowed(operation: Operation, a: Bounds) -> Bounds:
    import torch

    if operation.types[-1].element != "i1":
        return a
    if a.is_known:
        return exactly(a.lowest & 1)
    certain = a.lowest == a.highest
    return Bounds(torch.where(certain, a.lowest & 1, 0), torch.where(certain, a.lowest & 1, 1))


def _advanced(operation: Operation, pointer: Bounds, offset: Bounds) -> Bounds:
    item = operations.dtype_of(operation.types[0].element).itemsize
    low = pointer.lowest + offset.lowest * item
    is_known = pointer.is_known and offset.is_known
    return Bounds(low, low if is_known else pointer.highest + offset.highest * item)


def _pointed(operation: Operation, value: Bounds) -> Bounds | None:
    """A pointer to another type, such as to the bytes that bits are stored in."""
    return value if operation.types[-1].is_pointer else None


def _first(_: Operation, value: Bounds) -> Bounds:
    return value


@functools.cache
def transfers() -> dict[str, Callable[..., Bounds | None]]:
    import torch

    lowest, highest = _monotone(torch.minimum), _monotone(torch.maximum)
    return {
        "arith.constant": _constant,
        "arith.addi": added,
        "arith.subi": _subtracted,
        "arith.muli": _multiplied,
        "arith.divsi": _divided,
        "arith.remsi": _remainder,
        "arith.divui": _unsigned(_divided),
        "arith.remui": _unsigned(_remainder),
        "arith.minsi": lowest,
        "arith.maxsi": highest,
        "arith.minui": _unsigned(lowest),
        "arith.maxui": _unsigned(highest),
        "arith.cmpi": _compared,
        "arith.andi": _logical("and"),
        "arith.ori": _logical("or"),
        "arith.xori": _logical("xor"),
        "arith.select": selected,
        "arith.extsi": _widened,
        "arith.extui": _widened,
        "arith.trunci": _narrowed,
        "arith.index_cast": _first,
        "tt.bitcast": _pointed,
        "tt.splat": _first,
        "tt.broadcast": _first,
        "tt.addptr": _advanced,
    }
