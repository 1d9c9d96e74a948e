"""Large tensors whose values are made when somebody reads them.

The hook library keeps for device memory what it refers to: a constant, bytes that the program once copied to the
device, or the result of a computation that this module remembers (emu/hook/sources). Nothing is computed unless the
program reads the values, or an operation that is computed needs them.
"""

from __future__ import annotations

import ctypes
import math
import pickle
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..interpreter.hook_library import recipes
from .host_views import Layout, Place

if TYPE_CHECKING:
    from torch import Tensor

    from .control_tensors import ControlTensors

MOST_READ = 1 << 30  # elements of a tensor
MOST_WORK_OF_VALUE = 1 << 31
"""The most elements that are gone through to compute one value: some seconds of this machine's CPU."""
MOST_WORK = 1 << 35
"""The most elements that are gone through for all values that a rank reads, without initialisations and copies."""
DEEPEST = 32
"""Computations of computations of ...: deeper ones are computed at once, so that what is remembered stays small."""
MUCH_WORK, OF_ELEMENT = 1 << 27, 1 << 10
"""Values are computed before something else depends on them, which would count their work again, if they go through at
least MUCH_WORK elements, and through OF_ELEMENT for each of their own (such as counts of a mask's blocks).
"""
_FEW_RUNS = 1024
"""The most pieces of memory of elements that are remembered one by one: in more pieces, the gaps between them are
remembered, too.
"""


class Snapshot:
    """The values that a tensor has now, whatever is written to it later."""

    def __init__(self, hook: Any, layout: Layout) -> None:
        """Takes the values. Raises LookupError if nobody knows one of them."""
        self._hook = hook
        self._handle = 0
        self.layout = layout
        self.span = 0
        """The number of elements from the first to the last, where all of these are remembered; else 0."""
        n, sizes, strides = layout.dimensions()
        if hook.data_runs(layout.item, n, sizes, strides) > _FEW_RUNS:
            pairs = zip(layout.sizes, layout.strides, strict=True)
            self.span = 1 + sum((size - 1) * stride for size, stride in pairs)
            one = (ctypes.c_int64 * 1)(self.span), (ctypes.c_int64 * 1)(1)
            self._handle = hook.take(layout.address, layout.item, 1, *one)
        if not self._handle:
            self.span = 0
            self._handle = hook.take(layout.address, layout.item, n, sizes, strides)
        if not self._handle:
            raise LookupError
        self.depth: int = hook.taken_depth(self._handle)
        self.work: int = hook.taken_work(self._handle)
        """The number of elements that are gone through before the values can be read."""

    def __del__(self) -> None:
        if self._handle:
            self._hook.taken_drop(self._handle)

    @classmethod
    def of(cls, hook: Any, table: bytes, span: int, layout: tuple[Any, ...]) -> Snapshot:
        """Makes the snapshot that another rank has described by `told`. Raises LookupError if its values have gone."""
        snapshot = cls.__new__(cls)
        snapshot._hook, snapshot.layout, snapshot.span = hook, Layout.of(*layout), span
        snapshot.depth = snapshot.work = 0
        snapshot._handle = hook.take_table(table, len(table))
        if not snapshot._handle:
            raise LookupError
        return snapshot

    def told(self) -> tuple[bytes, int, tuple[Any, ...]]:
        """Returns the snapshot as arguments for `of`."""
        return self._hook.taken_table(self._handle), self.span, self.layout.told()

    def read(self) -> Tensor:
        """Returns a CPU tensor of the same shape. Raises LookupError if the values cannot be had."""
        import torch

        layout = self.layout
        if self.span:
            values = torch.empty(self.span, dtype=layout.dtype, device="cpu")
            self._fill(values)
            return values.as_strided(layout.shape, layout.strides)
        sizes = [1 if stride == 0 else size for size, stride in zip(layout.sizes, layout.strides, strict=True)]
        order = layout.order()
        values = torch.empty([sizes[dim] for dim in order], dtype=layout.dtype, device="cpu")
        self._fill(values)
        return values.permute(inverse(order)).expand(layout.shape)

    def read_part(self, offset: int, values: Tensor) -> None:
        """Reads bytes from `offset` on, in the order of memory, into `values`. Raises LookupError."""
        nbytes = values.numel() * values.element_size()
        if not self._hook.taken_read_part(self._handle, offset, nbytes, values.data_ptr()):
            raise LookupError

    def _fill(self, values: Tensor) -> None:
        if not self._hook.taken_read(self._handle, values.data_ptr()):
            raise LookupError

    def give(self, target: Layout) -> bool:
        """Gives the target's elements these values if they lie in the same order, and says so. Its dtype is as wide."""
        if self.span or target.order() != self.layout.order() or 0 in self.layout.strides:
            return False
        n, sizes, strides = target.dimensions()
        return bool(self._hook.refer(self._handle, target.address, target.item, n, sizes, strides))


