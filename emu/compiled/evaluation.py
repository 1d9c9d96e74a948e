"""Follows a Triton program for all its instances at once, and gives what it stores.

A launch that was followed before, with the same arguments, repeats those steps whose numbers have changed (`steps`).
What is unknown (numbers in memory that nobody computed, operations that are not evaluated) stays unknown in all that
follows from it. Instances that take different ways are followed in groups, each from the start.
"""

from __future__ import annotations

import functools
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..formats.ttir import CARRIED, LABEL, Operation, Program
from . import operations
from .combining import Combination
from .integer_stores import STORES_UNSEEN, NotEvaluated, TooLong, parameters_of
from .long_sums import Bounded, UnknownNumbers, stores_by_bounds, sums_along_one_axis
from .steps import (
    UNKNOWN,
    AnyStep,
    Computation,
    Decision,
    Load,
    MemoryReader,
    Otherwise,
    Steps,
    Store,
    Storing,
    Value,
)

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
_MOST_KEPT = 1 << 22
"""Most elements of all values that are kept for later launches (32 MiB)."""
_MOST_KEPT_OF_A_LAUNCH = 1 << 20
_MOST_LAUNCHES_KEPT = 512
_MOST_KEPT_BY_BOUNDS = 8
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


class Stores(NamedTuple):
    """The values that a launch stores."""

    found: list[Store]
    """The stores whose addresses are known, in order."""
    are_all: bool
    """False if the launch may store elsewhere, too."""


_TARGET = re.compile(r"(\^\w+)(?:\(([^()]*)\))?")
"""A branch's target, and what it gives to the block."""


def _label(operation: Operation) -> str:
    return operation.head.partition(":")[0].partition("(")[0]


class _Budget:
    def __init__(self, operations: int, elements: int) -> None:
        self._operations, self._elements = operations, elements
        self._is_over = False

    def end(self) -> None:
        """The launch is followed: what its steps do when they are repeated is not counted."""
        self._is_over = True

    def take(self, elements: int) -> None:
        """Counts one operation on so many elements. Raises TooLong if the launch has used up what it may take."""
        if self._is_over:
            return
        self._operations -= 1
        self._elements -= elements
        if self._operations < 0 or self._elements < 0 or elements > MAX_ELEMENTS:
            raise TooLong


class _Diverges(Exception):
    """Raised when instances take different ways; its argument is a tensor of numbers, which are the same for those that
    take the same one.
    """


class _Kept(NamedTuple):
    """The steps of a launch that may come again."""

    steps: Steps
    elements: int
    program: Program
    """It is known by its identity, so it stays."""


