"""The functions before operations whose results have sizes that follow from values.

Where the values are known, they are computed. Where they are not, the policy says how many elements there are, and
these are spread evenly. What follows (indices, and the mask itself) is known from then on, so that sizes that depend on
each other agree; reading it is reported like a choice of `--moe`.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ...private.access import schema_of
from .. import read_warnings
from ..computed_op import Kernel, as_tuple
from ..control_tensors import ASSUMED, KNOWN, UNKNOWN, ControlTensors
from ..device_ops import any_op
from ..host_reads import kernel_alone, values_on_host
from ..host_views import Place
from .chosen_sizes import ChosenSizes

if TYPE_CHECKING:
    from torch import Tensor

Maker = Callable[[ControlTensors, Any, Kernel], Kernel]
_REMEMBERED = 64
"""The number of masks that are remembered because they may have been compared, and because the program may read their
counts.
"""
_EITHER: dict[str, Callable[[int], tuple[int, int]]] = {
    "eq": lambda number: (number, number - 1 if number > 0 else number + 1),
    "ge": lambda number: (number, number - 1),
    "gt": lambda number: (number + 1, number),
    "le": lambda number: (number, number + 1),
    "lt": lambda number: (number - 1, number),
}
"""Comparisons with a number: an integer for which one holds, and an integer for which it does not."""


class _Compared(NamedTuple):
    """A mask says for which of these integers a comparison holds."""

    mask: weakref.ref[Tensor]
    integers: weakref.ref[Tensor]
    version: int
    """The version of the integers when they were compared: they have been written since then if theirs has changed."""
    either: tuple[int, int]


class _Forced(threading.local):
    """The sizes that a thread's calls must have, whatever the policy says."""

    writing = False
    """True while a tensor is written through a mask: the program then gets no tensor of such a size."""
    size: int | None = None
    """The number of elements that are written there; None: one for all."""
    found: Callable[[], int | None] | None = None
    """Returns how many elements the kernel finds that runs now, None if that is not known."""