class Values(NamedTuple):
    """The values of a tensor, at one place of the program."""

    layout: Layout
    place: Place
    snapshot: Snapshot | None
    """The values; None if they are unknown, or have yet to arrive."""
    pending: bool


class Recipe(NamedTuple):
    """A description of how values are computed, which another rank can use as well."""

    kind: str
    """A key of `References.kinds`."""
    parameters: tuple[Any, ...]


class Output(NamedTuple):
    """A tensor that a call has written, and how its values follow from those of the call's inputs."""

    tensor: Tensor
    layout: Layout
    place: Place
    recipe: Recipe


class _Computation(NamedTuple):
    recipe: Recipe
    inputs: tuple[Snapshot, ...]
    layout: Layout
    work: int = 0
    """The work that counts against MOST_WORK: elements that are gone through."""


Maker = Callable[..., "Tensor"]
"""`maker(layout, *parameters, *inputs)` gives the values of that layout: of its shape, or flat, as memory has them."""


class References:
    """Remembers what large tensors are computed from."""

    def __init__(self, control: ControlTensors) -> None:
        self._control = control
        self._hook = control.hook
        self._computations: dict[int, _Computation] = {}
        self._last = 0
        self._work = 0
        self.kinds: dict[str, Maker] = {"copy": _copy}
        self.parts: dict[str, Maker] = {}
        """Makers of values of which some elements can be made alone, in the order of memory, by kind: the last two
        arguments are the first of these elements and the one behind the last.
        """
        self.needed: dict[str, Callable[..., list[Tensor]]] = {}
        """For kinds of which a part can be made: `needed(inputs, *parameters)` reads the inputs that a part needs."""
        control.hook.compute_sources(self._compute, self._tell)

    def values_of(self, tensor: Tensor) -> Values:
        """Returns the values that the tensor has before a kernel is called: for `assign_values` and `computed`,
        afterwards.
        """
        layout, place = Layout(tensor), Place(tensor)
        if not tensor.numel():
            return Values(layout, place, None, pending=False)
        if self._hook.data_pending(place.address, place.nbytes):
            return Values(layout, place, None, pending=True)
        return Values(layout, place, self._snapshot(layout), pending=False)

    def _snapshot(self, layout: Layout) -> Snapshot | None:
        """Returns a snapshot; None if nobody knows one of the values."""
        try:
            snapshot = Snapshot(self._hook, layout)
            sums_up = snapshot.work >= max(MUCH_WORK, OF_ELEMENT * math.prod(layout.shape))
            if (snapshot.depth >= DEEPEST or sums_up) and snapshot.work <= MOST_WORK_OF_VALUE:
                self._control.unrecorded(snapshot.read)
                snapshot = Snapshot(self._hook, layout)
        except LookupError:
            return None
        return snapshot if snapshot.depth < DEEPEST else None

    def read(self, tensor: Tensor) -> Tensor | None:
        """Returns the values on the CPU, once they have arrived; None if nobody knows them. For tensors that are not
        small.
        """
        if tensor.numel() > MOST_READ:
            return None

        def read() -> Tensor | None:
            snapshot = self._snapshot(Layout(tensor))
            try:
                return snapshot.read() if snapshot is not None else None
            except LookupError:
                return None

        found: Tensor | None = self._control.unrecorded(read)
        return found

    def constant(self, target: Tensor, item: bytes) -> bool:
        """Notes that all elements have these bytes. Returns False if the hook library cannot remember it."""
        return self._refer(Layout(target), item, 0, 0, 0)

    def assign(self, target: Tensor, source: Tensor) -> None:
        """Gives the target the source's values, as `target.copy_(source)` does on one device. If these are unknown, the
        target becomes unknown.
        """
        if target.dtype == source.dtype and target.is_contiguous() and source.is_contiguous():
            self._hook.data_move(target.data_ptr(), source.data_ptr(), target.numel() * target.element_size())
            return
        self.assign_values(target, self.values_of(source))

    def assign_values(self, target: Tensor, source: Values) -> None:
        """Gives the target the values that the source had."""

        def give(layout: Layout, snapshot: Snapshot) -> bool:
            plain = layout.dtype == snapshot.layout.dtype and layout.shape == snapshot.layout.shape
            return (plain and snapshot.give(layout)) or self._remember(layout, Recipe("copy", ()), (snapshot,))

        self._derive(target, source, give)

    def computed(self, target: Tensor, recipe: Recipe, source: Values | None = None) -> None:
        """The target's values are computed when they are read; from the values of `source`, if it is given."""
        if source is not None:
            self._derive(target, source, lambda layout, snapshot: self._remember(layout, recipe, (snapshot,)))
        elif not self._remember(Layout(target), recipe, ()):
            self._control.overwrite([target])

    def remember(self, outputs: Sequence[Output], inputs: Sequence[Values], work: int) -> None:
        """The outputs' values are computed from those of the inputs when they are read, or are unknown if that takes
        too long. `work`: elements that are gone through, without those that the inputs are computed from.
        """
        pending = [values.place for values in inputs if values.pending]
        places = [(output.layout, output.place, output.recipe) for output in outputs]

        def give() -> list[Place]:
            """Returns the places of those that are unknown."""
            found = [self._snapshot(v.layout) if v.pending else v.snapshot for v in inputs]
            snapshots = tuple(snapshot for snapshot in found if snapshot is not None)
            before = sum(snapshot.work for snapshot in snapshots)
            possible = len(snapshots) == len(found) and before + work <= MOST_WORK_OF_VALUE
            return [
                place
                for layout, place, recipe in places
                if not possible or not self._remember(layout, recipe, snapshots, work)
            ]

        def give_later() -> None:
            for place in give():
                self._control.forget(place)

        if pending:
            self._control.defer(pending, [output.place for output in outputs], give_later)
            return
        unknown = give()
        self._control.overwrite([output.tensor for output in outputs if output.place in unknown])

    def _derive(self, target: Tensor, source: Values, give: Callable[[Layout, Snapshot], bool]) -> None:
        """Calls `give` when the source's values have arrived. Without them the target is unknown."""
        layout, place = Layout(target), Place(target)
        if not source.pending:
            if source.snapshot is None or not give(layout, source.snapshot):
                self._control.overwrite([target])
            return

        def arrived() -> None:
            snapshot = self._snapshot(source.layout)
            if snapshot is None or not give(layout, snapshot):
                self._control.forget(place)

        self._control.defer([source.place], [place], arrived)

    def _remember(self, layout: Layout, recipe: Recipe, inputs: tuple[Snapshot, ...], work: int = 0) -> bool:
        self._forget_dropped()
        self._last += 1
        number = self._last
        depth = 1 + max((snapshot.depth for snapshot in inputs), default=0)
        self._computations[number] = _Computation(recipe, inputs, layout, work)
        in_all = (work or math.prod(layout.shape)) + sum(snapshot.work for snapshot in inputs)
        if self._refer(layout, None, number, depth, in_all):
            return True
        del self._computations[number]
        return False

    def _refer(self, layout: Layout, item: bytes | None, number: int, depth: int, work: int) -> bool:
        n, sizes, strides = layout.dimensions()
        return bool(self._hook.refer_source(item, number, depth, work, layout.address, layout.item, n, sizes, strides))

    def _forget_dropped(self) -> None:
        for number in self._hook.dropped_sources():
            self._computations.pop(number, None)

    def _compute(self, number: int) -> None:
        """Computes the source of this number. Called by the hook library, from any thread. Where it fails, the values
        count as unknown.
        """
        import torch

        first = 0
        whole = True

        def values() -> Tensor:
            nonlocal first, whole
            computation = self._computations[number] if number else _told(self._hook, self._hook.recipe())
            recipe, layout = computation.recipe, computation.layout
            first, last = self._asked_part(recipe.kind, layout)
            whole = last == math.prod(layout.shape) and not first
            # The limit holds for all values of a rank together: a script may read some in each step.
            self._work += computation.work if whole else last - first
            if self._work > MOST_WORK:
                self._hook.warn_once(
                    "work",
                    f"large values are no longer computed: this rank has reached the limit of {MOST_WORK:,} elements "
                    "for all values that it reads",
                )
                raise LookupError
            with torch.no_grad():
                if not whole:
                    return (
                        self.parts[recipe.kind](layout, *recipe.parameters, first, last).to(layout.dtype).contiguous()
                    )
                needed: Callable[..., list[Tensor]] = self.needed.get(recipe.kind, _all)
                inputs = needed(computation.inputs, *recipe.parameters)
                made = self.kinds[recipe.kind](layout, *recipe.parameters, *inputs).to(layout.dtype)
                # The hook library takes the elements in the order of memory; makers may return them in that order, or
                # in the tensor's shape.
                if tuple(made.shape) == layout.shape:
                    made = made.permute(layout.order())
                return made.contiguous()

        try:
            made = self._control.unrecorded(values)
        except (LookupError, RuntimeError, TypeError) as error:
            if not isinstance(error, LookupError):
                self._hook.warn_once("computation", f"values cannot be computed when they are read: {error}")
            return
        nbytes = made.numel() * made.element_size()
        if whole:
            self._hook.give_source(made.data_ptr(), nbytes)
        else:
            self._hook.give_source_part(made.data_ptr(), first * made.element_size(), nbytes)

    def _asked_part(self, kind: str, layout: Layout) -> tuple[int, int]:
        """Returns the elements to compute: all, or those that are read, while together these are less than half of
        all."""
        count, item = math.prod(layout.shape), layout.dtype.itemsize
        if kind in self.parts:
            offset, nbytes, before = self._hook.source_range()
            if (before + nbytes) * 2 <= count * item:
                return offset // item, -(-(offset + nbytes) // item)
        return 0, count

    def _tell(self, number: int) -> None:
        """Tells how a source is computed, as another rank will refer to the computation. Called by the hook library."""
        computation = self._computations.get(number)
        if computation is None:
            return
        recipe, inputs, layout, _ = computation
        try:
            description = pickle.dumps((recipe, [snapshot.told() for snapshot in inputs], layout.told()))
        except (pickle.PicklingError, TypeError, AttributeError):  # a parameter that means something here alone
            return
        self._hook.give_recipe(description)


def _told(hook: Any, recipe: bytes) -> _Computation:
    """Reads a computation that another rank has described. Raises LookupError if its inputs have gone, or if this is no
    recipe.
    """
    how, inputs, layout = recipes.loads(recipe)
    return _Computation(how, tuple(Snapshot.of(hook, *description) for description in inputs), Layout.of(*layout))


def _all(inputs: tuple[Snapshot, ...], *_: Any) -> list[Tensor]:
    return [snapshot.read() for snapshot in inputs]


def _copy(layout: Layout, values: Tensor) -> Tensor:
    return values.expand(layout.shape)


def inverse(order: Sequence[int]) -> list[int]:
    """Returns the permutation that undoes this one."""
    return sorted(range(len(order)), key=lambda i: order[i])


_instances: dict[int, References] = {}


def shared(control: ControlTensors) -> References:
    """Returns the one object that belongs to these control tensors."""
    found = _instances.get(id(control))
    if found is None:
        found = _instances[id(control)] = References(control)
    return found


def dense(tensor: Tensor) -> bool:
    """Tells whether the tensor fills its memory without gaps."""
    return Place(tensor).dense
