"""Follows Triton programs whose reductions are too long to be computed number by number: by bounds of their numbers.

Such a program sums what it computes along an axis, often in a loop, and stores what follows from each sum. That of a
compiled `create_block_mask` of FlexAttention counts the visible pairs of each tile of 128 x 128, 268 million pairs for
16,384 tokens, and stores only whether a tile has none, some or all. Here a value is a lowest and a highest number for
each *piece*, a run of neighbours along the axis. A tile without a visible pair, or without an invisible one, is decided
by a single piece; most others by pieces of 32; and what is left by pieces of one element, which is exact.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..formats.ttir import CARRIED, Operation, Program
from . import operations
from .bounds import Bounds, added, checked, exactly, known, same, selected, transfers
from .integer_stores import INTEGERS, STORES_UNSEEN, NotEvaluated, TooLong, parameters_of
from .places import Places
from .steps import MemoryReader, Store

if TYPE_CHECKING:
    from torch import Tensor, dtype

_SIZES = (None, 32, 8, 1)
"""Elements of a piece, in the order in which they are tried for the lanes that are left; None: the whole axis."""
_MOST_PIECES = 1 << 23
"""Most pieces of all lanes of a launch together: about a second of a processor's time."""
_PIECES_AT_ONCE = 1 << 17
"""The int64 numbers of a value that stay in a processor's cache."""
_MOST_LOADED = 1 << 23
"""Most elements between the first and the last whose bounds are looked up."""
_MOST_COMPARED = 1 << 18
"""Most elements that a launch has loaded, if it is to be known again by them."""
_UNKNOWN = None


class UnknownNumbers(NotEvaluated):
    """Numbers that the launch loads are not known."""


class _Indices(NamedTuple):
    """The range that `tt.make_range` gives, before it is known along which axis it is."""

    start: int
    end: int


class _Sum(NamedTuple):
    """A value that a loop carries and only adds to."""

    start: Bounds
    added: Bounds
    """The number that one turn adds."""


_Value = Bounds | _Indices | _Sum | None
"""None: it is unknown."""


class _Axes(NamedTuple):
    """The two axes of a program: it reduces along one of them."""

    reduced: int
    lanes: int
    """The length of the other axis; 1 if there is none."""
    length: int
    """The length of the reduced axis, in one turn of the loop."""
    has_loop: bool


class _Turns(NamedTuple):
    """The turns of the program's loop."""

    start: int
    step: int
    number: int


_NO_LOOP = _Turns(0, 1, 1)


class _Pieces(NamedTuple):
    """Pieces of the reduced axis, over all turns of the loop; each tensor is [1, pieces]."""

    indices: Bounds
    """The indices along the axis, within a turn."""
    turns: Bounds
    elements: Tensor


class _Stored(NamedTuple):
    """The elements that one store operation of the program stores, one for each lane."""

    addresses: Tensor
    inside: Tensor
    """True for lanes for which the mask holds."""
    values: Tensor | None
    """None: they are unknown."""
    is_decided: Tensor

    def put(self, lanes: Tensor, part: _Stored) -> None:
        """Takes over what some lanes store."""
        self.addresses[lanes], self.inside[lanes], self.is_decided[lanes] = part.addresses, part.inside, part.is_decided
        if self.values is not None and part.values is not None:
            self.values[lanes] = part.values

    def store(self, dtype: dtype) -> Store:
        values = None if self.values is None else self.values[self.inside].to(dtype)
        return Store(Places(self.addresses[self.inside], dtype.itemsize), values)


class Bounded(NamedTuple):
    """The stores of a launch, and the numbers from which they follow."""

    stores: list[Store]
    loaded: list[_Loaded] | None
    """None: they are too many to be compared."""

    def is_current(self, memory: MemoryReader) -> bool:
        """Tells whether the same numbers are in memory now."""
        import torch

        if self.loaded is None:
            return False
        now = [(memory.read(one.places, one.element), one.numbers) for one in self.loaded]
        return all(found is not None and torch.equal(found, before) for found, before in now)