class SizedOps:
    """The operations with such sizes, in one process."""

    def __init__(self, control: ControlTensors) -> None:
        self.sizes = ChosenSizes(control.hook)
        self._control = control
        self._forced = _Forced()
        self._compared: dict[int, _Compared] = {}
        """The comparisons that masks come from, by the mask's address."""
        self._sums: dict[int, tuple[weakref.ref[Tensor], weakref.ref[Tensor]]] = {}
        """Sums of masks, by the address of their memory: how many elements of a mask hold, and the mask."""
        self._counted: dict[int, weakref.ref[Tensor]] = {}
        """Masks whose count the program has read, as 0, by their address."""
        self.makers: dict[str, Maker] = {
            "aten::nonzero": self._nonzero,
            **dict.fromkeys(("aten::_unique", "aten::_unique2"), self._unique),
            **dict.fromkeys(("aten::unique_consecutive",), self._unique),
            **dict.fromkeys(("aten::unique_dim", "aten::unique_dim_consecutive"), self._unique),
            "aten::repeat_interleave.Tensor": self._repeat_interleave,
            "aten::_index_put_impl_": self._write_masked,
            **dict.fromkeys(("aten::sum.dim_IntList", "aten::count_nonzero.dim_IntList"), self._count),
            **dict.fromkeys((f"aten::{name}.Scalar" for name in _EITHER), self._compare),
        }
        control.at_read = self._note_read

    @contextlib.contextmanager
    def finding(self, found: Callable[[], int | None]) -> Iterator[None]:
        """A context in which the kernel of a library's operation runs, and counts the elements of a mask that it has
        made: `found` says how many these are, None if that is not known.
        """
        before, self._forced.found = self._forced.found, found
        try:
            yield
        finally:
            self._forced.found = before

    # ---- operations ------------------------------------------------------------------------------------------------
    def _nonzero(self, control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
        def call(keyset: Any, tensor: Tensor) -> Any:
            values, state = values_on_host(control, tensor)
            if state == KNOWN or not self.is_free(tensor, state):
                chosen = self.note(tensor, state)
                if values is None:
                    values = control.unrecorded(lambda: _zeros(tensor))
                found = control.unrecorded(values.nonzero)
                made = kernel_alone(control, kernel, keyset, tensor, elements=found.size(0))
                return given(control, made, found, state, chosen=chosen)
            size, found = self._chosen_nonzero(tensor)
            made = kernel_alone(control, kernel, keyset, tensor, elements=size)
            return made if found is None else given(control, made, found, KNOWN, chosen=True)

        return call

    def _chosen_nonzero(self, tensor: Tensor) -> tuple[int, Tensor | None]:
        """Returns how many elements are not zero, and their places; None in place of these if they are more integers
        than are computed.
        """
        import torch

        control, numel = self._control, tensor.numel()
        forced, classes = self._forced, None
        if forced.found is not None and (known := forced.found()) is not None:
            return min(known, numel), None
        if forced.writing:
            size = min(numel if forced.size is None else forced.size, numel)
        else:
            classes = self._classes(tensor)
            size = self.sizes.choose("nonzero", numel, of_classes=classes is not None)
            self.warn(tensor, size, numel)
        if size * tensor.dim() > control.limit_numel:
            return size, None

        def places() -> tuple[Tensor, Tensor]:
            flat = _spread(size, numel)
            return flat, torch.stack(torch.unravel_index(flat, tensor.shape), 1)

        if not tensor.dim():
            return size, control.unrecorded(lambda: torch.empty(size, 0, dtype=torch.int64, device="cpu"))
        flat, found = control.unrecorded(places)
        if tensor.dtype == torch.bool and control.is_small(tensor) and not forced.writing:
            self._settle(tensor, flat, (1, 0))
            if classes is not None:
                self._settle(classes[0], flat, classes[1])
        return size, found

    def _settle(self, tensor: Tensor, flat: Tensor, either: tuple[int, int]) -> None:
        """Makes the tensor have the first number in these elements from now on, and the other one elsewhere."""
        control, place, numel = self._control, Place(tensor), tensor.numel()
        view = control.unrecorded(lambda: control.find_view(tensor))
        if view is None:
            return

        def write() -> None:
            view.copy_(flat.new_full((numel,), either[1]).index_fill_(0, flat, either[0]).view(view.shape))
            control.mark(place, KNOWN)
            control.mark_chosen(place)

        control.perform(tensor.device.index, [], [place], write, later=control.in_use([place]))

    def _compare(self, control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
        """Classes or levels: each element of the integers can be one of them alone."""
        computed = any_op(control, operation, kernel)
        either = _EITHER[schema_of(operation).name.removeprefix("aten::")]

        def call(keyset: Any, tensor: Tensor, number: Any) -> Any:
            result = computed(keyset, tensor, number)
            integers = tensor.dtype in control.integers and tensor.dim() and type(number) is int
            if integers and control.is_small(tensor) and control.peek(Place(tensor)) in (ASSUMED, UNKNOWN):
                compared = _Compared(weakref.ref(result), weakref.ref(tensor), _version(tensor), either(number))
                _remember(self._compared, result.data_ptr(), compared)
            return result

        return call

    def _classes(self, mask: Tensor) -> tuple[Tensor, tuple[int, int]] | None:
        """Returns the integers that the mask is about, and what they may be; None if it is about something else."""
        found = self._compared.get(mask.data_ptr())
        if found is None or found.mask() is not mask:
            return None
        integers = found.integers()
        if integers is None or _version(integers) != found.version:
            return None
        return (integers, found.either) if self._control.state_of(Place(integers)) in (ASSUMED, UNKNOWN) else None

    def _unique(self, control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
        name = schema_of(operation).name.removeprefix("aten::")
        sorts = name in ("_unique", "_unique2")

        def call(keyset: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            values, state = values_on_host(control, tensor)
            small = control.is_small(tensor)
            most = _most_distinct(tensor, args[0] if "dim" in name else kwargs.get("dim", _argument(name, args)))
            free = self.is_free(tensor, state) and most > 0
            result = kernel_alone(control, kernel, keyset, tensor, *args, **kwargs)
            if sorts:  # the GPU's kernel always does
                args, kwargs = (True, *args[1:]), {key: value for key, value in kwargs.items() if key != "sorted"}
            if state == KNOWN or not free:
                chosen = self.note(tensor, state)
                if values is None:
                    if not small:
                        return result
                    values = control.unrecorded(lambda: _zeros(tensor))
                found = control.unrecorded(lambda: operation(values, *args, **kwargs))
                return tuple(_to_device(control, value, tensor, state, chosen=chosen) for value in as_tuple(found))
            size = self.sizes.choose(name.lstrip("_").rstrip("2"), most)
            size = max(size, 1)
            self.warn(tensor, size, most)
            return self._chosen_unique(operation, tensor, most, size, args, kwargs)

        return call

    def _chosen_unique(
        self, operation: Any, tensor: Tensor, most: int, size: int, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Tensor, ...]:
        """Gives `size` distinct numbers in the place of the values; where they are, and how often, is known."""
        import torch

        control = self._control

        def stand_in() -> Any:
            numel = tensor.numel()
            if "dim" in schema_of(operation).name:
                dim = args[0] % tensor.dim()
                shape = [-1 if d == dim else 1 for d in range(tensor.dim())]
                numbers = (torch.arange(tensor.size(dim), device="cpu") * size // tensor.size(dim)).view(shape)
                return operation(numbers.expand(tensor.shape).contiguous(), *args, **kwargs)
            numbers = torch.arange(numel, device="cpu") * size // numel
            return operation(numbers.view(tensor.shape), *args, **kwargs)

        values, *rest = as_tuple(control.unrecorded(stand_in))
        out = torch.empty(values.shape, dtype=tensor.dtype, device=tensor.device)
        return out, *(_to_device(control, value, tensor, KNOWN, chosen=True) for value in rest)

    def _repeat_interleave(self, control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
        """Makes the function before `repeat_interleave`: each element is repeated at most once, as nothing says how
        often it can be.
        """
        computed = any_op(control, operation, kernel)

        def call(keyset: Any, repeats: Tensor, *args: Any, **kwargs: Any) -> Any:
            given = args[0] if args else kwargs.get("output_size")
            if given is not None or not repeats.numel():
                return computed(keyset, repeats, *args, **kwargs)
            _, state = values_on_host(control, repeats)
            if state == KNOWN or not self.is_free(repeats, state):
                return computed(keyset, repeats, *args, **kwargs)
            most = repeats.numel()
            size = self.sizes.choose("repeat_interleave", most)
            self.warn(repeats, size, most)
            kernel_alone(control, kernel, keyset, repeats, output_size=size)
            found = control.unrecorded(lambda: _spread(size, most).to(repeats.dtype))
            return _to_device(control, found, repeats, KNOWN, chosen=True)

        return call

    def _write_masked(self, control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
        """Makes the function before `x[mask] = values`: a mask that nobody computed has as many elements as there are
        values.
        """
        computed, forced = any_op(control, operation, kernel), self._forced

        def call(keyset: Any, tensor: Tensor, indices: Any, values: Tensor, *args: Any, **kwargs: Any) -> Any:
            before = forced.writing, forced.size
            forced.writing, forced.size = True, values.size(0) if values.dim() and values.size(0) > 1 else None
            try:
                return computed(keyset, tensor, indices, values, *args, **kwargs)
            finally:
                forced.writing, forced.size = before

        return call

    def _count(self, control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
        computed = any_op(control, operation, kernel)
        boolean = next(dtype for dtype in control.integers if str(dtype) == "torch.bool")

        def call(keyset: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            result = computed(keyset, tensor, *args, **kwargs)
            if tensor.dtype is boolean and result.numel() == 1 and control.peek(Place(tensor)) in (ASSUMED, UNKNOWN):
                _remember(self._sums, result.untyped_storage().data_ptr(), (weakref.ref(result), weakref.ref(tensor)))
            return result

        return call

    # ---- what the policy may choose --------------------------------------------------------------------------------
    def _note_read(self, tensor: Tensor) -> None:
        """Notes that the program reads a number. If it is the count of a mask, the mask has the elements that were
        read.
        """
        owner, mask = self._sums.pop(tensor.untyped_storage().data_ptr(), (None, None))
        if owner is None or mask is None or owner() is None or (masked := mask()) is None:
            return
        _remember(self._counted, masked.data_ptr(), mask)

    def is_free(self, tensor: Tensor, state: int) -> bool:
        """Tells whether nothing says what the values are. Checks for overflow find nothing, and a mask whose count has
        been read has that many.
        """
        if state == KNOWN or not tensor.numel():
            return False
        place = Place(tensor)
        if self._control.hook.data_chosen(place.address, place.nbytes) or read_warnings.prints_floats():
            return False
        counted = self._counted.get(tensor.data_ptr())
        return counted is None or counted() is not tensor

    def note(self, tensor: Tensor, state: int) -> bool:
        """Notes that the program gets a tensor whose size was computed, or taken from zeros. Returns whether a policy
        chose the values.
        """
        control = self._control
        if state == KNOWN:
            chosen = control.chosen([Place(tensor)])
            if chosen and not self._forced.writing:
                read_warnings.of_choice(control, statable=False)
            return chosen
        control.hook.count_read()
        read_warnings.of_unknown(control, tensor, state, statable=False)
        return False

    def warn(self, tensor: Tensor, size: int, most: int) -> None:
        self._control.hook.count_read()
        read_warnings.of_size(self._control, tensor, f"{size:,} of {most:,}", self.sizes.policy.text)


def _remember(kept: dict[int, Any], address: int, what: Any) -> None:
    kept.pop(address, None)
    kept[address] = what
    if len(kept) > _REMEMBERED:
        del kept[next(iter(kept))]


def _version(tensor: Tensor) -> int:
    """Returns the count of writes to the tensor; nobody counts those to one that was made in inference mode."""
    return 0 if tensor.is_inference() else tensor._version


def _argument(name: str, args: tuple[Any, ...]) -> Any:
    """Returns `dim` of `unique_consecutive`; None if it is not given."""
    return args[2] if name == "unique_consecutive" and len(args) > 2 else None


def _most_distinct(tensor: Tensor, dim: int | None) -> int:
    import torch

    if dim is not None:
        return tensor.size(dim) if tensor.dim() else 1
    bits = 1 if tensor.dtype is torch.bool else 8 * tensor.element_size()
    return min(tensor.numel(), 2**bits)


def _spread(size: int, most: int) -> Tensor:
    """Returns `size` of the numbers below `most`, at even distances."""
    import torch

    return torch.arange(size, device="cpu") * most // max(size, 1)


def _zeros(tensor: Tensor) -> Tensor:
    import torch

    return torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu")


def _to_device(control: ControlTensors, value: Tensor, like: Tensor, state: int, *, chosen: bool) -> Tensor:
    """Returns `value`, computed on the CPU, in the memory of `like`'s device. Raises NoHostView."""
    import torch

    return given(control, torch.empty(value.shape, dtype=value.dtype, device=like.device), value, state, chosen=chosen)


def given(control: ControlTensors, output: Tensor, value: Tensor, state: int, *, chosen: bool) -> Tensor:
    """Returns the tensor on the device, which has these values from now on. Raises NoHostView."""
    if output.shape != value.shape:  # the kernel does not read its count as PyTorch's do that were looked at
        return _to_device(control, value, output, state, chosen=chosen)
    if output.numel():
        view = control.unrecorded(lambda: control.host_view(output))
        place = Place(output)

        def write() -> None:
            view.copy_(value)
            control.mark(place, KNOWN if state == KNOWN else ASSUMED)
            if chosen:
                control.mark_chosen(place)

        control.perform(output.device.index, [], [place], write, later=control.in_use([place]))
    return output
