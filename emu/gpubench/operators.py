"""Calls of ATen operators, described by JSON, made ready to be run again and again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .tensors import DTYPES, Json, make_tensor


@dataclass(slots=True)
class Prepared:
    run: Callable[[], object]
    first: Tensor | None = None
    """The tensor that kernels before this work have usually just written."""


class Unmeasurable(Exception):
    """Raised if a piece of work cannot be executed here; the message says why."""


def overloads(op: str) -> list[Any]:
    """Returns the overloads of an operator such as `aten::add`. Raises Unmeasurable if this PyTorch has no such
    operator.
    """
    namespace, _, name = op.partition("::")
    packet = getattr(getattr(torch.ops, namespace, None), name, None) if name else None
    if packet is None:
        raise Unmeasurable(f"PyTorch has no operator {op}" if op else "no operator is known that launches it")
    found = []
    for each in packet.overloads():
        overload = getattr(packet, each)
        if isinstance(overload, torch._ops.OpOverload):
            found.append(overload)
    return found


def prepare_call(call: Json) -> Prepared:
    """Makes a call ready to run. It has `op`, `overload`, `args` and `kwargs`. An argument is a plain value, a list of
    arguments, `{"shape": ...}` (tensors.make_tensor) or `{"dtype": name}`. Raises what torch raises for arguments that
    it cannot make.
    """
    namespace, _, name = str(call["op"]).partition("::")
    function = getattr(getattr(getattr(torch.ops, namespace), name), call.get("overload", "default"))
    args = [_value(one) for one in call.get("args", ())]
    kwargs = {key: _value(one) for key, one in call.get("kwargs", {}).items()}
    first = next((one for one in args if isinstance(one, Tensor) and one.is_cuda and one.dim()), None)
    for one in args:
        if first is None and isinstance(one, list) and one and isinstance(one[0], Tensor):
            first = one[0]

    def run() -> object:
        return function(*args, **kwargs)

    return Prepared(run, first)


def _value(what: Any) -> Any:
    if isinstance(what, list):
        return [_value(one) for one in what]
    if isinstance(what, dict):
        return make_tensor(what) if "shape" in what else DTYPES[what["dtype"]]
    return what
