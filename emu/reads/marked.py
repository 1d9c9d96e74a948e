"""Numbers that nobody computed, and what Python makes of them.

Such a number is an object of a subclass of `float`, or of one of numpy's floating-point numbers. It is what it reads
as, for every function. What arithmetic makes of it is such a number, too, and whoever compares it, asks whether it is
true, hashes it or makes an integer of it calls a function here, which has the line told.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol

SAVED_AS = "\u205f"
"""A space, which `float` skips: with it begins the text of such a number in a pickled object. Without this package it
loads as an ordinary number.
"""


class Mark:
    """The place where a number was read that nobody computed."""

    __slots__ = ("counted", "line", "source", "taken_as")

    def __init__(self, line: str, source: str, taken_as: str) -> None:
        self.line = line
        """The line, as `file:line`; "" if it is unknown: the number comes from a file or another process."""
        self.source = source
        """The number's dtype, and what wrote it."""
        self.taken_as = taken_as
        self.counted: set[str] = set()
        """Lines that have decided by it: each counts it once."""


class Follower(Protocol):
    """The object that is told what becomes of such numbers."""

    def decides(self, mark: Mark, *, orders: bool = False) -> None:
        """The program decides by it, now. `orders`: by which of two numbers is smaller, as `min` asks."""
        ...

    def leaves(self, mark: Mark, *, counts: bool) -> None:
        """A function in C makes an ordinary number of it; `counts`: an integer, which is worth telling unless it is
        printed.
        """
        ...

    def result(self, value: Any, mark: Mark, flags: Sequence[bool] | None = None) -> Any:
        """Returns what follows from it, as the program gets it. `flags`: the elements that do; None: all."""
        ...


class _Follower:
    """The follower of a process that has none yet."""

    def decides(self, mark: Mark, *, orders: bool = False) -> None: ...

    def leaves(self, mark: Mark, *, counts: bool) -> None: ...

    def result(self, value: Any, mark: Mark, flags: Sequence[bool] | None = None) -> Any:
        return value


follower: Follower = _Follower()


def follow(by: Follower) -> None:
    """Lets this follower be told from now on."""
    global follower
    follower = by


def plain(value: Any) -> Any:
    """Returns the ordinary number that it reads as; anything else as it is."""
    convert = PLAIN.get(type(value))
    return value if convert is None else convert(value)


def mark_of(value: Any) -> Mark | None:
    """Returns the value's mark; None if it is an ordinary value."""
    return value.mark if type(value) in PLAIN else None


def _arithmetic(function: Callable[..., Any], reflected: bool) -> Callable[..., Any]:
    def operate(self: Any, *others: Any) -> Any:
        others = tuple(map(plain, others))
        arguments = (*others[:1], plain(self), *others[1:]) if reflected else (plain(self), *others)
        try:
            value = function(*arguments)
        except ArithmeticError:  # 0 has no inverse, and no value that is read is computed
            follower.decides(self.mark)
            raise
        return follower.result(value, self.mark)

    return operate


