"""The state that all functions before torch's CUDA kernels share: which tensors are computed, and what is known of
them.

A tensor is small if its elements are at most `limit_numel` (integers and bools) or `float_limit_numel` (others). The
hook library keeps for every byte of device memory one of these states:

known     something modelled wrote it: a copy from the host, a computed operation
assumed   it follows from values that nobody computed, which count as finite numbers or zeros
pending   it has yet to arrive from another rank, in a small collective
unknown   anything else
"""

from __future__ import annotations

import ctypes
import functools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..interpreter.hook_library import Hook
from ..interpreter.nvtx_ranges import recording
from ..private.changes import changes
from ..reads.elements import Flags, flags_in, pieces
from ..reads.uncomputed import UncomputedReads
from .captured import CapturedOps
from .host_views import HostViews, NoHostView, Place

if TYPE_CHECKING:
    from torch import Tensor


class MemoryRange(Protocol):
    """A stretch of device memory, such as a Place."""

    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...


UNKNOWN, KNOWN, PENDING, ASSUMED, KEPT = range(5)
"""The states of bytes, with the numbers that they have in emu/hook/data/strided.c."""


class _Alone(threading.local):
    """The state of a thread that calls a kernel for its time alone."""

    on = False
    """True while a kernel is called for its time alone: what it reads decides nothing."""


class _Aside(threading.local):
    """The state of a thread that calls operations which the script did not call."""

    on = False
    """True while such operations are called."""


