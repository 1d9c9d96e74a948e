"""One ATen operation that is computed on the CPU beside the call of its CUDA kernel.

The CUDA kernel allocates the outputs and launches, so memory and time are those of a GPU. If all tensors are small, the
same operation runs on host views of their bytes. What it gives is known if all inputs are known, and so are elements
that only follow from known ones (`unknown_elements`). Other floating-point outputs are unknown, and other integers and
bools are assumed: they are what they would be if unknown numbers were 0.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from ..private.access import schema_of
from ..reads.elements import Flags
from . import op_rules
from .control_tensors import ASSUMED, KNOWN, PENDING, UNKNOWN, ControlTensors
from .equivalents import EQUIVALENTS
from .host_views import NoHostView, Place
from .kept_ops import KeptOp
from .unknown_elements import UnknownElements, tensors_in

if TYPE_CHECKING:
    from torch import Tensor, dtype

Kernel = Callable[..., Any]
"""`kernel(keyset, *args, **kwargs)`, as the dispatcher calls it."""
_NUMBERS = frozenset((int, float, bool, complex))
_CHOOSING = {"aten::where": (0, 1, 2), "aten::masked_fill": (1, 2, 0)}
"""Operations that choose between two values: the places of the condition and of what it chooses if true, or false."""
_NUMBER = "_phantora_number"
"""Name of an attribute of tensors that stand for a number and have fewer digits: the number."""


def number_of(value: Any) -> Any:
    """Returns the number that a tensor stands for, see NumberWrapper; other values as they are."""
    return getattr(value, _NUMBER, value)


def as_tuple(result: Any) -> tuple[Any, ...]:
    """Returns the results of an operation that returns one value or several."""
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def flat(values: Iterable[Any]) -> list[Any]:
    """Returns the values, and those of lists among them, in one list."""
    return [one for value in values for one in (flat(value) if isinstance(value, (list, tuple)) else [value])]


class Computed(NamedTuple):
    """The values that an operation writes and returns."""

    values: list[Any]
    unknown: list[Flags | None]
    """Flags of each value's elements that follow from what is not known; None, or nothing for a value: all of them do,
    unless all inputs are known.
    """
    assumed: bool = False
    """True if numbers that follow from what is not known are assumed: they were chosen among known ones."""


class ComputedOp:
    """Calls the CUDA kernel of one operation, and computes it on host views."""

    def __init__(self, control: ControlTensors, operation: Any, kernel: Kernel) -> None:
        schema = schema_of(operation)
        name = schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
        self.name: str = name
        self._control = control
        self._kernel = kernel
        self._on_cpu: Callable[..., Any] = EQUIVALENTS.get(name, operation)
        hidden = op_rules.HIDDEN_WRITES.get(name, ())
        arguments = list(schema.arguments)
        self._written = {
            argument.name: i
            for i, argument in enumerate(arguments)
            if (argument.alias_info is not None and argument.alias_info.is_write) or argument.name in hidden
        }
        """The arguments that the operation writes: name and position of each."""
        self._not_read = {a.name for a in arguments if a.name in self._written and a.kwarg_only}
        self._not_read.update(op_rules.NOT_READ.get(name, ()))
        self._not_read_places = {i for i, a in enumerate(arguments) if a.name in self._not_read}
        self._scales_self = any(a.name == "beta" for a in arguments) and arguments[0].name == "self"
        """True if the first argument is multiplied by `beta`; if that is 0, it is not read (`mv` passes its empty
        result).
        """
        self.reads_first = 0 not in self._not_read_places and not self._scales_self
        self.writes = bool(self._written)
        self._compares = name in ("aten::eq.Tensor", "aten::ne.Tensor")
        self._rule = UnknownElements(operation, control.not_known) if UnknownElements.has_rule(operation) else None
        self._kept = KeptOp(control, self) if KeptOp.serves(name) else None
        given_back = op_rules.GIVEN_BACK.get(name, ())
        self._fresh = [i for i, r in enumerate(schema.returns) if r.alias_info is None and i not in given_back]
        """Places of results that are new tensors."""

    # ---- arguments -------------------------------------------------------------------------------------------------
    def read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Returns the arguments that a call reads."""
        first = 1 if self._scales_self and kwargs.get("beta", 1) == 0 else 0
        values = [value for i, value in enumerate(args[first:], first) if i not in self._not_read_places]
        if kwargs:
            values += [value for name, value in kwargs.items() if name not in self._not_read]
        return values

    def written(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
        """Returns the tensors that a call writes to."""
        if not self._written:
            return []
        return self._control.all_tensors(self._written_values(args, kwargs))

    def _overwrite(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Makes the tensors unknown that a call writes to."""
        self._control.overwrite(self.written(args, kwargs))

    def _written_values(self, args: Any, kwargs: dict[str, Any]) -> list[Any]:
        return [kwargs.get(name) if i >= len(args) else args[i] for name, i in self._written.items()]

    # ---- the call --------------------------------------------------------------------------------------------------
    def call(self, keyset: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the kernel's results."""
        control = self._control
        values_read = self.read(args, kwargs)
        reads = control.small(values_read)
        writes = self.written(args, kwargs)
        if reads is None or not all(map(control.is_small, writes)):
            return self.call_uncomputed(keyset, args, kwargs)
        labels = control.use(reads, compares=self._compares and len(reads) > 1)
        read_places = [Place(tensor) for tensor in reads]
        on_host = control.unknown_on_host(values_read)
        if control.capturing():
            return self._call_later(keyset, args, kwargs, read_places, on_host)
        state = control.state(read_places)
        if state == KNOWN and on_host:
            state = UNKNOWN
        chosen = labels or control.chosen(read_places)
        # An earlier operation that is deferred has yet to read or write there: this one must come after it.
        if writes and control.in_use(map(Place, writes)):
            state = PENDING
        if state == PENDING:
            return self._call_later(keyset, args, kwargs, read_places, on_host)
        if not writes:
            marks = control.marks.value
            result = self._kernel(keyset, *args, **kwargs)
            self._after(args, kwargs, result, state, marks, reads)
            if chosen:
                self._mark_chosen(self._targets(args, kwargs, result))
            return result
        if state != KNOWN and not _has_integers(writes, control) and not self._partly_known(reads):
            marks = control.marks.value
            result = self._kernel(keyset, *args, **kwargs)
            if self._fresh:
                self._after(args, kwargs, result, state, marks, reads)
            self._overwrite(args, kwargs)
            return result
        # Kernels call other operations, which are computed, too: the inputs may change while the kernel is called.
        values = self._values(args, kwargs, state)
        result = self._kernel(keyset, *args, **kwargs)
        targets = self._targets(args, kwargs, result)
        self._put(targets, values, state)
        if chosen:
            self._mark_chosen(targets)
        return result

    def _partly_known(self, reads: list[Tensor]) -> bool:
        """Says whether elements of the results can be known although not all of these inputs are."""
        return self._rule is not None and self._rule.may_tell(reads)

    def _mark_chosen(self, targets: list[Any]) -> None:
        """Notes that what is known of the targets follows from a choice."""
        control = self._control
        for tensor in control.all_tensors(targets):
            place = Place(tensor)
            if control.peek(place) == KNOWN or (control.is_small(tensor) and control.not_known(tensor) is not True):
                control.mark_chosen(place)

    def call_uncomputed(self, keyset: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls the operation on large tensors: what the kernel writes is unknown, unless all inputs are known.

        The allocator gives out a graph's memory only while the graph is captured. At a launch, the memory of a new
        tensor may hold what was computed for a tensor that had it before, so it becomes unknown again.
        """
        control = self._control
        plan = None
        if self._kept is not None and not control.unknown_on_host(self.read(args, kwargs)):
            plan = self._kept.plan(args, kwargs)
        if self._kept is not None and plan is not None:
            result = self._kernel(keyset, *args, **kwargs)
            self._kept.put(plan, self._targets(args, kwargs, result))
            return result
        marks = control.marks.value
        result = self._kernel(keyset, *args, **kwargs)
        if self._written:
            self._overwrite(args, kwargs)
        if control.marks.value != marks or control.capturing():
            control.overwrite(control.all_tensors(self._new(result)))
        return result

    def _new(self, result: Any) -> list[Any]:
        if not self._fresh or result is None:
            return []
        results = as_tuple(result) if len(self._fresh) > 1 or self._fresh != [0] else (result,)
        return [results[i] for i in self._fresh if i < len(results)]

    def _after(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, state: int, marks: int, reads: list[Tensor]
    ) -> None:
        """Computes the new tensors that the kernel has returned. `marks`: what `control.marks` was before its call."""
        control = self._control
        slots = self._targets(args, kwargs, result)
        targets = control.all_tensors(slots)
        computable = state == KNOWN or _has_integers(targets, control) or self._partly_known(reads)
        if targets and computable and all(map(control.is_small, targets)):
            self._put(slots, self._values(args, kwargs, state), state)
            return
        plan = self._kept.plan(args, kwargs) if self._kept and state == KNOWN else None
        if self._kept is not None and plan is not None:
            self._kept.put(plan, slots)
        elif control.marks.value != marks:
            # The allocator has just given out the outputs, which makes them unknown. But some kernels first call other
            # operations, which fill them, and then launch what is not executed.
            control.overwrite(control.all_tensors(self._new(result)))

    def _call_later(
        self, keyset: Any, args: tuple[Any, ...], kwargs: dict[str, Any], reads: list[Place], on_host: bool
    ) -> Any:
        """Calls the kernel, and computes when the inputs have arrived, or at the launches of the graph. `on_host`: a
        scalar of the host's among them is unknown.
        """
        control = self._control
        # Operations that the kernel calls would be computed now, from inputs that are not there yet.
        nested, control.nested = control.nested, control.nested or self.writes
        try:
            result = self._kernel(keyset, *args, **kwargs)
        finally:
            control.nested = nested
        slots = self._targets(args, kwargs, result)
        targets = control.all_tensors(slots)
        if not targets:
            return result
        try:
            if not all(map(control.is_small, targets)):
                raise NoHostView
            cpu_args, cpu_kwargs = control.unrecorded(lambda: self._on_host(args, kwargs))
            views = control.unrecorded(lambda: self._views(slots))
        except NoHostView:
            control.overwrite(targets)
            return result

        def compute() -> None:
            state = control.state(reads)
            if state == KNOWN and on_host:
                state = UNKNOWN
            try:
                self._write(views, self._compute(cpu_args, cpu_kwargs, state), state)
            except op_rules.device_assert():
                self._write(views, None, state)

        places = [view[1] for view in views if view is not None]
        control.perform(targets[0].device.index, reads, places, compute, later=True)
        return result

    # ---- values ----------------------------------------------------------------------------------------------------
    def _on_host(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        cpu_args = self._control_views(args)
        cpu_kwargs = {name: self._control_views((value,))[0] for name, value in kwargs.items()}
        if "device" in cpu_kwargs:
            cpu_kwargs["device"] = "cpu"
        return cpu_args, cpu_kwargs

    def _control_views(self, values: Iterable[Any]) -> list[Any]:
        control = self._control
        views: list[Any] = []
        for value in values:
            if isinstance(value, control.tensor_type):
                views.append(control.host_view(value) if value.is_cuda else getattr(value, _NUMBER, value))
            elif isinstance(value, (list, tuple)) and value and not isinstance(value[0], (int, float)):
                views.append(self._control_views(value))
            else:
                views.append(value)
        return views

    def _values(self, args: tuple[Any, ...], kwargs: dict[str, Any], state: int) -> Computed | None:
        """Returns the values that the operation writes and returns; None if it cannot be computed here. Raises
        `device_assert`.
        """

        def values() -> Computed | None:
            try:
                cpu_args, cpu_kwargs = self._on_host(args, kwargs)
            except NoHostView:
                return None
            return self._compute(cpu_args, cpu_kwargs, state)

        found: Computed | None = self._control.unrecorded(values)
        return found

    def on_host(self, cpu_args: list[Any], cpu_kwargs: dict[str, Any]) -> list[Any] | None:
        """Returns the values that the operation writes and returns, computed of known values on the CPU. None if it
        cannot be computed there.
        """
        if "device" in cpu_kwargs:
            cpu_kwargs["device"] = "cpu"
        return self._run(cpu_args, cpu_kwargs, KNOWN)

    def _compute(self, cpu_args: list[Any], cpu_kwargs: dict[str, Any], state: int) -> Computed | None:
        unknown: list[Flags | None] = []
        given = cpu_args
        if state != KNOWN:
            read = list(tensors_in(self.read(tuple(cpu_args), cpu_kwargs)))
            if self._partly_known(read) and self._rule is not None:
                unknown = self._rule.of(
                    read, cpu_args, cpu_kwargs, lambda *args, **kwargs: self._run(args, kwargs, state) or []
                )
            cpu_args = [self._assumed(v) for v in cpu_args]
            cpu_kwargs = {n: self._assumed(v) for n, v in cpu_kwargs.items()}
        assumed = state != KNOWN and self._chooses_known(given)
        values = self._run(cpu_args, cpu_kwargs, state)
        return None if values is None else Computed(values, unknown, assumed)

    def _chooses_known(self, cpu_args: list[Any]) -> bool:
        """Says whether an assumed condition chooses among known numbers, and none that is not known."""
        control, name = self._control, self.name.partition(".")[0]
        if name not in _CHOOSING or len(cpu_args) != 3:
            return False
        condition, if_true, if_false = (cpu_args[i] for i in _CHOOSING[name])
        if not isinstance(condition, control.tensor_type) or control.state_of(Place(condition)) != ASSUMED:
            return False
        for value, chosen in ((if_true, condition), (if_false, ~condition)):
            found = control.not_known(value) if isinstance(value, control.tensor_type) else False
            if found is not False and bool(chosen.any()):
                return False
        return True

    def _run(self, args: Sequence[Any], kwargs: dict[str, Any], state: int) -> list[Any] | None:
        cpu_args, cpu_kwargs = list(args), dict(kwargs)
        for name, i in self._written.items():
            if i < len(cpu_args):
                cpu_args[i] = _cloned(cpu_args[i])
            elif name in cpu_kwargs:
                cpu_kwargs[name] = _cloned(cpu_kwargs[name])
        written = self._written_values(cpu_args, cpu_kwargs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                result = self._on_cpu(*cpu_args, **cpu_kwargs)
            except (NotImplementedError, NoHostView):
                return None
            except (RuntimeError, IndexError, ValueError) as error:
                if state == KNOWN and (isinstance(error, IndexError) or any(t in str(error) for t in op_rules.ASSERTS)):
                    raise op_rules.device_assert()(f"{self.name.removeprefix('aten::')} says: {error}") from None
                return None
        return flat([*written, *self._new(result)])

    def _assumed(self, value: Any) -> Any:
        """Returns what stands for the value: 0 for unknown numbers, the identity for an unknown matrix that is
        factorised.
        """
        import torch

        control = self._control
        if isinstance(value, control.tensor_type):
            unknown = control.not_known(value)
            if unknown is False or control.state_of(Place(value)) == ASSUMED:
                return value
            zeros = value.new_zeros(value.shape, device="cpu")
            if self.name.partition(".")[0] in op_rules.FACTORISE and zeros.dim() > 1:
                zeros.diagonal(dim1=-2, dim2=-1).fill_(1)
            elif unknown is not True:
                zeros = zeros.where(zeros.new_tensor(unknown, dtype=torch.bool).view(value.shape), value)
            return zeros
        if isinstance(value, list):
            return [self._assumed(item) for item in value]
        return value

    def _targets(self, args: Any, kwargs: dict[str, Any], result: Any) -> list[Any]:
        """Returns the tensors that the kernel has written and returned, in the order of `_compute`'s values."""
        return flat([*self._written_values(args, kwargs), *self._new(result)])

    def _views(self, targets: list[Any]) -> list[tuple[Tensor, Place] | None]:
        control = self._control
        return [
            (control.host_view(target), Place(target))
            if isinstance(target, control.tensor_type) and target.is_cuda
            else None
            for target in targets
        ]

    def _put(self, targets: list[Any], values: Computed | None, state: int) -> None:
        control = self._control
        try:
            views = control.unrecorded(lambda: self._views(targets))
        except NoHostView:
            control.overwrite(control.all_tensors(targets))
            return
        places = [view[1] for view in views if view is not None]
        if control.in_use(places):  # the memory was that of a tensor that a deferred operation has yet to read
            control.defer([], places, lambda: self._write(views, values, state))
        else:
            control.unrecorded(lambda: self._write(views, values, state))

    def _write(self, views: list[tuple[Tensor, Place] | None], computed: Computed | None, state: int) -> None:
        control = self._control
        values: list[Any] = [None] * len(views)
        if computed is not None and len(computed.values) == len(views):
            values = computed.values
        unknown = computed.unknown if computed is not None else ()
        for at, value, flags in zip_longest(views, values, islice(unknown, len(views))):
            if at is None:
                continue
            view, place = at
            if value is None or value.shape != view.shape:
                control.mark(place, UNKNOWN)
                continue
            uncertain = ASSUMED if view.dtype in control.integers or (computed and computed.assumed) else UNKNOWN
            if flags is not None and len(flags) != view.numel():
                flags = None
            if state == KNOWN or flags is not None or uncertain == ASSUMED:
                view.copy_(value)
            control.mark(place, KNOWN if state == KNOWN or flags is not None else uncertain)
            if state != KNOWN and flags is not None:
                control.mark_elements(view, flags, uncertain)


def _has_integers(tensors: list[Tensor], control: ControlTensors) -> bool:
    return any(tensor.dtype in control.integers for tensor in tensors)


def _cloned(value: Any) -> Any:
    if isinstance(value, list):
        return [_cloned(item) for item in value]
    return value.clone() if hasattr(value, "clone") else value


class NumberWrapper:
    """Makes tensors of the Python numbers among a call's arguments where the operation's schema has tensors.

    The dispatcher passes such numbers unwrapped; CUDA kernels need tensors. Zero-dimensional tensors of the default
    dtypes promote types as the numbers would.
    """

    def __init__(self, control: ControlTensors, operation: Any) -> None:
        import torch

        self._torch = torch
        self._unrecorded = control.unrecorded
        self.places = tuple(i for i, a in enumerate(schema_of(operation).arguments) if str(a.type) == "Tensor")
        self._wide = (torch.float64, torch.complex128)
        self._wrapped: dict[tuple[type, complex, dtype | None], Tensor] = {}

    def wrap(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Returns the arguments with tensors in place of these numbers."""
        for place in self.places:
            if place < len(args) and type(args[place]) in _NUMBERS:
                args = (*args[:place], self._tensor(args[place], args), *args[place + 1 :])
        return args

    def _tensor(self, value: complex, args: tuple[Any, ...]) -> Tensor:
        torch, kind = self._torch, type(value)
        others = [other for other in args if isinstance(other, torch.Tensor)]
        dtype = None
        if others and not any(other.dim() for other in others):
            # Beside a tensor of no dimensions, one of a default dtype would win: the result's dtype is given.
            dtype = functools.reduce(torch.promote_types, (torch.result_type(other, value) for other in others))
        elif kind in (float, complex) and any(other.dtype in self._wide for other in others):
            dtype = self._wide[kind is complex]
        tensor = self._wrapped.get((kind, value, dtype))
        if tensor is None:
            if len(self._wrapped) >= 256:
                self._wrapped.clear()
            tensor = self._unrecorded(lambda: torch.tensor(value, dtype=dtype, device="cpu"))
            if dtype is not None and dtype not in self._wide:
                setattr(tensor, _NUMBER, value)
            self._wrapped[kind, value, dtype] = tensor
        return tensor