def _comparison(name: str, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def compare(self: Any, other: Any) -> Any:
        number = plain(other)
        if not isinstance(number, (int, float)):
            if hasattr(number, "dtype"):  # an array's or a tensor's own comparison
                return function(plain(self), number) if _is_one(number) else NotImplemented
            return NotImplemented
        if other is not self:  # `loss != loss` asks whether it is finite, as it is taken to be
            for mark in (self.mark, mark_of(other)):
                if mark is not None:
                    follower.decides(mark, orders=name in ("__lt__", "__gt__"))
        return function(plain(self), number)

    return compare


def _is_one(number: Any) -> bool:
    """Tells whether this is a number of numpy's that is no `float`: it would compare by functions in C."""
    return getattr(number, "shape", None) == () and not hasattr(number, "untyped_storage")


def _whole(function: Callable[[Any], int]) -> Callable[[Any], int]:
    def make(self: Any) -> int:
        follower.leaves(self.mark, counts=True)
        return function(plain(self))

    return make


def _round(self: Any, digits: int | None = None) -> Any:
    if digits is None:
        follower.leaves(self.mark, counts=True)
    return follower.result(round(plain(self), digits), self.mark)


def _truth(self: Any) -> bool:
    follower.decides(self.mark)
    return bool(plain(self))


def _hash(self: Any) -> int:
    follower.decides(self.mark)
    return hash(plain(self))


def _is_integer(self: Any) -> bool:
    follower.decides(self.mark)
    return bool(plain(self).is_integer())


def _to_float(self: Any) -> float:
    follower.leaves(self.mark, counts=False)
    return float(plain(self))


def _missing(self: Any, name: str) -> Any:
    """Returns the mark of a number that a library has made by this class: `type(loss)(total / n)`."""
    if name == "mark":
        return MADE
    raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


MADE = Mark("", "made of such a value", "0")


def _reduce(self: Any, protocol: Any = None) -> tuple[Any, ...]:
    return type(plain(self)), (SAVED_AS + repr(float(plain(self))),)


def first_mark(values: Any) -> Mark | None:
    """Returns the mark of the first such number among these values, or in a list or tuple of them; None if there is
    none.
    """
    for one in values:
        found = first_mark(one) if type(one) in (list, tuple) else mark_of(one)
        if found is not None:
            return found
    return None


def plain_parts(value: Any) -> Any:
    """Returns the value with ordinary numbers, also in lists and tuples: an optimizer has a list of step sizes."""
    return type(value)(map(plain_parts, value)) if type(value) in (list, tuple) else plain(value)


def _torch_function(
    cls: type, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
) -> Any:
    """Returns what PyTorch's functions make of it, beside a tensor or as the value of its elements."""
    mark = first_mark((*args, *(kwargs or {}).values())) or MADE
    if getattr(function, "__name__", "") == "broadcast_tensors":
        return _broadcast(function, args)
    value = function(*map(plain_parts, args), **{name: plain_parts(one) for name, one in (kwargs or {}).items()})
    name = getattr(function, "__name__", "")
    if name in ("__setitem__", "__set__"):
        follower.result(args[0][args[1]] if name == "__setitem__" else args[0], mark)
        return value
    return follower.result(value, mark)


def _ufunc(self: Any, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Any:
    """Returns what numpy's functions on elements make of it."""
    if ufunc.__name__ in COMPARING:
        follower.decides(self.mark)
    value = getattr(ufunc, method)(*map(plain, inputs), **named)
    return follower.result(value, self.mark)


def _broadcast(function: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    """Broadcasts tensors and numbers, as `torch.distributions` calls it: its arguments are "like tensors" as all that
    has `__torch_function__` is. A number becomes a tensor as an ordinary one would.
    """
    import torch

    like = next((one for one in given if isinstance(one, torch.Tensor)), None)
    options = {} if like is None else {"dtype": like.dtype, "device": like.device}
    return function(
        *(
            one if mark_of(one) is None else follower.result(torch.tensor(plain(one), **options), one.mark)
            for one in given
        )
    )


_torch_function.__name__ = "__torch_function__"
COMPARING = frozenset(
    ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "logical_and", "logical_or", "logical_not")
)
"""Names of numpy's functions on elements that compare, or ask whether elements are true."""
_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")


def subclass(base: type[Any]) -> type[Any]:
    """Makes a subclass of `float`, or of one of numpy's numbers, for numbers that nobody computed."""
    own: dict[str, Any] = {"__slots__": ("mark",)} if base is float else {}
    for name in _BINARY:
        function = pow if name == "pow" else getattr(operator, name)
        own[f"__{name}__"] = _arithmetic(function, False)
        own[f"__r{name}__"] = _arithmetic(function, True)
    own["__divmod__"], own["__rdivmod__"] = _arithmetic(divmod, False), _arithmetic(divmod, True)
    for name in ("neg", "pos", "abs"):
        own[f"__{name}__"] = _arithmetic(getattr(operator, name), False)
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        own[f"__{name}__"] = _comparison(f"__{name}__", getattr(operator, name))
    for name, whole in (("int", int), ("trunc", math.trunc), ("floor", math.floor), ("ceil", math.ceil)):
        own[f"__{name}__"] = _whole(whole)
    own.update(
        __round__=_round,
        __bool__=_truth,
        __hash__=_hash,
        __float__=_to_float,
        __reduce_ex__=_reduce,
        __copy__=lambda self: self,
        __deepcopy__=lambda self, memo: self,
        __torch_function__=classmethod(_torch_function),
        __array_ufunc__=_ufunc,
        is_integer=_is_integer,
        real=property(lambda self: self),
        __getattr__=_missing,
        item=lambda self: follower.result(plain(self).item(), self.mark),
        __module__=base.__module__,
        __qualname__=base.__qualname__,
    )
    if base is float:
        del own["item"]
    for name, method in own.items():
        if callable(method) and hasattr(method, "__code__"):  # Dynamo looks methods up by their functions' names
            method.__name__, method.__qualname__ = name, f"{base.__qualname__}.{name}"
    made = type(base.__name__, (base,), own)
    BY_BASE[base] = made
    PLAIN[made] = (lambda value: float.__pos__(value)) if base is float else base
    return made


BY_BASE: dict[type, type[Any]] = {}
"""The class of such numbers for each class of ordinary ones."""
PLAIN: dict[type, Callable[[Any], Any]] = {}
"""For each class of such numbers: what makes the ordinary number of one."""
UnknownFloat = subclass(float)


def marked(value: float, mark: Mark) -> Any:
    """Returns the number, as one that nobody computed."""
    number = BY_BASE[type(value)](value)
    number.mark = mark
    return number