def sums_along_one_axis(program: Program) -> bool:
    """Tells whether the program may be one whose stores follow from bounds of sums."""
    return _axes_of(program) is not None


def stores_by_bounds(
    program: Program, grid: tuple[int, int, int], values: Sequence[int], memory: MemoryReader
) -> Bounded:
    """Returns all stores of a launch of a program that stores what follows from long sums. `values`: the arguments, one
    for each parameter. Raises NotEvaluated, and TooLong if too many sums have to be computed number by number.
    """
    import torch

    axes = _axes_of(program)
    if axes is None:
        raise NotEvaluated("no reduction along one axis")
    count = grid[0] * grid[1] * grid[2] * axes.lanes
    if count > _MOST_PIECES:
        raise TooLong
    reader = _BoundsReader(memory)
    left, turns, budget = torch.arange(count, device="cpu"), None if axes.has_loop else _NO_LOOP, _MOST_PIECES
    found: list[_Stored] = []
    for size in _SIZES:
        pieces = None if turns is None else _pieces(axes.length, turns, size)
        number = 1 if pieces is None else pieces.elements.shape[1]
        budget -= number * left.numel()
        if budget < 0:
            raise TooLong
        undecided = []
        for lanes in left.split(max(1, _PIECES_AT_ONCE // number)):
            bounded = _Bounded(program, axes, pieces, grid, lanes, reader)
            parts = bounded.follow(values)
            turns = bounded.turns
            found = found or [_for_all(count, part) for part in parts]
            for whole, part in zip(found, parts, strict=True):
                whole.put(lanes, part)
            undecided += [lanes[~one.is_decided] for one in parts]
        left = torch.cat(undecided).unique()
        if not left.numel():
            break
    else:
        raise NotEvaluated("a sum is not known although all its elements are")
    kinds = (one.types[0].element for one in program.body if one.name == "tt.store")
    stores = [one.store(operations.dtype_of(kind)) for one, kind in zip(found, kinds, strict=True)]
    is_small = sum(one.numbers.numel() for one in reader.loaded) <= _MOST_COMPARED
    return Bounded([one for one in stores if one.places.addresses.numel()], reader.loaded if is_small else None)


def _for_all(lanes: int, part: _Stored) -> _Stored:
    """Returns room for what all lanes store."""
    values = None if part.values is None else part.values.new_zeros(lanes)
    return _Stored(part.addresses.new_zeros(lanes), part.inside.new_zeros(lanes), values, part.inside.new_zeros(lanes))


def _axes_of(program: Program) -> _Axes | None:
    """Returns None if the program does not reduce along one axis of one or two."""
    found = set()
    for one in program.body:
        if one.name == "tt.reduce":
            axis = re.search(r"axis = (\d+)", one.text)
            shape = one.types[0].shape if one.types else ()
            if axis is None or len(shape) not in (1, 2):
                return None
            at = int(axis[1])
            found.add((at, shape[1 - at] if len(shape) == 2 else 1, shape[at]))
    if len(found) != 1:
        return None
    return _Axes(*found.pop(), has_loop=any(one.name == "scf.for" for one in program.body))


def _pieces(length: int, turns: _Turns, size: int | None) -> _Pieces:
    """`length`: of the axis in one turn. `size`: elements of a piece; None: one piece has all turns."""
    import torch

    if size is None or size >= length:
        together = turns.number if size is None else size // length
        first = torch.arange(0, turns.number, together, device="cpu")
        last = (first + together - 1).clamp(max=turns.number - 1)
        indices = Bounds(torch.zeros_like(first), torch.full_like(first, length - 1))
        elements = (last - first + 1) * length
    else:
        begin = torch.arange(0, length, size, device="cpu")
        first = torch.arange(turns.number, device="cpu").repeat_interleave(begin.numel())
        begin = begin.repeat(turns.number)
        last, end = first, begin if size == 1 else begin + size - 1
        indices, elements = Bounds(begin, end), torch.full_like(first, size)
    counted = (first * turns.step + turns.start)[None]
    at = exactly(counted) if last is first else Bounds(counted, (last * turns.step + turns.start)[None])
    low = indices.lowest[None]
    return _Pieces(exactly(low) if indices.is_known else Bounds(low, indices.highest[None]), at, elements[None])


class _Loaded(NamedTuple):
    places: Places
    element: str
    numbers: Tensor


class _Table(NamedTuple):
    """A stretch of memory."""

    lowest: list[Tensor]
    """The lowest number of each run of 1, 2, 4 ... elements."""
    highest: list[Tensor]

    def up_to(self, power: int) -> None:
        """Adds the runs of 2 ** `power` elements."""
        import torch

        while len(self.lowest) <= power:
            half = 1 << (len(self.lowest) - 1)
            self.lowest.append(torch.minimum(self.lowest[-1][:-half], self.lowest[-1][half:]))
            self.highest.append(torch.maximum(self.highest[-1][:-half], self.highest[-1][half:]))


class _BoundsReader:
    """Finds the lowest and the highest number between two addresses."""

    def __init__(self, memory: MemoryReader) -> None:
        self._memory = memory
        self.loaded: list[_Loaded] = []
        self._tables: dict[tuple[int, int, str], _Table] = {}
        """By address, elements and type."""

    def bounds(self, lowest: Tensor, highest: Tensor, element: str) -> Bounds:
        """`lowest`, `highest`: the addresses of elements, the same tensor if they are known. Raises NotEvaluated if
        they are those of an element that is not known; if it is one between them, any number may be there.
        """
        import torch

        if not lowest.numel():
            return Bounds(lowest, lowest)
        if lowest is highest:
            return self._known(lowest, element)
        dtype = operations.dtype_of(element)
        start, end = int(lowest.min()), int(highest.max())
        number = (end - start) // dtype.itemsize + 1
        any_number = (0, 1) if dtype is torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
        if number > _MOST_LOADED:
            return Bounds(*(torch.full_like(lowest, limit) for limit in any_number))
        key = start, number, element
        if key not in self._tables:
            numbers = self._known_from(start, number, element)
            numbers = numbers.view(torch.int8) if dtype is torch.bool else numbers
            self._tables[key] = _Table([numbers], [numbers])
        table = self._tables[key]
        known = table.lowest[0].numel()
        first = torch.div(lowest - start, dtype.itemsize, rounding_mode="floor")
        last = torch.div(highest - start, dtype.itemsize, rounding_mode="floor")
        is_known = last < known
        first, last = first.clamp(max=known - 1), last.clamp(max=known - 1)
        # Two runs of a power of two elements, from the first on and up to the last, have all that are between.
        power = torch.frexp((last - first + 1).double()).exponent - 1
        table.up_to(int(power.max()))
        low, high = torch.empty_like(first), torch.empty_like(first)
        for n in power.unique().tolist():
            which = power == n
            one, other = first[which], last[which] - (1 << n) + 1
            low[which] = torch.minimum(table.lowest[n][one], table.lowest[n][other]).long()
            high[which] = torch.maximum(table.highest[n][one], table.highest[n][other]).long()
        if known < number:
            low, high = torch.where(is_known, low, any_number[0]), torch.where(is_known, high, any_number[1])
        return Bounds(low, high)

    def _known(self, addresses: Tensor, element: str) -> Bounds:
        places = Places(addresses, operations.dtype_of(element).itemsize)
        numbers = self._memory.read(places, element)
        if numbers is None:
            raise UnknownNumbers("unknown numbers in memory")
        self.loaded.append(_Loaded(places, element, numbers))
        return exactly(numbers.long())

    def _known_from(self, start: int, number: int, element: str) -> Tensor:
        """Returns so many elements from an address on, up to the first that is not known: pieces at the end of a tensor
        often have elements behind it, which the program's mask leaves out. Raises NotEvaluated if there is none.
        """
        least, most, found = 0, number, None
        attempt = number
        while least < most:
            places = self._places(start, attempt, element)
            numbers = self._memory.read(places, element)
            if numbers is None:
                most = attempt - 1
            else:
                least, found = attempt, _Loaded(places, element, numbers)
            attempt = (least + most + 1) // 2
        if found is None:
            raise UnknownNumbers("unknown numbers in memory")
        self.loaded.append(found)
        return found.numbers

    def _places(self, start: int, number: int, element: str) -> Places:
        import torch

        item = operations.dtype_of(element).itemsize
        return Places(start + item * torch.arange(number, device="cpu"), item)


class _Bounded:
    """The evaluation of some lanes of a launch. A lane is one element of the axis that stays, of one instance."""

    def __init__(
        self,
        program: Program,
        axes: _Axes,
        pieces: _Pieces | None,
        grid: tuple[int, int, int],
        lanes: Tensor,
        reader: _BoundsReader,
    ) -> None:
        """`pieces`: None if it is not known yet how often the loop turns: one piece has all of its turns."""
        self._program, self._axes, self._pieces = program, axes, pieces
        self._grid, self._lanes, self._reader = grid, lanes, reader
        self._values: dict[str, _Value] = {}
        self._stored: list[_Stored] = []
        self.turns: _Turns | None = None if axes.has_loop else _NO_LOOP

    def follow(self, values: Sequence[int]) -> list[_Stored]:
        """Returns what each store of the program stores."""
        for (name, kind), value in zip(parameters_of(self._program), values, strict=True):
            self._values[name] = known(value) if kind.is_pointer or kind.element in INTEGERS else _UNKNOWN
        for one in self._program.body:
            if one.name == "tt.return":
                break
            if one.name == "tt.store":
                self._store(one, [self._value(name) for name in one.operands])
            else:
                self._one(one)
        return self._stored

    def _value(self, name: str) -> _Value:
        return self._values.get(name, _UNKNOWN)

    def _one(self, operation: Operation) -> None:
        values = [self._value(name) for name in operation.operands]
        name = operation.name
        if name == "scf.for":
            found = self._loop(operation, values)
        elif name == "tt.reduce":
            found = [self._reduced(operation, values)]
        elif name == "tt.load":
            found = [self._loaded(operation, values)]
        elif name == "tt.get_program_id":
            found = [self._instance(operation)]
        elif name == "tt.make_range":
            found = [self._indices(operation)]
        elif name == "tt.expand_dims":
            found = [self._expanded(operation, values[0])]
        elif name in transfers():
            found = [_transferred(operation, values)]
        elif operation.regions or name.startswith("cf.") or name in STORES_UNSEEN:
            raise NotEvaluated(name)
        else:
            found = [_UNKNOWN] * len(operation.results)
        self._values.update(zip(operation.results, found, strict=True))

    # ---- axes ------------------------------------------------------------------------------------------------------
    def _instance(self, operation: Operation) -> Bounds:
        axis = "xyz".index(operation.text.split()[1])
        instance = self._lanes // self._axes.lanes
        x, y = self._grid[:2]
        return exactly((instance % x, instance // x % y, instance // (x * y))[axis][:, None])

    def _indices(self, operation: Operation) -> _Value:
        found = [re.search(rf"\b{name} = (\d+)", operation.text) for name in ("start", "end")]
        if found[0] is None or found[1] is None:
            raise NotEvaluated(operation.text)
        indices = _Indices(int(found[0][1]), int(found[1][1]))
        # In a program of one axis they are not expanded.
        return self._along(self._axes.reduced, indices) if self._axes.lanes == 1 and self._is_flat() else indices

    def _is_flat(self) -> bool:
        return all(len(one.types[0].shape) == 1 for one in self._program.body if one.name == "tt.reduce")

    def _expanded(self, operation: Operation, value: _Value) -> _Value:
        if not isinstance(value, _Indices):
            return value
        axis = re.search(r"axis = (\d+)", operation.text)
        if axis is None:
            raise NotEvaluated(operation.text)
        return self._along(1 - int(axis[1]), value)

    def _along(self, axis: int, indices: _Indices) -> Bounds:
        """Returns the indices of an axis."""
        length = indices.end - indices.start
        if axis != self._axes.reduced:
            if length != self._axes.lanes:
                raise NotEvaluated("a third axis")
            return exactly((self._lanes % length + indices.start)[:, None])
        if length != self._axes.length:
            raise NotEvaluated("a third axis")
        if self._pieces is None:
            return Bounds(known(indices.start).lowest, known(indices.end - 1).lowest)
        low, high = self._pieces.indices
        return exactly(low + indices.start) if low is high else Bounds(low + indices.start, high + indices.start)

    # ---- loops and sums --------------------------------------------------------------------------------------------
    def _loop(self, operation: Operation, values: Sequence[_Value]) -> list[_Value]:
        turns = _turns(*values[1:4])
        if self.turns not in (None, turns):
            raise NotEvaluated("loops that turn differently")
        self.turns = turns
        end = turns.start + (turns.number - 1) * turns.step
        whole = Bounds(known(turns.start).lowest, known(end).lowest)
        self._values[operation.operands[0]] = whole if self._pieces is None else self._pieces.turns
        carried = CARRIED.findall(operation.text.partition("iter_args(")[2])
        starts = {}
        for name, first in carried:
            start = self._value(first)
            if isinstance(start, Bounds):
                starts[name] = start = Bounds(*start)  # another one for each sum, by which sums are told apart
            self._values[name] = _Sum(start, known(0)) if isinstance(start, Bounds) else _UNKNOWN
        for one in operation.regions[0]:
            if one.name == "scf.yield":
                found = [self._value(name) for name in one.operands]
                for (name, _), value in zip(carried, found, strict=True):
                    if not (value is _UNKNOWN or (isinstance(value, _Sum) and value.start is starts.get(name))):
                        raise NotEvaluated(f"{name} carries something else than a sum")
                return found
            if one.name in ("tt.store", "tt.reduce", "scf.for"):
                raise NotEvaluated(f"{one.name} in a loop")
            self._one(one)
        return []

    def _reduced(self, operation: Operation, values: Sequence[_Value]) -> _Value:
        inner = [one.name for one in operation.regions[0]]
        if inner != ["arith.addi", "tt.reduce.return"] or len(values) != 1:
            raise NotEvaluated("a reduction that is no sum")
        (value,) = values
        if value is _UNKNOWN:
            return _UNKNOWN
        length = self._axes.length
        start = known(0)
        if isinstance(value, _Sum):
            start, value = value
        elif not isinstance(value, Bounds) or self._axes.has_loop:
            raise NotEvaluated("a sum of something else than what a loop adds up")
        if start.lowest.shape[1] != 1:
            raise NotEvaluated("a sum that begins differently along the axis")
        sums = [self._total(first, added, length) for first, added in zip(start, value, strict=True)]
        is_known = start.is_known and value.is_known
        return checked(operation, Bounds(sums[0], sums[0] if is_known else sums[1]))

    def _total(self, start: Tensor, added: Tensor, length: int) -> Tensor:
        import torch

        count = 1 if self.turns is None else self.turns.number
        elements = torch.tensor([[length * count]], device="cpu") if self._pieces is None else self._pieces.elements
        return start * length + (added * elements if added.shape[1] > 1 else added * elements.sum()).sum(1, True)

    # ---- memory ----------------------------------------------------------------------------------------------------
    def _loaded(self, operation: Operation, values: Sequence[_Value]) -> _Value:
        import torch

        element = operation.types[0].element
        if element not in INTEGERS or any(value is _UNKNOWN for value in values[:2]):
            return _UNKNOWN
        addresses = values[0]
        if not isinstance(addresses, Bounds):
            raise NotEvaluated(operation.text)
        if len(values) == 1:
            return self._reader.bounds(*addresses, element)
        mask = values[1]
        other = values[2] if len(values) > 2 else known(0)
        if not isinstance(mask, Bounds) or not isinstance(other, Bounds):
            raise NotEvaluated(operation.text)
        if bool((mask.lowest == 1).all()):
            return self._reader.bounds(*addresses, element)
        # What the mask leaves out for certain may be at any address.
        shape = torch.broadcast_shapes(addresses.lowest.shape, addresses.highest.shape, mask.highest.shape)
        possible = (mask.highest == 1).expand(shape)
        low = addresses.lowest.expand(shape)[possible]
        high = low if addresses.is_known else addresses.highest.expand(shape)[possible]
        inside = self._reader.bounds(low, high, element)
        full = [other_one.expand(shape).clone() for other_one in other]
        full[0][possible], full[1][possible] = inside
        return selected(operation, mask, same(Bounds(*full)), other)

    def _store(self, operation: Operation, values: Sequence[_Value]) -> None:
        import torch

        addresses, value, *masks = values
        mask = masks[0] if masks else known(1)
        number = self._lanes.numel()
        place, inside = (_of_lanes(one, number) for one in (addresses, mask))
        if value is _UNKNOWN:
            self._stored.append(_Stored(place, inside == 1, None, torch.ones_like(inside, dtype=torch.bool)))
            return
        if not isinstance(value, Bounds) or value.lowest.shape[1] != 1:
            raise NotEvaluated("it stores along the axis of a sum")
        low, high = (one.expand(number, 1)[:, 0] for one in value)
        self._stored.append(_Stored(place, inside == 1, low, (low == high) | (inside == 0)))


def _of_lanes(value: _Value, lanes: int) -> Tensor:
    """Returns the number that each lane has. Raises NotEvaluated if it is not known."""
    import torch

    if not isinstance(value, Bounds) or value.lowest.shape[1] != 1 or not torch.equal(*value):
        raise NotEvaluated("it is not known where it stores")
    return value.lowest.expand(lanes, 1)[:, 0]


def _turns(start: _Value, end: _Value, step: _Value) -> _Turns:
    numbers = []
    for one in (start, end, step):
        if not isinstance(one, Bounds) or one.lowest.numel() != 1 or not one.is_known:
            raise NotEvaluated("it is not known how often a loop turns")
        numbers.append(int(one.lowest))
    first, last, by = numbers
    if by <= 0 or last <= first:
        raise NotEvaluated("a loop that does not turn")
    return _Turns(first, by, -((first - last) // by))


def _transferred(operation: Operation, values: Sequence[_Value]) -> _Value:
    if operation.name == "arith.addi":
        for one, other in (values, values[::-1]):
            if isinstance(one, _Sum) and isinstance(other, Bounds):
                return _Sum(one.start, checked(operation, added(operation, one.added, other)))
    if operation.name == "arith.select":
        condition, yes, no = values
        if isinstance(condition, Bounds) and isinstance(yes, _Sum) and isinstance(no, _Sum) and yes.start is no.start:
            return _Sum(yes.start, selected(operation, condition, yes.added, no.added))
    if operation.name == "tt.broadcast" and isinstance(values[0], _Sum):
        return values[0]
    ranges = [value for value in values if isinstance(value, Bounds)]
    if len(ranges) < len(values):
        if any(isinstance(value, _Sum | _Indices) for value in values):
            raise NotEvaluated(operation.name)
        return _UNKNOWN
    result = transfers()[operation.name](operation, *ranges)
    return None if result is None else checked(operation, result)
