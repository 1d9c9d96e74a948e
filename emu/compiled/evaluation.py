"""Follows a Triton program for all its instances at once, and gives what it stores.

What is unknown (numbers in memory that nobody computed, operations that are not evaluated) stays unknown in all that
follows from it. Instances that take different ways are followed in groups, each from the start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..formats.ttir import LABEL, Operation, Program
from . import operations
from .integer_stores import NotEvaluated, parameters_of

if TYPE_CHECKING:
    from torch import Tensor

MAX_ELEMENTS = 1 << 20
"""Most elements of a single value, over all instances of a launch."""
_MOST_ELEMENTS = 1 << 24
"""Most elements of all values of a launch together."""
_MOST_OPERATIONS = 4000
_MOST_OF_DIFFERENT_WAYS = 1000
"""Most operations of a launch whose instances take different ways. (torchtitan's kernel for permutations would take
longer than a rank needs for the rest of its step, and steers nothing.)
"""
_STORES_UNSEEN = (
    "tt.atomic_rmw",
    "tt.atomic_cas",
    "tt.descriptor_store",
    "tt.descriptor_reduce",
    "tt.descriptor_scatter",
    "tt.experimental_descriptor_store",
    "tt.call",
)
"""Operations that write to memory and are not evaluated."""
_EVALUATED = (
    LABEL,
    "tt.get_program_id",
    "tt.get_num_programs",
    "tt.load",
    "tt.reduce",
    "tt.scan",
    "scf.yield",
    "tt.assert",
)


class Store(NamedTuple):
    addresses: Tensor
    """The addresses (int64) of the elements that are stored."""
    values: Tensor | None
    """None: they are not known."""
    item: int
    """The bytes of an element."""


class Stores(NamedTuple):
    """What a launch stores."""

    found: list[Store]
    """The stores whose addresses are known, in order."""
    are_all: bool
    """False if the launch may store elsewhere, too."""


class MemoryReader(NamedTuple):
    """Reads device memory."""

    read: Callable[[Tensor, str], Tensor | None]
    """`read(addresses, element)`: the elements at int64 addresses; None if one of them is not known."""


def _alike(*tensors: Tensor) -> Sequence[Tensor]:
    import torch

    if all(one.shape == tensors[0].shape for one in tensors):
        return tensors

    broadcast: Any = torch.broadcast_tensors  # untyped
    return broadcast(*tensors)


_TARGET = re.compile(r"(\^\w+)(?:\(([^()]*)\))?")
"""A branch's target, and what it gives to the block."""
_CARRIED = re.compile(r"(%[\w.$-]+) = (%[\w.$-]+(?:#\d+)?)")


def _label(operation: Operation) -> str:
    return operation.head.partition(":")[0].partition("(")[0]


class TooLong(NotEvaluated):
    """The launch is too large to be evaluated."""


class _Budget:
    def __init__(self, operations: int, elements: int) -> None:
        self._operations, self._elements = operations, elements

    def take(self, elements: int) -> None:
        """Counts one operation on so many elements. Raises TooLong if the launch has used up what it may take."""
        self._operations -= 1
        self._elements -= elements
        if self._operations < 0 or self._elements < 0 or elements > MAX_ELEMENTS:
            raise TooLong


class _Diverges(Exception):
    """Raised when instances take different ways; its argument is a tensor of numbers, which are the same for those that
    take the same one.
    """


class Evaluator:
    """Follows programs and computes what they store."""

    def __init__(self, memory: MemoryReader) -> None:
        self._memory = memory
        self._table = operations.table()
        self.evaluated = frozenset(self._table) | frozenset(_EVALUATED)

    def stores(self, program: Program, grid: tuple[int, int, int], values: Sequence[int]) -> Stores:
        """Returns the stores of a launch, as far as they are known. `values`: the arguments, one for each parameter.
        Raises NotEvaluated.
        """
        import torch

        parameters = {}
        for (name, kind), value in zip(parameters_of(program), values, strict=True):
            if kind.is_pointer or kind.element in ("i1", "i8", "i16", "i32", "i64"):
                dtype = torch.int64 if kind.is_pointer else operations.dtype_of(kind.element)
                parameters[name] = torch.tensor([value], dtype=torch.int64, device="cpu").to(dtype)
        count = grid[0] * grid[1] * grid[2]
        if count > MAX_ELEMENTS:
            raise TooLong
        places = torch.arange(count, dtype=torch.int32, device="cpu")
        budget = _Budget(_MOST_OPERATIONS, _MOST_ELEMENTS)
        found: list[Store] = []
        are_all, left = True, [places]
        while left:
            some = left.pop()
            run = _Run(self, parameters, grid, some, budget)
            try:
                run.follow(program.body)
            except _Diverges as diverges:
                ways: Tensor = diverges.args[0]
                if ways.numel() != some.numel():
                    raise NotEvaluated("instances diverge by more than a number each") from None
                if some is places:
                    budget = _Budget(_MOST_OF_DIFFERENT_WAYS, _MOST_ELEMENTS)
                left += [some[ways == way] for way in torch.unique(ways).flip(0)]
                continue
            found += run.found
            are_all = are_all and run.are_all
        return Stores(found, are_all)


