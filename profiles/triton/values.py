"""The values of a Triton program as far as they are known: integers, addresses, and substitutes for numbers in
memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

FULL_SHARE = 0.5
"""The share of FlexAttention's blocks that a mask leaves whole, where nothing is known of the mask: half, as in a
causal one.
"""
RANDOM_INDICES = 1 << 20


@dataclass(frozen=True, slots=True)
class Pointer:
    base: str
    offset: Any
    """The offset in items, an integer or an array; None: unknown."""
    random: bool = False


@dataclass(frozen=True, slots=True)
class Share:
    """An unknown count: this share of whatever bounds it."""

    share: float


@dataclass(frozen=True, slots=True)
class Buffer:
    """The memory behind a pointer to which data gives the addresses: a program that has one loads single integers that
    say where a row lies or how often a loop turns.
    """

    nbytes: int
    """The bytes to the end of the block; 0: not known."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Integers that come from memory, replaced by random ones."""

    value: Any


Value = Any
_Binary = Callable[[Any, Any], Any]


def _divide(a: Any, b: Any) -> Any:
    return (
        np.where(b == 0, 0, np.trunc(a / np.where(b == 0, 1, b))).astype(np.int64)
        if _is_array(a, b)
        else (int(a / b) if b else 0)
    )


def _is_array(*values: Any) -> bool:
    return any(isinstance(value, np.ndarray) for value in values)


BINARY: dict[str, _Binary] = {
    "addi": lambda a, b: a + b,
    "subi": lambda a, b: a - b,
    "muli": lambda a, b: a * b,
    "divsi": _divide,
    "divui": _divide,
    "floordivsi": lambda a, b: a // b if not _is_array(a, b) and b else _divide(a, b),
    "ceildivsi": lambda a, b: -(-a // b) if not _is_array(a, b) and b else _divide(a + b - 1, b),
    "remsi": lambda a, b: a - _divide(a, b) * b,
    "remui": lambda a, b: a - _divide(a, b) * b,
    "andi": lambda a, b: a & b,
    "ori": lambda a, b: a | b,
    "xori": lambda a, b: a ^ b,
    "shli": lambda a, b: a << b,
    "shrsi": lambda a, b: a >> b,
    "shrui": lambda a, b: a >> b,
    "minsi": np.minimum,
    "maxsi": np.maximum,
    "minui": np.minimum,
    "maxui": np.maximum,
}
COMPARE: dict[str, _Binary] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "slt": lambda a, b: a < b,
    "ult": lambda a, b: a < b,
    "sle": lambda a, b: a <= b,
    "ule": lambda a, b: a <= b,
    "sgt": lambda a, b: a > b,
    "ugt": lambda a, b: a > b,
    "sge": lambda a, b: a >= b,
    "uge": lambda a, b: a >= b,
}


def combined(operator: _Binary | None, a: Value, b: Value) -> Value:
    if operator is None or a is None or b is None or isinstance(a, Pointer) or isinstance(b, Pointer):
        return None
    if isinstance(a, Share) or isinstance(b, Share):
        share, other = (a, b) if isinstance(a, Share) else (b, a)
        if operator in (np.minimum, np.maximum) and isinstance(other, int | np.integer):
            return max(int(other * share.share), 1)
        return share
    random = isinstance(a, Loaded) or isinstance(b, Loaded)
    a, b = (one.value if isinstance(one, Loaded) else one for one in (a, b))
    with np.errstate(all="ignore"):
        found = operator(a, b)
    if not isinstance(found, np.ndarray):
        found = bool(found) if isinstance(found, bool | np.bool_) else int(found)
    return Loaded(found) if random else found


def difference(before: Value, after: Value) -> Value:
    """The change in one iteration; None: unknown."""
    if isinstance(before, Pointer) and isinstance(after, Pointer) and before.base == after.base:
        return difference(before.offset, after.offset)
    known = (int, np.integer, np.ndarray)
    if isinstance(before, known) and isinstance(after, known) and not isinstance(before, bool):
        return after - before
    return None


def moved(value: Value, change: Value, times: int) -> Value:
    if change is None:
        return value
    if isinstance(value, Pointer):
        return Pointer(value.base, value.offset + change * times, value.random)
    return value + change * times


def value_loaded(
    pointer: Value, shape: tuple[int, ...], item: str, counts: tuple[int, ...] | None = None, *, indirect: bool = False
) -> Value:
    """The value that a load gives: nothing known for floating-point numbers, a random number for each address of
    integers. `counts`: the integers that lie there, if known. `indirect`: single integers, too, say where something
    lies.
    """
    if not item.startswith("i") or item == "i1" or not isinstance(pointer, Pointer):
        return None
    if not shape:
        known = _known_count(pointer.offset, counts) if counts else None
        if known is None:
            return Loaded(1) if indirect else _loaded_count(pointer.base)
        return known
    if pointer.offset is None:
        return None
    offsets = np.broadcast_to(np.asarray(pointer.offset, dtype=np.int64), shape)
    return Loaded((offsets * 2654435761 + 97) % RANDOM_INDICES)


def _known_count(offset: Any, counts: tuple[int, ...]) -> int | None:
    """The count at the address; their mean if the address is not known."""
    if offset is None:
        return round(sum(counts) / len(counts))
    return counts[int(offset)] if 0 <= int(offset) < len(counts) else None


def _loaded_count(base: str) -> Value:
    """A count or index read from memory. FlexAttention's templates read how many blocks a row has: those that a mask
    cuts, one in a causal mask, and the full ones.
    """
    name = base.upper()
    return Share(FULL_SHARE) if "FULL" in name and "NUM" in name else 1


def selected(condition: Value, yes: Value, no: Value) -> Value:
    """The result of `arith.select`; if the condition or a number is unknown, the value that is known."""
    if isinstance(condition, Loaded):
        condition = condition.value
    if condition is None or yes is None or no is None or isinstance(yes, Pointer) or isinstance(no, Pointer):
        return yes if yes is not None else no
    random = isinstance(yes, Loaded) or isinstance(no, Loaded)
    yes, no = (one.value if isinstance(one, Loaded) else one for one in (yes, no))
    if isinstance(yes, Share) or isinstance(no, Share):
        return yes
    found = np.where(condition, yes, no) if _is_array(condition, yes, no) else (yes if condition else no)
    return Loaded(found) if random else found


def addressed(pointer: Value, offset: Value) -> Value:
    """The result of `tt.addptr`."""
    if not isinstance(pointer, Pointer):
        return None
    random = pointer.random or isinstance(offset, Loaded)
    if isinstance(offset, Loaded):
        offset = offset.value
    if offset is None or isinstance(offset, Share) or pointer.offset is None:
        return Pointer(pointer.base, None, True)
    return Pointer(pointer.base, pointer.offset + offset, random)
