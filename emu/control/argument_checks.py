"""Distributions check their arguments. What nobody computed counts as valid there, as it counts as finite."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from .control_tensors import ASSUMED, UNKNOWN, ControlTensors
from .device_ops import assume_ones
from .host_views import Place
from .overflow_checks import mark_check


def install(control: ControlTensors) -> None:
    """Makes the checks of distributions' arguments pass for values that nobody computed. Called once, in the forker."""
    from torch.distributions.constraints import Constraint

    for kind in set(_below(Constraint)):
        if "check" in vars(kind):
            kind.check = _passing(control, kind.check)


def _below(kind: Any) -> Iterator[Any]:
    """Yields the classes below a class; they are typed by their attributes, which a plain `type` has not."""
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)


def _passing(control: ControlTensors, real: Any) -> Any:
    @functools.wraps(real)
    def check(constraint: Any, value: Any) -> Any:
        valid = real(constraint, value)
        if (
            isinstance(valid, control.tensor_type)
            and valid.is_cuda
            and control.is_small(valid)
            and control.peek(Place(valid)) in (UNKNOWN, ASSUMED)
        ):
            assume_ones(control, valid)
            mark_check(control, valid, [], is_one=True)
        return valid

    return check