class _Run:
    """The evaluation of one launch, or of one instance of it."""

    def __init__(
        self,
        evaluator: Evaluator,
        parameters: dict[str, Tensor],
        grid: tuple[int, int, int],
        places: Tensor,
        budget: _Budget,
    ) -> None:
        self._memory, self._table = evaluator._memory, evaluator._table
        self._values: dict[str, Any] = dict(parameters)
        self._grid, self._places = grid, places
        self._budget = budget
        self.found: list[Store] = []
        self.are_all = True

    def follow(self, body: Sequence[Operation]) -> None:
        """Follows the function's blocks from the first one to a return."""
        labels = {_label(one): at for at, one in enumerate(body) if one.name == LABEL}
        at = 0
        while at < len(body) and body[at].name != "tt.return":
            one = body[at]
            if one.name in ("cf.br", "cf.cond_br"):
                self._budget.take(1)
                at = self._branches_to(one, body, labels)
            else:
                self._one_of_block(one)
                at += 1

    def _branches_to(self, operation: Operation, body: Sequence[Operation], labels: dict[str, int]) -> int:
        """Returns where the block begins to which the branch leads, whose arguments it gives."""
        targets = _TARGET.findall(operation.head)
        taken = 0 if operation.name == "cf.br" or self._one(self._values.get(operation.operands[0])) else 1
        label, given = targets[taken]
        at = labels[label]
        values = [self._values.get(name) for name in re.findall(r"%[\w.$-]+(?:#\d+)?", given)]
        self._values.update(zip(body[at].results, values, strict=True))
        return at + 1

    def _block(self, body: Sequence[Operation]) -> list[Any]:
        """Returns what it yields."""
        for operation in body:
            if operation.name in ("scf.yield", "tt.reduce.return", "tt.scan.return"):
                return [self._values.get(name) for name in operation.operands]
            self._one_of_block(operation)
        return []

    def _one_of_block(self, operation: Operation) -> None:
        found = self._operation(operation)
        self._budget.take(max((value.numel() for value in found if value is not None), default=1))
        self._values.update(zip(operation.results, found, strict=False))

    def _operation(self, operation: Operation) -> Sequence[Any]:
        name = operation.name
        values = [self._values.get(operand) for operand in operation.operands]
        if name == "tt.store":
            self._store(operation, values)
            return ()
        if name == "tt.load":
            return (self._load(operation, values),)
        if name in ("tt.get_program_id", "tt.get_num_programs"):
            return (self._place(operation),)
        if name == "scf.for":
            return self._loop(operation, values)
        if name == "scf.if":
            return self._branch(operation, values[0])
        if name in ("tt.reduce", "tt.scan"):
            known = [value for value in values if value is not None]
            if len(known) < len(values):
                return [None] * len(operation.results)
            return self._reduced(operation, known) if name == "tt.reduce" else self._scanned(operation, known)
        function = self._table.get(name)
        if name in _STORES_UNSEEN:
            self.are_all = False
        if name == "scf.while":
            raise NotEvaluated(name)
        if function is None or any(value is None for value in values):
            return [None] * len(operation.results)
        return (function(operation, *values),)

    # ---- instances and ways ----------------------------------------------------------------------------------------
    def _place(self, operation: Operation) -> Tensor:
        import torch

        axis = "xyz".index(operation.text.split()[1])
        if operation.name == "tt.get_num_programs":
            return torch.tensor([self._grid[axis]], dtype=torch.int32, device="cpu")
        x, y = self._grid[:2]
        return (self._places % x, self._places // x % y, self._places // (x * y))[axis]

    def _one(self, value: Tensor | None) -> int:
        """A number that is the same for all instances."""
        if value is None:
            raise NotEvaluated("an unknown number decides which way it takes")
        if value.numel() > 1 and not bool((value == value.flatten()[0]).all()):
            raise _Diverges(value.flatten())
        return int(value.flatten()[0])

    def _counted(self, values: Sequence[Any]) -> list[Tensor]:
        """Returns the numbers that a loop counts, one for each turn: instances may begin and end it elsewhere, as long
        as it turns as often.
        """
        import torch

        start, end, step = values[0], values[1], self._one(values[2])
        if start is None or end is None or step <= 0:
            raise NotEvaluated("an unknown number decides how often it turns")
        way = end.to(torch.int64) - start.to(torch.int64)
        turns = torch.div(way + step - 1, step, rounding_mode="floor").clamp(min=0)
        return [start + turn * step for turn in range(self._one(turns))]

    def _loop(self, operation: Operation, values: Sequence[Any]) -> Sequence[Any]:
        variable, *_ = operation.operands
        carried = _CARRIED.findall(operation.text.partition("iter_args(")[2])
        state = [self._values.get(first) for _, first in carried]
        for at in self._counted(values[1:4]):
            self._values[variable] = at
            for (name, _), value in zip(carried, state, strict=True):
                self._values[name] = value
            state = self._block(operation.regions[0])
        return state

    def _branch(self, operation: Operation, condition: Any) -> Sequence[Any]:
        taken = 0 if self._one(condition) else 1
        return self._block(operation.regions[taken]) if taken < len(operation.regions) else []

    # ---- memory ----------------------------------------------------------------------------------------------------
    def _load(self, operation: Operation, values: Sequence[Any]) -> Tensor | None:

        addresses, mask = values[0], values[1] if len(values) > 1 else None
        if addresses is None or (len(values) > 1 and mask is None):
            return None
        element = operation.types[0].element
        if mask is None:
            return self._memory.read(addresses, element)
        addresses, mask = _alike(addresses, mask)
        inside = self._memory.read(addresses[mask], element)
        if inside is None:
            return None
        result = inside.new_zeros(addresses.shape)
        if len(values) > 2 and values[2] is not None:
            result.copy_(values[2].expand(addresses.shape))
        result[mask] = inside
        return result

    def _store(self, operation: Operation, values: Sequence[Any]) -> None:
        addresses, stored, *masks = values
        if addresses is None or any(mask is None for mask in masks):
            self.are_all = False
            return
        item = operations.dtype_of(operation.types[0].element).itemsize
        for mask in masks[:1]:
            addresses, inside = _alike(addresses, mask.expand(addresses.shape) if mask.shape[0] == 1 else mask)
            stored = None if stored is None else stored.expand(addresses.shape)[inside]
            addresses = addresses[inside]
        if stored is not None:
            addresses, stored = _alike(addresses, stored)
            stored = stored.reshape(-1)
        if addresses.numel():
            self.found.append(Store(addresses.reshape(-1), stored, item))

    # ---- along an axis ---------------------------------------------------------------------------------------------
    def _combined(self, operation: Operation, left: Sequence[Tensor], right: Sequence[Tensor]) -> list[Any]:
        self._values.update(zip(operation.arguments, (*left, *right), strict=True))
        found = self._block(operation.regions[0])
        if any(value is None for value in found):
            raise NotEvaluated(operation.name)
        return found

    def _axis(self, operation: Operation) -> int:
        found = re.search(r"axis = (\d+)", operation.text)
        if found is None:
            raise NotEvaluated(operation.text)
        return 1 + int(found[1])

    def _reduced(self, operation: Operation, values: Sequence[Tensor]) -> list[Any]:
        """Neighbours are combined until one is left: the operation is associative."""
        axis, state = self._axis(operation), list(values)
        while (length := state[0].shape[axis]) > 1:
            even = [value.narrow(axis, 0, length // 2 * 2) for value in state]
            even = [value.reshape(*value.shape[:axis], length // 2, 2, *value.shape[axis + 1 :]) for value in even]
            pairs = self._combined(operation, *([value.select(axis + 1, n) for value in even] for n in (0, 1)))
            if length % 2:
                last = [value.narrow(axis, length - 1, 1) for value in state]
                import torch

                pairs = [torch.cat((pair, one), axis) for pair, one in zip(pairs, last, strict=True)]
            state = pairs
        return [value.squeeze(axis) for value in state]

    def _scanned(self, operation: Operation, values: Sequence[Tensor]) -> list[Any]:
        import torch

        axis, state = self._axis(operation), list(values)
        if "reverse = true" in operation.text:
            state = [value.flip(axis) for value in state]
        length, step = state[0].shape[axis], 1
        while step < length:
            earlier = [value.narrow(axis, 0, length - step) for value in state]
            later = [value.narrow(axis, step, length - step) for value in state]
            sums = self._combined(operation, earlier, later)
            state = [torch.cat((v.narrow(axis, 0, step), s), axis) for v, s in zip(state, sums, strict=True)]
            step *= 2
        return [value.flip(axis) for value in state] if "reverse = true" in operation.text else state
