"""Functions before the CPU kernels of operations, once the host's memory has values that nobody computed.

What an operation makes of such values nobody has computed either, and an operation that compares or chooses is a
decision of the program's. They are registered when the first such value is there: most programs never have one in a
tensor that an operation reads.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

from ..private.access import schema_of
from ..reads.elements import Flags
from .computed_op import Kernel, NumberWrapper
from .control_tensors import ControlTensors
from .unknown_elements import ARITHMETIC, COMPARING, HIDING, UnknownElements, tensors, tensors_in

_CHOOSING = (
    *("argmax", "argmin", "argsort", "bincount", "bucketize", "histc", "kthvalue", "masked_select", "mode"),
    *("multinomial", "nonzero", "searchsorted", "sort", "topk", "unique_consecutive", "unique_dim", "_unique2"),
)
DECIDING = frozenset((*COMPARING, *_CHOOSING))
OVERWRITING = frozenset(("copy_", "fill_", "zero_", "set_"))
"""Names of operations that overwrite a tensor: what was there before does not matter."""
FOLLOWED = frozenset((*ARITHMETIC, *HIDING, *DECIDING, *(name.rstrip("_") for name in OVERWRITING)))
"""Names of operations; their variants that write in place or to a result that is given are followed, too."""
_ALSO = ("aten::copy_", "aten::fill_.Scalar", "aten::fill_.Tensor", "aten::zero_", "aten::stack")
"""Names of operations whose kernel is for all devices."""


def install(control: ControlTensors, library: Any, names: Callable[[str], list[str]], operation: Any) -> None:
    """Registers the functions when the host's memory has the first such value. `names`: returns the operations that
    have a kernel for a dispatch key.
    """
    import torch

    for name in sorted({*names("CPU"), *_ALSO}):
        base = name.removeprefix("aten::").partition(".")[0]
        found = operation(name)
        if found is None or (base.rstrip("_") not in FOLLOWED and base not in FOLLOWED):
            continue
        try:
            kernel = torch.library.get_kernel(name, "CPU")
        except RuntimeError:  # this version has none
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours = _followed(control, base, found, kernel.call_boxed)
            library.impl(found, ours, "CPU", with_keyset=True, allow_override=True)


def _followed(control: ControlTensors, base: str, operation: Any, kernel: Kernel) -> Kernel:

    decisions, host = control.reads.decisions, control.reads.decisions.host
    numbers = NumberWrapper(control, operation)
    decides, scalar = base.rstrip("_") in DECIDING, base == "_local_scalar_dense"
    arguments = schema_of(operation).arguments
    outputs = {one.name for one in arguments if one.is_out}
    overwrites = base in OVERWRITING
    rule = UnknownElements(operation, control.not_known) if UnknownElements.has_rule(operation) and not scalar else None

    def call(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        args = numbers.wrap(args)
        # Nothing on the host is unknown most of the time: that must cost little.
        if not host or control.aside.on:
            return kernel(keyset, *args, **kwargs)
        given = (*(args[1:] if overwrites else args), *(one for name, one in kwargs.items() if name not in outputs))
        mark = host.find_in(given)
        if mark is None:
            result = kernel(keyset, *args, **kwargs)
            for written in args[:1] if overwrites else [one for name, one in kwargs.items() if name in outputs]:
                host.clear(written)
            return result
        if scalar:
            decisions.note_read_of_host(mark)
        elif decides and not _asks_if_finite(base, args):
            decisions.decides(mark)
        elif base == "copy_" and not args[0].is_floating_point():
            decisions.leaves(mark, counts=True)
        # The rule needs the arguments as they are before an operation in place changes them.
        flags: list[Flags | None] = []
        if rule is not None:
            read = list(tensors_in(given))
            flags = control.unrecorded(
                lambda: rule.of(read, args, kwargs, lambda *a, **k: tensors(kernel(keyset, *a, **k)))
            )
        result = kernel(keyset, *args, **kwargs)
        for tensor, of_tensor in zip_longest(tensors(result), flags):
            if tensor is None or not (tensor.is_floating_point() or tensor.is_complex()):
                continue
            if of_tensor is None or len(of_tensor) != tensor.numel():
                host.mark(tensor, mark)
            elif any(of_tensor):
                host.mark(tensor, mark, of_tensor)
            else:
                host.clear(tensor)
        return result

    return call


def _asks_if_finite(base: str, args: tuple[Any, ...]) -> bool:
    """Recognises `tensor != tensor` and `tensor.abs() == inf`, as `isnan` and `isinf` call them."""
    if base not in ("eq", "ne"):
        return False
    one, other = args[:2]
    if isinstance(other, (int, float)):
        return other in (float("inf"), -float("inf")) or other != other
    return one is other or (one.data_ptr() == other.data_ptr() and one.shape == other.shape)
