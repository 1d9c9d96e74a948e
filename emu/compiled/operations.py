"""A function of CPU tensors for each operation of Triton's programs that is evaluated.

A value is a tensor whose first dimension is that of the program's instances (1 if all have the same), then come the
dimensions of the program's own tensor. An unknown value is None. Pointers are their addresses, int64.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..formats.ttir import Operation, Type
from .integer_stores import NotEvaluated

if TYPE_CHECKING:
    from torch import Tensor, dtype

_DTYPES = {
    "i1": "bool",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
}
_HEX = {"f32": ("<I", "<f"), "f64": ("<Q", "<d"), "f16": ("<H", "<e")}


@functools.cache
def dtype_of(element: str) -> dtype:
    """Returns torch's type of an element. Raises NotEvaluated."""
    import torch

    if element not in _DTYPES:
        raise NotEvaluated(element)
    return getattr(torch, _DTYPES[element])


@functools.cache
def constant(operation: Operation) -> Tensor:
    """Returns the value, which nobody changes, of a constant such as `arith.constant dense<0> : tensor<8xi32>`."""
    import torch

    kind = operation.types[-1] if operation.types else Type((), "i1", False)
    text = operation.text.removeprefix("arith.constant").partition(" : ")[0].strip()
    inner = re.fullmatch(r"dense<(.*)>", text)
    text = inner[1] if inner else text.partition(" {")[0]
    if text in ("true", "false"):
        value: float = text == "true"
    elif text.startswith("0x") and kind.element in _HEX:
        number, real = _HEX[kind.element]
        value = struct.unpack(real, struct.pack(number, int(text, 16)))[0]
    else:
        try:
            value = int(text) if kind.element.startswith("i") else float(text)
        except ValueError:
            raise NotEvaluated(operation.text) from None
    return torch.full((1, *kind.shape), value, dtype=dtype_of(kind.element), device="cpu")


def _flipped(x: Tensor) -> Tensor:
    """Returns signed integers in the order of unsigned ones."""
    import torch

    return x if x.dtype is torch.bool else x ^ torch.iinfo(x.dtype).min


def _non_negative(function: Callable[..., Any]) -> Callable[..., Any]:
    def unsigned(a: Tensor, b: Tensor) -> Any:
        if bool((a < 0).any()) or bool((b < 0).any()):
            raise NotEvaluated("large unsigned integers")
        return function(a, b)

    return unsigned


def _compared(operation: Operation, a: Tensor, b: Tensor) -> Tensor:
    how = operation.text.split(None, 2)[1].rstrip(",")
    if how.startswith("u") and operation.name == "arith.cmpi":
        a, b = _flipped(a), _flipped(b)
    import torch

    if operation.name == "arith.cmpf":
        differs = torch.isnan(a) | torch.isnan(b)
        found: Tensor = getattr(torch, {"eq": "eq", "ne": "ne"}.get(how[1:], how[1:]))(a, b)
        return found & ~differs if how[0] == "o" else found | differs
    if a.dtype is torch.bool:
        a, b = -a.to(torch.int8), -b.to(torch.int8)
        if how.startswith("u"):
            a, b = -a, -b
    result: Tensor = getattr(torch, {"eq": "eq", "ne": "ne"}.get(how, how[1:]))(a, b)
    return result


def _widened(operation: Operation, x: Tensor) -> Tensor:
    """Unsigned: `arith.extui`, `arith.uitofp`."""
    import torch

    kind = operation.types[-1]
    if x.dtype is not torch.bool and bool((x < 0).any()):
        raise NotEvaluated("large unsigned integers")
    return x.to(dtype_of(kind.element))


def _converted(operation: Operation, x: Tensor) -> Tensor:
    import torch

    if x.dtype is torch.bool and operation.name in ("arith.extsi", "arith.sitofp"):
        x = -x.to(torch.int8)
    if operation.types[-1].element == "i1":
        return (x & 1).bool()
    return x.to(dtype_of(operation.types[-1].element))


def _bits(operation: Operation, x: Tensor) -> Tensor:
    kind = operation.types[-1]
    return x if kind.is_pointer else x.view(dtype_of(kind.element))


def _broadcast(operation: Operation, x: Tensor) -> Tensor:
    shape = operation.types[-1].shape
    return x.reshape(x.shape[0], *([1] * (len(shape) - x.dim() + 1)), *x.shape[1:]).expand(x.shape[0], *shape)