class ControlTensors:
    """The small tensors of one process."""

    reads: UncomputedReads
    """This object is told of values that the program reads although nobody computed them."""
    float_limit_numel: int
    """The most elements of a small tensor that has no integers."""

    def __init__(self, hook: Hook, limit_numel: int) -> None:
        """Made before the run's job is known: `begin` says the rest."""
        import torch

        self.hook = hook
        self.limit_numel = limit_numel
        self.tensor_type = torch.Tensor
        self._strided = torch.strided
        self.integers = frozenset((torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64))
        self.marks_checks = False
        """True once any place has been marked as a check for overflow."""
        self._views = HostViews(hook)
        self._deferred: dict[int, Callable[[], None]] = {}
        self._last_deferred = 0
        self._submit = hook.action(self._run_deferred)
        self._captured = CapturedOps(hook, self.unrecorded)
        self.capturing = self._captured.capturing
        self.marks = hook.data_marks()
        """Its `value` changes whenever bytes become known, assumed or a reference, now or later."""
        self._choices = False
        self.nested = False
        """True while a kernel is called whose operation is computed later: then operations that it calls are not
        computed.
        """
        self.alone = _Alone()
        self.aside = _Aside()
        self.any_size: OrderedDict[int, None] = OrderedDict()
        """Addresses of the memory of tensors that count as small whatever their size, in the order in which they were
        added.
        """
        self.unused_choices: dict[int, tuple[weakref.ref[Tensor], Callable[[bool], None]]] = {}
        """Indices that the routing policy chose and that nobody has used yet, by the address of their memory; each with
        the function to call when they are used, which is told whether that is a comparison with labels.
        """
        self.at_read: Callable[[Tensor], None] = lambda tensor: None
        """This function is called before the program reads a number."""
        names = changes.usable("op ranges")
        self._enable_record_function: Callable[[bool], object] = (
            (lambda on: None) if names is None else names.get("_enable_record_function")
        )

    def begin(self, float_limit_numel: int, reads: UncomputedReads) -> None:
        """Says what the run's job decides, before any tensor is on the device."""
        self.float_limit_numel, self.reads = float_limit_numel, reads

    # ---- tensors of a call -----------------------------------------------------------------------------------------
    def is_small(self, tensor: Tensor) -> bool:
        numel = tensor.numel()
        return (
            numel <= self.float_limit_numel
            or (numel <= self.limit_numel and tensor.dtype in self.integers)
            or (bool(self.any_size) and tensor.untyped_storage().data_ptr() in self.any_size)
        )

    def small(self, values: Iterable[Any]) -> list[Tensor] | None:
        """Returns the CUDA tensors among a call's arguments or results, and in lists of them; None if one is not
        small."""
        found: list[Tensor] = []
        for value in values:
            if isinstance(value, self.tensor_type):
                if not self.is_small(value):
                    return None
                if value.is_cuda:
                    found.append(value)
            elif isinstance(value, (list, tuple)) and value and not isinstance(value[0], (int, float)):
                inner = self.small(value)
                if inner is None:
                    return None
                found += inner
        return found

    def all_tensors(self, values: Iterable[Any]) -> list[Tensor]:
        """Returns all CUDA tensors among the values and in lists of them, whatever their size; of sparse ones
        operations on their indices and values tell.
        """
        found: list[Tensor] = []
        for value in values:
            if isinstance(value, self.tensor_type):
                if value.is_cuda and value.layout is self._strided:
                    found.append(value)
            elif isinstance(value, (list, tuple)) and value and not isinstance(value[0], (int, float)):
                found += self.all_tensors(value)
        return found

    def computed_at_any_size(self, tensor: Tensor) -> None:
        """Lets operations that read the tensor's memory be computed although it is not small."""
        self.any_size[tensor.untyped_storage().data_ptr()] = None
        if len(self.any_size) > 64:
            self.any_size.popitem(last=False)

    def find_view(self, tensor: Tensor) -> Tensor | None:
        """Returns the CPU tensor over the same bytes, None if there is none. Call it within `unrecorded`."""
        return self._views.view(tensor)

    def host_view(self, tensor: Tensor) -> Tensor:
        """Returns the CPU tensor over the same bytes. Raises NoHostView. Call it within `unrecorded`."""
        view = self._views.view(tensor)
        if view is None:
            raise NoHostView
        return view

    # ---- what is known of them -------------------------------------------------------------------------------------
    def state(self, places: Iterable[Place]) -> int:
        """Returns PENDING if one of them is, else UNKNOWN if one of them is, else ASSUMED if one of them is, else
        KNOWN.
        """
        worst = KNOWN
        kept: list[Place] = []
        for place in places:
            state = self.peek(place)
            if state == PENDING:
                return PENDING
            if state == KEPT:
                kept.append(place)
            elif state == UNKNOWN or (state == ASSUMED and worst == KNOWN):
                worst = state
        for place in kept if worst != UNKNOWN else ():
            state = self.state_of(place)
            if state != KNOWN and worst != UNKNOWN:
                worst = state
        return worst

    def peek(self, place: Place) -> int:
        """Returns the state of the place's bytes if nothing needs to be computed to know it; else KEPT."""
        if place.dense:
            return self.hook.data_peek(place.address, place.nbytes)
        n, sizes, strides = _dimensions(place)
        return self.hook.data_strided_peek(place.address, place.item, n, sizes, strides)

    def state_of(self, place: Place) -> int:
        if place.dense:
            return self.hook.data_state(place.address, place.nbytes)
        n, sizes, strides = _dimensions(place)
        return self.hook.data_strided_state(place.address, place.item, n, sizes, strides)

    def known(self, tensors: Iterable[Tensor]) -> bool:
        """Tells whether the values of all tensors are known."""
        return self.state(map(Place, tensors)) == KNOWN

    def pending(self, tensors: Iterable[Tensor]) -> bool:
        """Tells whether the values of one of the tensors are pending."""
        return self.state(map(Place, tensors)) == PENDING

    def in_use(self, places: Iterable[Place]) -> bool:
        """Tells whether an earlier operation that is deferred is still to read or to write one of the places."""
        return any(self.hook.data_in_use(place.address, place.nbytes) for place in places)

    def mark(self, place: Place, state: int) -> None:
        """Makes the place known, assumed or unknown from now on. Takes effect at once: it is not ordered with pending
        writes.
        """
        if place.dense and state == KNOWN:
            self.hook.data_mark_known(place.address, place.nbytes)
            return
        n, sizes, strides = _dimensions(place)
        self.hook.data_strided_mark(_MARKS[state], place.address, place.item, n, sizes, strides)

    def is_hopeless(self, value: Any) -> bool:
        """Tells, quickly, whether the value is a tensor on the device whose first byte has no value."""
        return isinstance(value, self.tensor_type) and value.is_cuda and not self.hook.data_begins(value.data_ptr())

    def mark_chosen(self, place: Place) -> None:
        """Marks the place as known, and as a choice that the program made by the routing policy."""
        self._choices = True
        self.hook.data_mark_chosen(place.address, place.nbytes)

    def chosen(self, places: Iterable[Place]) -> bool:
        """Tells whether one of the places follows from such a choice."""
        return self._choices and any(self.hook.data_chosen(place.address, place.nbytes) for place in places)

    def forget(self, place: Place) -> None:
        """Marks the place as unknown."""
        self.mark(place, UNKNOWN)

    def forget_followed(self, tensor: Tensor, flags: Flags | None = None) -> None:
        """A tensor's values follow from a number that nobody computed, which the program has given; `flags`: those of
        these elements, the others are known.
        """
        if self.capturing():
            return
        self.wait([tensor])
        if flags is None:
            self.forget(Place(tensor))
        else:
            self.mark_elements(tensor, flags, UNKNOWN)

    def mark_elements(self, tensor: Tensor, flags: Flags, state: int) -> None:
        """Makes the flagged elements known, assumed or unknown from now on."""
        for first, last in pieces(tensor, flags):
            size, step = (ctypes.c_int64 * 1)(last - first), (ctypes.c_int64 * 1)(1)
            self.hook.data_strided_mark(_MARKS[state], first, 1, 1, size, step)

    def flags_of_unknown(self, tensor: Tensor) -> Flags | None:
        """Returns which elements nobody computed; None: all of them, or none."""
        if tensor.layout is not self._strided or not tensor.numel():
            return None
        return flags_in(tensor, self.hook.data_unknown)

    def unknown_on_host(self, values: Iterable[Any]) -> bool:
        """Says whether a tensor of the host's among the values has elements that nobody computed: kernels get scalars
        of the host's.
        """
        host = self.reads.decisions.host
        return bool(host) and host.find_in(values) is not None

    def not_known(self, tensor: Tensor) -> bool | Flags:
        """Says whether the elements of a tensor are unknown or assumed; flags say so of each element. The tensor is on
        the device, or a host view, or of the host's.
        """
        if not tensor.numel():
            return False
        if not tensor.is_cuda and not self._views.covers(tensor.data_ptr()):
            host = self.reads.decisions.host
            return host.find(tensor) is not None and (host.flags(tensor) or True)
        return self.state_of(Place(tensor)) != KNOWN and (flags_in(tensor, self.hook.data_uncertain) or True)

    def is_unknown(self, tensor: Tensor) -> bool:
        """Tells whether this is a small floating-point tensor, on the device or in the host's memory, that nobody
        computed.
        """
        if tensor.numel() > self.float_limit_numel or not tensor.is_floating_point() or not tensor.numel():
            return False
        if not tensor.is_cuda:
            return self.reads.decisions.host.find(tensor) is not None
        return tensor.layout is self._strided and self.peek(Place(tensor)) == UNKNOWN

    def overwrite(self, tensors: Sequence[Tensor]) -> None:
        """A kernel that is not executed writes to them: now and at each launch of a graph that is being captured."""
        capturing = self.capturing()
        ranges: list[int] = []
        for tensor in tensors:
            if tensor.is_contiguous():
                ranges += (tensor.data_ptr(), tensor.numel() * tensor.element_size())
                continue
            place = Place(tensor)
            if capturing:
                self._captured.take(tensor.device.index, [], [place], functools.partial(self.mark, place, UNKNOWN))
            n, sizes, strides = _dimensions(place)
            self.hook.strided_overwrite(place.address, place.item, n, sizes, strides)
        if ranges and capturing:
            self.hook.overwrite_on(self._captured.stream(tensors[0].device.index), ranges)
        elif ranges:
            self.hook.overwrite(ranges)

    def wait(self, tensors: Iterable[Tensor]) -> None:
        """Waits until none of the tensors is pending."""
        for tensor in tensors:
            place = Place(tensor)
            self.hook.data_wait(place.address, place.nbytes)

    def values_to_come(self, tensor: Tensor) -> list[Any] | None:
        """Returns the elements of a small tensor on the GPU; None if they are not known. Waits for what has yet to
        arrive from other ranks, so that what follows does not depend on when it does.
        """
        if not tensor.is_cuda or not self.small([tensor]) or self.capturing():
            return None
        self.wait([tensor])
        if self.state_of(Place(tensor)) != KNOWN:
            return None
        view = self.unrecorded(lambda: self.find_view(tensor))
        return None if view is None else list(self.unrecorded(view.tolist))

    # ---- computing -------------------------------------------------------------------------------------------------
    def unrecorded(self, work: Callable[[], Any]) -> Any:
        """Runs `work` without announcing its ops to profilers and NVTX, and without following values of the host's
        through them: the script did not call them.
        """
        self._enable_record_function(False)
        aside, self.aside.on = self.aside.on, True
        try:
            return work()
        finally:
            self.aside.on = aside
            self._enable_record_function(recording.on)

    def perform(
        self, device: int, reads: Sequence[Place], writes: Sequence[Place], work: Callable[[], None], *, later: bool
    ) -> None:
        """Calls `work`: at each launch of the graph if one is being captured, else now, or if `later` when no read is
        pending and no write is in use any more. `work` must not raise.
        """
        if self._captured.take(device, reads, writes, work):
            return
        if later:
            self.defer(reads, writes, work)
        else:
            self.unrecorded(work)

    def compute_when_arrived(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        compute: Callable[[bool], None],
        *,
        chosen: bool = False,
    ) -> None:
        """Calls `compute(known)` as `perform` says. `known`: all inputs are known; then the outputs are known
        afterwards, otherwise unknown. `chosen`: they are a choice of the program's by the routing policy.
        """
        reads, writes = [Place(tensor) for tensor in inputs], [Place(tensor) for tensor in outputs]

        def work() -> None:
            known = self.state(reads) == KNOWN
            compute(known)
            for place in writes:
                self.mark(place, KNOWN if known else UNKNOWN)
                if known and chosen:
                    self.mark_chosen(place)

        later = self.state(reads) == PENDING or self.in_use(writes)
        self.perform(outputs[0].device.index, reads, writes, work, later=later)

    def use(self, tensors: Sequence[Tensor], *, compares: bool = False) -> bool:
        """Notes that the tensors are read by the program or by an operation that is computed. `compares`: with each
        other, element by element. Returns whether some are choices that are compared with labels: experts are compared
        with numbers.
        """
        used = False
        for tensor in tensors if self.unused_choices else ():
            owner, report = self.unused_choices.pop(tensor.untyped_storage().data_ptr(), (None, None))
            if owner is not None and report is not None and owner() is not None:
                report(compares and all(other.shape == tensor.shape for other in tensors))
                used = True
        return used and compares and len({tensor.shape for tensor in tensors}) == 1

    def defer(self, reads: Sequence[MemoryRange], writes: Sequence[MemoryRange], work: Callable[[], None]) -> None:
        """Calls `work` when no read and no write is pending any more: perhaps at once, else on another thread.

        `work` holds addresses, not tensors: these must not live longer than on a GPU. It must not raise.
        """
        self._last_deferred += 1
        self._deferred[self._last_deferred] = work
        self._submit(
            [part for place in reads for part in (place.address, place.nbytes)],
            [part for place in writes for part in (place.address, place.nbytes)],
            self._last_deferred,
        )

    def _run_deferred(self, number: int) -> None:
        """Runs a deferred computation. Called by the hook library."""
        self.unrecorded(self._deferred.pop(number))


_MARKS = {UNKNOWN: 0, KNOWN: 1, ASSUMED: 2}


def _dimensions(place: Place) -> tuple[int, Any, Any]:
    if place.dense:
        return 1, (ctypes.c_int64 * 1)(place.nbytes // place.item), (ctypes.c_int64 * 1)(1)
    n = len(place.sizes)
    return n, (ctypes.c_int64 * n)(*place.sizes), (ctypes.c_int64 * n)(*place.strides)