class Evaluator:
    """Follows programs and computes what they store."""

    def __init__(self, memory: MemoryReader) -> None:
        self._memory = memory
        self._table = operations.table()
        self.evaluated = frozenset(self._table) | frozenset(_EVALUATED)
        self._kept: OrderedDict[tuple[int, ...], _Kept] = OrderedDict()
        """By the program, the grid and the arguments; the one that was used last is at the end."""
        self._kept_elements = 0
        self._not_followed: dict[tuple[int, ...], Program] = {}
        """Programs, each with a grid, that take too long to be followed and are evaluated by bounds."""
        self._known_by_bounds: OrderedDict[tuple[int, ...], Bounded] = OrderedDict()
        """By the same as `_kept`."""

    def stores(self, program: Program, grid: tuple[int, int, int], values: Sequence[int]) -> Stores:
        """Returns the stores of a launch, as far as they are known. `values`: the arguments, one for each parameter.
        Raises NotEvaluated.
        """
        key = (id(program), *grid, *values)
        kept = self._kept.pop(key, None)
        if kept is not None:
            try:
                kept.steps.repeat()
            except (Otherwise, _Diverges, NotEvaluated):
                self._kept_elements -= kept.elements
            else:
                self._kept[key] = kept
                return Stores(kept.steps.stores, kept.steps.are_all)
        if key[:4] not in self._not_followed:
            try:
                steps = self._followed(program, grid, values)
            except TooLong:
                if not sums_along_one_axis(program):
                    raise
                self._not_followed[key[:4]] = program
            else:
                self._keep(key, steps, program)
                return Stores(steps.stores, steps.are_all)
        try:
            bounded = self._bounded(key, program, grid, values)
        except UnknownNumbers:
            raise  # they may be known at the next launch
        except NotEvaluated as refused:
            raise TooLong from refused
        return Stores(bounded.stores, are_all=True)

    def _bounded(
        self, key: tuple[int, ...], program: Program, grid: tuple[int, int, int], values: Sequence[int]
    ) -> Bounded:
        known = self._known_by_bounds.pop(key, None)
        if known is None or not known.is_current(self._memory):
            known = stores_by_bounds(program, grid, values, self._memory)
        self._known_by_bounds[key] = known
        if len(self._known_by_bounds) > _MOST_KEPT_BY_BOUNDS:
            self._known_by_bounds.popitem(last=False)
        return known

    def _keep(self, key: tuple[int, ...], steps: Steps, program: Program) -> None:
        elements = steps.elements
        if elements > _MOST_KEPT_OF_A_LAUNCH:
            return
        self._kept[key] = _Kept(steps, elements, program)
        self._kept_elements += elements
        while self._kept_elements > _MOST_KEPT or len(self._kept) > _MOST_LAUNCHES_KEPT:
            _, oldest = self._kept.popitem(last=False)
            self._kept_elements -= oldest.elements

    def _followed(self, program: Program, grid: tuple[int, int, int], values: Sequence[int]) -> Steps:
        import torch

        parameters = {}
        for (name, kind), value in zip(parameters_of(program), values, strict=True):
            if kind.is_pointer or kind.element in ("i1", "i8", "i16", "i32", "i64"):
                dtype = torch.int64 if kind.is_pointer else operations.dtype_of(kind.element)
                tensor = torch.tensor([value], dtype=torch.int64, device="cpu").to(dtype)
                parameters[name] = Value(tensor, is_fixed=True)
        count = grid[0] * grid[1] * grid[2]
        if count > MAX_ELEMENTS:
            raise TooLong
        places = torch.arange(count, dtype=torch.int32, device="cpu")
        budget = _Budget(_MOST_OPERATIONS, _MOST_ELEMENTS)
        steps: list[AnyStep] = []
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
                steps += [step for step in run.steps if not isinstance(step, Storing)]  # each group stores it again
                continue
            steps += run.steps
            are_all = are_all and run.are_all
        budget.end()
        return Steps(steps, are_all=are_all)