@functools.cache
def _attribute(operation: Operation, name: str) -> int:
    found = re.search(rf"\b{name} = (-?\d+)", operation.text)
    if found is None:
        raise NotEvaluated(operation.text)
    return int(found[1])


@functools.cache
def _range(operation: Operation) -> Tensor:
    import torch

    return torch.arange(_attribute(operation, "start"), _attribute(operation, "end"), dtype=torch.int32, device="cpu")[
        None
    ]


def _transposed(operation: Operation, x: Tensor) -> Tensor:
    order = re.search(r"order = array<i32: ([\d, ]+)>", operation.text)
    if order is None:
        raise NotEvaluated(operation.text)
    return x.permute(0, *(1 + int(n) for n in order[1].split(",")))


def _reshaped(operation: Operation, x: Tensor) -> Tensor:
    return x.reshape(x.shape[0], *operation.types[-1].shape)


def _selected(condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    import torch

    while condition.dim() < a.dim():
        condition = condition.unsqueeze(-1)
    return torch.where(condition, a, b)


def _advanced(operation: Operation, pointer: Tensor, offset: Tensor) -> Tensor:
    import torch

    return pointer + offset.to(torch.int64) * dtype_of(operation.types[0].element).itemsize


def _shift(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: function(a, b.clamp(0, 63))


def _arithmetic() -> dict[str, Callable[..., Any]]:
    import torch

    # A kernel divides in lanes that its mask leaves out, too. On a GPU nothing happens if the divisor is zero there; on
    # the CPU PyTorch would raise.
    def divided(a: Tensor, b: Tensor) -> Tensor:
        return torch.div(a, torch.where(b == 0, torch.ones_like(b), b), rounding_mode="trunc")

    def remainder(a: Tensor, b: Tensor) -> Tensor:
        return torch.fmod(a, torch.where(b == 0, torch.ones_like(b), b))

    logical = {"and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor}
    return {
        # Numbers of one bit, which are bools here, wrap around: their sum and difference is xor, their product and.
        "addi": lambda a, b: a ^ b if a.dtype is torch.bool else a + b,
        "subi": lambda a, b: a ^ b if a.dtype is torch.bool else a - b,
        "muli": lambda a, b: a & b if a.dtype is torch.bool else a * b,
        "divsi": divided,
        "remsi": remainder,
        "divui": _non_negative(divided),
        "remui": _non_negative(remainder),
        "minsi": torch.minimum,
        "maxsi": torch.maximum,
        "minui": _non_negative(torch.minimum),
        "maxui": _non_negative(torch.maximum),
        "shli": _shift(torch.bitwise_left_shift),
        "shrsi": _shift(torch.bitwise_right_shift),
        "shrui": _non_negative(_shift(torch.bitwise_right_shift)),
        **{f"{name}i": function for name, function in logical.items()},
        "select": _selected,
        "addf": torch.add,
        "subf": torch.sub,
        "mulf": torch.mul,
        "divf": torch.div,
        "maximumf": torch.maximum,
        "minimumf": torch.minimum,
        "maxnumf": torch.fmax,
        "minnumf": torch.fmin,
        "negf": torch.neg,
    }


def table() -> dict[str, Callable[..., Any]]:
    """Returns for each name a function of the operation and its operands' values."""
    plain = {f"arith.{name}": function for name, function in _arithmetic().items()}
    return {
        **{name: _without_operation(function) for name, function in plain.items()},
        **dict.fromkeys(("arith.cmpi", "arith.cmpf"), _compared),
        **dict.fromkeys(("arith.extui", "arith.uitofp"), _widened),
        **dict.fromkeys(
            ("arith.extsi", "arith.trunci", "arith.sitofp", "arith.fptosi", "arith.extf", "arith.truncf"), _converted
        ),
        **dict.fromkeys(("tt.bitcast", "arith.bitcast"), _bits),
        **dict.fromkeys(("tt.splat", "tt.broadcast"), _broadcast),
        "arith.constant": constant,
        "tt.make_range": _range,
        "tt.expand_dims": lambda operation, x: x.unsqueeze(1 + _attribute(operation, "axis")),
        "tt.trans": _transposed,
        "tt.reshape": _reshaped,
        "tt.addptr": _advanced,
        **dict.fromkeys(("tt.int_to_ptr", "tt.ptr_to_int"), lambda _, x: x),
        "arith.index_cast": _converted,
        "math.absi": lambda _, x: x.abs(),
    }


def _without_operation(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda operation, *values: function(*values)
