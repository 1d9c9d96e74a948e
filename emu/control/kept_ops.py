"""Operations on large tensors whose values are kept: what they write is computed when somebody reads it.

An operation is remembered, with the values that its inputs have now, if all of these are known. It is computed by its
CPU kernel, as those on small tensors are (`computed_op`). A training step soon has inputs that nobody computed, as
matrix products and convolutions are left out: then one question about the first such input is all that this costs.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from .control_tensors import ControlTensors
from .host_views import Layout, Place
from .references import Output, Recipe, Snapshot, Values, shared

if TYPE_CHECKING:
    from torch import Tensor

    from .computed_op import ComputedOp

MOST_NUMEL = 1 << 28
"""The most elements of a tensor of an operation that is remembered."""
_KIND = "operation"
_LEFT_OUT = re.compile(
    r"aten::(_?(int_|foreach_|convert_)?(addmm|addbmm|baddbmm|bmm|mm)\b|_?(addmm|scaled|grouped|mixed_dtypes|sparse|cslt|"
    r"weight_int|fft|cdist|pdist|cudnn|thnn|native_batch_norm|batch_norm|fused|transformer|triton|efficient|"
    r"flash|native_multi|fill_mem|nested|jagged|padded|philox|amp|fake_quantize|make_per|chunk_cat)|"
    r"_linalg|linalg_(?!vector_norm|_powsum|cross)|miopen|cudnn|slow_conv|conv_(?!physical)|conv\w*\d|native_batch|native_dropout|"
    r"batch_norm|cholesky|geqrf|ormqr|triangular|lu_|quantize|dequantize|rrelu|embedding_renorm|hash_tensor|nonzero|"
    r"cat(\.out)?$|split_with_sizes_copy|_foreach_(copy|zero)_|fill_|zero_|_?unique|_embedding_bag|segment_reduce|grid_sampler|tril_indices|triu_indices)"
)
"""Products, convolutions and what else takes more time than it has elements; updates of fused optimizers; what draws
random numbers; operations whose result has a size that follows from values; those that `large_ops` follows.
"""
_LOOKED_UP_BY = {"aten::embedding": 1, "aten::index_select": 2}
"""The place of the argument that says which rows of the first one."""
_SLOW = re.compile(r"sort|topk|unique|median|mode|kthvalue|cum|special|gamma|erf|pow|exp|log|sin|cos|tan|softmax")


class _Slot(NamedTuple):
    """Stands for a tensor among the arguments."""

    number: int


class Plan(NamedTuple):
    """A call that will be remembered."""

    args: Any
    kwargs: Any
    inputs: tuple[Values, ...]


class KeptOp:
    """The function before one operation whose results are remembered as computations."""

    def __init__(self, control: ControlTensors, op: ComputedOp) -> None:
        self._control, self._op = control, op
        self._references = shared(control)
        self._turns = 16 if _SLOW.search(op.name) else 2
        """The work for an element, where copying one counts as 1."""
        _operations(control)[op.name] = op

    @staticmethod
    def serves(name: str) -> bool:
        """Tells whether an operation of this name is remembered."""
        return _LEFT_OUT.match(name) is None

    def plan(self, args: Any, kwargs: dict[str, Any]) -> Plan | None:
        """Returns what must be kept of a call, before the kernel is called; None if an argument that the operation
        reads is not known.
        """
        control = self._control
        if control.capturing() or (args and self._op.reads_first and control.is_hopeless(args[0])):
            return None
        tensors = control.all_tensors(self._op.read(args, kwargs))
        if not tensors:
            return None
        begins = control.hook.data_begins
        for tensor in tensors:
            if tensor.numel() and (tensor.numel() > MOST_NUMEL or not begins(tensor.data_ptr())):
                return None
        if control.chosen(map(Place, tensors)):
            return None  # what follows from the policy's choice is not told as a value
        plan: Plan | None = control.unrecorded(lambda: self._plan(tensors, args, kwargs))
        return plan

    def _plan(self, tensors: list[Tensor], args: Any, kwargs: dict[str, Any]) -> Plan | None:
        inputs: list[Values] = []
        slots: dict[int, _Slot] = {}
        for tensor in tensors:
            if id(tensor) in slots:
                continue
            if tensor.is_conj() or tensor.is_neg():
                return None
            values = self._references.values_of(tensor)
            if values.snapshot is None and not values.pending and tensor.numel():
                return None
            slots[id(tensor)] = _Slot(len(inputs))
            inputs.append(values)

        def told(value: Any) -> Any:
            if isinstance(value, self._control.tensor_type):
                if id(value) in slots:
                    return slots[id(value)]
                return value.clone() if not value.is_cuda else _Empty(tuple(value.shape), value.dtype)
            if isinstance(value, (list, tuple)):
                return [told(item) for item in value]
            return value

        from .computed_op import number_of

        told_args = [told(number_of(value)) for value in args]
        return Plan(told_args, {name: told(number_of(value)) for name, value in kwargs.items()}, tuple(inputs))

    def put(self, plan: Plan, targets: list[Any]) -> None:
        """Remembers how the results are computed. Called after the kernel: `targets` are what it has written and
        returned.
        """
        tensor_type = self._control.tensor_type
        numel = sum(math.prod(values.layout.shape) for values in plan.inputs)
        outputs = []
        for n, target in enumerate(targets):
            if isinstance(target, tensor_type) and target.is_cuda and target.numel():
                recipe = Recipe(_KIND, (self._op.name, plan.args, plan.kwargs, n))
                outputs.append(Output(target, Layout(target), Place(target), recipe))
                numel += target.numel()
        self._references.remember(outputs, plan.inputs, numel * self._turns)


class _Empty(NamedTuple):
    """Stands for a tensor on the device without elements, or one that the operation does not read."""

    shape: tuple[int, ...]
    dtype: Any


def _operations(control: ControlTensors) -> dict[str, ComputedOp]:
    """Returns the operations that can be remembered, by name."""
    references = shared(control)
    found: dict[str, ComputedOp] | None = _instances.get(id(control))
    if found is None:
        found = _instances[id(control)] = {}
        operations = found

        def made(layout: Layout, name: str, args: Any, kwargs: dict[str, Any], n: int, *inputs: Tensor) -> Tensor:
            values = operations[name].on_host(
                [_filled(value, inputs) for value in args], {k: _filled(v, inputs) for k, v in kwargs.items()}
            )
            if values is None or n >= len(values) or values[n] is None or tuple(values[n].shape) != layout.shape:
                raise LookupError
            value: Tensor = values[n]
            return value

        references.kinds[_KIND] = made
        references.needed[_KIND] = _needed
    return found


def _needed(snapshots: tuple[Snapshot, ...], name: str, args: list[Any], *_: Any) -> list[Tensor]:
    """Returns the values of all inputs; of a table that the operation looks rows up in, the rows that it finds, and
    numbers of these in place of those of the table.
    """
    import torch

    inputs: dict[int, Tensor] = {}
    place = _LOOKED_UP_BY.get(name, 0)
    if place and isinstance(args[0], _Slot) and isinstance(args[place], _Slot) and (place == 1 or args[1] == 0):
        table, numbers = args[0].number, snapshots[args[place].number].read()
        used, among_used = torch.unique(numbers, return_inverse=True)
        count = snapshots[table].layout.shape[0]
        if len(used) * 2 <= count and used.numel() and used[0] >= 0 and used[-1] < count:
            rows = _rows(snapshots[table], used.tolist())
            if rows is not None:
                inputs = {table: rows, args[place].number: among_used.to(numbers.dtype)}
    return [inputs[i] if i in inputs else snapshot.read() for i, snapshot in enumerate(snapshots)]


def _rows(table: Snapshot, numbers: list[int]) -> Tensor | None:
    """Returns `table.read()[numbers]`, of which no other rows are made. None if rows do not lie one after another."""
    import torch

    layout, plain = table.layout, torch.empty(table.layout.shape, device="meta").stride()
    if table.span or 0 in layout.shape or tuple(layout.strides) != plain:
        return None
    rows = torch.empty((len(numbers), *layout.shape[1:]), dtype=layout.dtype, device="cpu")
    for row, number in zip(rows, numbers, strict=True):
        table.read_part(number * row.numel() * layout.item, row)
    return rows


def _filled(value: Any, inputs: tuple[Tensor, ...]) -> Any:
    import torch

    if isinstance(value, _Slot):
        return inputs[value.number]
    if isinstance(value, _Empty):
        return torch.zeros(value.shape, dtype=value.dtype, device="cpu")
    if isinstance(value, list):
        return [_filled(item, inputs) for item in value]
    return torch.device("cpu") if isinstance(value, torch.device) else value


_instances: dict[int, dict[str, ComputedOp]] = {}
