"""Checks for overflow: bools that follow from `isnan`, `isinf` or `isfinite` of values that nobody computed.

Such values count as finite. So the bools' memory is marked, and reading them is no decision worth a warning.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .computed_op import Kernel, flat
from .control_tensors import KEPT, KNOWN, ControlTensors
from .host_views import Place

if TYPE_CHECKING:
    from torch import Tensor

_COMPARISONS = frozenset(f"aten::{name}" for name in ["eq.Tensor", "ne.Tensor", "eq.Scalar", "ne.Scalar"])
"""Names of comparisons: `isfinite` consists of those of a tensor with itself and with infinity."""
_CHECKS = frozenset(f"aten::{name}" for name in ["isnan", "isinf", "isfinite", "isposinf.out", "isneginf.out"])
_PASSING = frozenset(
    f"aten::{name}"
    for name in [
        "any",
        "any.dim",
        "any.dims",
        "any.all_out",
        "any.out",
        "all",
        "all.dim",
        "all.dims",
        "all.all_out",
        "all.out",
        "logical_not",
        "logical_not.out",
        "logical_not_",
        "logical_and",
        "logical_and.out",
        "logical_and_",
        "logical_or",
        "logical_or.out",
        "logical_or_",
        "bitwise_not",
        "bitwise_not.out",
        "bitwise_not_",
        "bitwise_and.Tensor",
        "bitwise_and_.Tensor",
        "bitwise_or.Tensor",
        "bitwise_or_.Tensor",
        "mul.Tensor",
        "add.Tensor",
        "add_.Tensor",
        "sum",
        "sum.dim_IntList",
        "clone",
        "copy_",
        "_to_copy",
        "cat",
        "stack",
        "max",
        "min",
        "amax",
        "amin",
    ]
)
"""Names of operations whose result is a check if what they read is one."""


def noted(control: ControlTensors, name: str, call: Kernel) -> Kernel:
    """Wraps the operation's function, so that checks for overflow among its results are marked."""
    if name not in _COMPARISONS | _CHECKS | _PASSING:
        return call
    tensor_type, integers = control.tensor_type, control.integers
    passing, checks = name in _PASSING, name in _CHECKS
    changes = name.partition(".")[0].endswith("_") and name != "aten::copy_"

    def noting(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        before = _is_check(control, Place(args[0])) if changes and control.marks_checks and args[0].is_cuda else None
        result = call(keyset, *args, **kwargs)
        if not isinstance(result, tensor_type) or not result.is_cuda:
            return result
        if result.dtype not in integers and (not passing or result.numel() != 1):  # one number may count checks
            return result
        if passing:
            if control.marks_checks and before is not False:
                inputs = [one for one in flat(args) if isinstance(one, tensor_type) and one is not result]
                mark_check(control, result, inputs, is_one=bool(before))
        elif checks or _compares_finite(args):
            mark_check(control, result, [], is_one=True)
        return result

    return noting


def _compares_finite(args: tuple[Any, ...]) -> bool:
    if len(args) != 2 or not args[0].is_floating_point():
        return False
    return args[0] is args[1] or (isinstance(args[1], float) and math.isinf(args[1]))


def _is_check(control: ControlTensors, place: Place) -> bool | None:
    """Tells whether the place is marked as a check; None if its bytes are known."""
    if control.peek(place) in (KNOWN, KEPT):
        return None
    return bool(control.hook.data_chosen(place.address, place.nbytes))


def mark_check(control: ControlTensors, result: Tensor, inputs: list[Tensor], *, is_one: bool) -> None:
    """Marks a result that follows from checks and known values alone. `is_one`: it does even if no input is a check."""
    place, reads = Place(result), [Place(one) for one in inputs if one.is_cuda]

    def mark() -> None:
        found = {_is_check(control, one) for one in reads}
        if _is_check(control, place) is False and False not in found and (is_one or True in found):
            control.marks_checks = True
            control.hook.data_mark_chosen(place.address, place.nbytes)  # as choices are, which are known

    control.perform(result.device.index, reads, [place], mark, later=control.in_use([place]))