class _Run:
    """The evaluation of one launch, or of one instance of it."""

    def __init__(
        self,
        evaluator: Evaluator,
        parameters: dict[str, Value],
        grid: tuple[int, int, int],
        places: Tensor,
        budget: _Budget,
    ) -> None:
        self._memory, self._table = evaluator._memory, evaluator._table
        self._values: dict[str, Value] = dict(parameters)
        self._grid, self._places = grid, places
        self._budget = budget
        self.steps: list[AnyStep] = []
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

    def _value(self, name: str) -> Value:
        return self._values.get(name, UNKNOWN)

    def _branches_to(self, operation: Operation, body: Sequence[Operation], labels: dict[str, int]) -> int:
        """Returns where the block begins to which the branch leads, whose arguments it gives."""
        targets = _TARGET.findall(operation.head)
        taken = 0 if operation.name == "cf.br" or self._one(self._value(operation.operands[0])) else 1
        label, given = targets[taken]
        at = labels[label]
        values = [self._value(name) for name in re.findall(r"%[\w.$-]+(?:#\d+)?", given)]
        self._values.update(zip(body[at].results, values, strict=True))
        return at + 1

    def _block(self, body: Sequence[Operation]) -> list[Value]:
        """Returns what it yields."""
        for operation in body:
            if operation.name == "scf.yield":
                return [self._value(name) for name in operation.operands]
            self._one_of_block(operation)
        return []

    def _one_of_block(self, operation: Operation) -> None:
        found = self._operation(operation)
        elements = 1
        for value in found:
            if value.tensor is not None:
                elements = max(elements, value.tensor.numel())
        self._budget.take(elements)
        self._values.update(zip(operation.results, found, strict=False))

    def _operation(self, operation: Operation) -> Sequence[Value]:
        name = operation.name
        values = [self._value(operand) for operand in operation.operands]
        if name == "tt.store":
            self._store(operation, values)
            return ()
        if name == "tt.load":
            return self._load(operation, values)
        if name in ("tt.get_program_id", "tt.get_num_programs"):
            return (Value(self._place(operation), is_fixed=True),)
        if name == "scf.for":
            return self._loop(operation, values)
        if name == "scf.if":
            return self._branch(operation, values[0])
        if name in ("tt.reduce", "tt.scan"):
            combined = Combination(operation, self._table, self._budget.take)
            return self._computed(combined, [*values, *map(self._value, combined.outer)], len(operation.results))
        function = self._table.get(name)
        if name in STORES_UNSEEN:
            self.are_all = False
        if name == "scf.while":
            raise NotEvaluated(name)
        if function is None:
            return [UNKNOWN] * len(operation.results)
        return self._computed(functools.partial(_single, function, operation), values, 1)

    def _computed(self, function: Callable[..., Sequence[Tensor]], given: Sequence[Value], n: int) -> Sequence[Value]:
        """Returns what the function makes of the values, `n` tensors; unknown values if one of them is unknown."""
        if any(value.tensor is None for value in given):
            return [UNKNOWN] * n
        is_fixed = all(value.is_fixed for value in given)
        found = [Value(tensor, is_fixed=is_fixed) for tensor in function(*(value.tensor for value in given))]
        if not is_fixed:
            self.steps.append(Computation(function, given, found))
        return found

    # ---- instances and ways ----------------------------------------------------------------------------------------
    def _place(self, operation: Operation) -> Tensor:
        import torch

        axis = "xyz".index(operation.text.split()[1])
        if operation.name == "tt.get_num_programs":
            return torch.tensor([self._grid[axis]], dtype=torch.int32, device="cpu")
        x, y = self._grid[:2]
        return (self._places % x, self._places // x % y, self._places // (x * y))[axis]

    def _one(self, *given: Value, of: Callable[..., Tensor] = lambda value: value) -> int:
        """Returns a number, which `of` computes of values, and which is the same for all instances. Raises _Diverges if
        it is not.
        """
        if any(value.tensor is None for value in given):
            raise NotEvaluated("an unknown number decides which way it takes")
        number = of(*(value.tensor for value in given))
        if not all(value.is_fixed for value in given):
            self.steps.append(Decision(of, given, number))
        if number.numel() > 1 and not bool((number == number.flatten()[0]).all()):
            raise _Diverges(number.flatten())
        return int(number.flatten()[0])

    def _counted(self, values: Sequence[Value]) -> Iterator[Value]:
        """Yields the numbers that a loop counts, one for each turn: instances may begin and end it elsewhere, as long
        as it turns as often.
        """
        start, end = values[0], values[1]
        step = self._one(values[2])
        if step <= 0:
            raise NotEvaluated("an unknown number decides how often it turns")
        for turn in range(self._one(start, end, of=functools.partial(_turns, step))):
            yield from self._computed(functools.partial(_counted, turn * step), [start], 1)

    def _loop(self, operation: Operation, values: Sequence[Value]) -> Sequence[Value]:
        variable, *_ = operation.operands
        carried = CARRIED.findall(operation.text.partition("iter_args(")[2])
        state = [self._value(first) for _, first in carried]
        for at in self._counted(values[1:4]):
            self._values[variable] = at
            for (name, _), value in zip(carried, state, strict=True):
                self._values[name] = value
            state = self._block(operation.regions[0])
        return state

    def _branch(self, operation: Operation, condition: Value) -> Sequence[Value]:
        taken = 0 if self._one(condition) else 1
        return self._block(operation.regions[taken]) if taken < len(operation.regions) else []

    # ---- memory ----------------------------------------------------------------------------------------------------
    def _load(self, operation: Operation, values: Sequence[Value]) -> Sequence[Value]:
        if any(value.tensor is None for value in values[:2]):
            return (UNKNOWN,)
        load = Load(self._memory, operation.types[0].element, values)
        self.steps.append(load)
        return load.found

    def _store(self, operation: Operation, values: Sequence[Value]) -> None:
        addresses, _, *masks = values
        if any(value.tensor is None for value in (addresses, *masks)):
            self.are_all = False
            return
        self.steps.append(Storing(operations.dtype_of(operation.types[0].element).itemsize, values))


def _single(function: Callable[..., Tensor], operation: Operation, *values: Tensor) -> tuple[Tensor]:
    return (function(operation, *values),)


def _turns(step: int, start: Tensor, end: Tensor) -> Tensor:
    """Returns how often a loop turns."""
    import torch

    way = end.to(torch.int64) - start.to(torch.int64)
    return torch.div(way + step - 1, step, rounding_mode="floor").clamp(min=0)


def _counted(by: int, start: Tensor) -> tuple[Tensor]:
    return (start + by,)
