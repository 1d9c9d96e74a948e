"""Functions before the CPU kernels of operations, once the host's memory has values that nobody computed.

What an operation makes of such values nobody has computed either, and an operation that compares or chooses is a
decision of the program's. They are registered when the first such value is there: most programs never have one in a
tensor that an operation reads.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..private.access import schema_of
from .computed_op import Kernel, NumberWrapper
from .control_tensors import ControlTensors

if TYPE_CHECKING:
    from torch import Tensor

_COMPARING = ("eq", "equal", "ge", "gt", "is_nonzero", "isclose", "le", "lt", "ne", "logical_and", "logical_not")
_CHOOSING = (
    *("argmax", "argmin", "argsort", "bincount", "bucketize", "histc", "kthvalue", "masked_select", "mode"),
    *("multinomial", "nonzero", "searchsorted", "sort", "topk", "unique_consecutive", "unique_dim", "_unique2"),
)
DECIDING = frozenset((*_COMPARING, *_CHOOSING))
OVERWRITING = frozenset(("copy_", "fill_", "zero_", "set_"))
"""What was there before does not matter."""
_ARITHMETIC = (
    *("abs", "acos", "add", "addcdiv", "addcmul", "addmm", "addmv", "aminmax", "amax", "amin", "asin", "atan", "atan2"),
    *("baddbmm", "bmm", "cat", "ceil", "clamp", "clamp_max", "clamp_min", "cos", "cosh", "cummax", "cummin", "cumprod"),
    *("cumsum", "div", "dot", "erf", "erfc", "exp", "exp2", "expm1", "floor", "floor_divide", "fmod", "frac", "gather"),
    *(
        "hypot",
        "index",
        "index_add",
        "index_put",
        "index_select",
        "lerp",
        "linalg_vector_norm",
        "log",
        "log10",
        "log1p",
    ),
    *("log2", "logaddexp", "logcumsumexp", "logsumexp", "masked_fill", "max", "maximum", "mean", "median", "min"),
    *("minimum", "mm", "mul", "mv", "nan_to_num", "nanmedian", "nansum", "neg", "norm", "pow", "prod", "reciprocal"),
    *("remainder", "round", "rsqrt", "rsub", "scatter", "scatter_add", "sigmoid", "sign", "sin", "sinh", "sqrt"),
    *("square", "std", "std_mean", "sub", "sum", "tan", "tanh", "trunc", "var", "var_mean", "where", "_log_softmax"),
    *(
        "_softmax",
        "flip",
        "roll",
        "relu",
        "stack",
        "_local_scalar_dense",
        "_foreach_add",
        "_foreach_mul",
        "_foreach_div",
    ),
)
FOLLOWED = frozenset((*_ARITHMETIC, *DECIDING, *(name.rstrip("_") for name in OVERWRITING)))
"""Names of operations; their variants that write in place or to a result that is given are followed, too."""
_ALSO = ("aten::copy_", "aten::fill_.Scalar", "aten::fill_.Tensor", "aten::zero_", "aten::stack")
"""Operations whose kernel is for all devices."""


def install(control: ControlTensors, library: Any, names: Callable[[str], list[str]], operation: Any) -> None:
    """When the host's memory has the first such value. `names`: of operations with a kernel for a dispatch key."""
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
    import torch

    decisions, host = control.reads.decisions, control.reads.decisions.host
    numbers = NumberWrapper(control, operation)
    decides, scalar = base.rstrip("_") in DECIDING, base == "_local_scalar_dense"
    arguments = schema_of(operation).arguments
    outputs = {one.name for one in arguments if one.is_out}
    overwrites = base in OVERWRITING

    def call(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        args = numbers.wrap(args)
        if not host:
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
        result = kernel(keyset, *args, **kwargs)
        for tensor in _tensors(result):
            if tensor.is_floating_point() or tensor.is_complex():
                host.mark(tensor, mark)
        return result

    def _tensors(result: Any) -> list[Tensor]:
        return [
            one for one in (result if isinstance(result, (list, tuple)) else [result]) if isinstance(one, torch.Tensor)
        ]

    return call


def _asks_if_finite(base: str, args: tuple[Any, ...]) -> bool:
    """`tensor != tensor`, `tensor.abs() == inf`: as `isnan` and `isinf` call it."""
    if base not in ("eq", "ne"):
        return False
    one, other = args[:2]
    if isinstance(other, (int, float)):
        return other in (float("inf"), -float("inf")) or other != other
    return one is other or (one.data_ptr() == other.data_ptr() and one.shape == other.shape)
