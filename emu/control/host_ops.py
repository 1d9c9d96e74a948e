"""Functions before the CPU kernels of operations, once the host's memory has values that nobody computed.

What an operation makes of such values nobody has computed either, and an operation that compares or chooses is a
decision of the program's. They are registered when the first such value is there: most programs never have one in a
tensor that an operation reads.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from ..private.access import schema_of
from ..reads.elements import MOST, Flags
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
"""Names of operations that overwrite a tensor: what was there before does not matter."""
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
_HIDING = frozenset(("nan_to_num", "nanmedian", "nansum", "sign"))
"""Names of operations in which NaN gets lost."""
FOLLOWED = frozenset((*_ARITHMETIC, *DECIDING, *(name.rstrip("_") for name in OVERWRITING)))
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
    follows = _Following(control, kernel, outputs) if base.rstrip("_") in _ARITHMETIC and not scalar else None
    if base.rstrip("_") in _HIDING:
        follows = None

    def call(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        args = numbers.wrap(args)
        if not host or _probing.on:
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
        flags: list[Flags | None] = []
        if base == "copy_":
            flags = [host.flags(control.unrecorded(lambda: args[1].expand(args[0].size())))]
        elif follows is not None:
            flags = follows.flags(keyset, args, kwargs)
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


class _Probing(threading.local):
    """The state of a thread that calls an operation to find which elements follow."""

    on = False
    """True while an operation is called only to find which elements follow."""


_probing = _Probing()


class _Following:
    """Finds which elements of an operation's results follow from unknown elements of its arguments, where others are
    known: those that become NaN if the unknown ones are.
    """

    def __init__(self, control: ControlTensors, kernel: Kernel, outputs: set[str]) -> None:
        self._control = control
        self._kernel = kernel
        self._outputs = outputs

    def flags(self, keyset: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Flags | None]:
        """Returns for each result which of its elements follow. Empty: all elements of all results follow."""
        host = self._control.reads.decisions.host
        read = [one for one in tensors_in((*args, *kwargs.values())) if one.is_floating_point() or one.is_complex()]
        if all(host.find(one) is not None and host.flags(one) is None for one in read):
            return []
        if sum(one.numel() for one in read) > MOST:
            return []
        _probing.on = True
        try:
            return self._control.unrecorded(lambda: self._probe(keyset, args, kwargs))
        finally:
            _probing.on = False

    def _probe(self, keyset: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Flags | None]:
        import torch

        given = {name: one for name, one in kwargs.items() if name not in self._outputs}
        given |= {name: torch.empty_like(kwargs[name]) for name in self._outputs if kwargs.get(name) is not None}
        result = self._kernel(keyset, *map(self._with_nan, args), **{k: self._with_nan(v) for k, v in given.items()})
        return [torch.isnan(one).flatten().tolist() for one in tensors(result)]

    def _with_nan(self, value: Any) -> Any:
        import torch

        if isinstance(value, (list, tuple)):
            return type(value)(map(self._with_nan, value))
        if not isinstance(value, torch.Tensor):
            return value
        host = self._control.reads.decisions.host
        copied = value.clone()
        if host.find(value) is None or not (value.is_floating_point() or value.is_complex()):
            return copied
        flags = host.flags(value)
        if flags is None:
            return copied.fill_(math.nan)
        return copied.masked_fill_(torch.tensor(flags).view(value.size()), math.nan)


def _asks_if_finite(base: str, args: tuple[Any, ...]) -> bool:
    """Recognises `tensor != tensor` and `tensor.abs() == inf`, as `isnan` and `isinf` call them."""
    if base not in ("eq", "ne"):
        return False
    one, other = args[:2]
    if isinstance(other, (int, float)):
        return other in (float("inf"), -float("inf")) or other != other
    return one is other or (one.data_ptr() == other.data_ptr() and one.shape == other.shape)


def tensors(result: Any) -> list[Tensor]:
    """Returns the tensors among an operation's results."""
    import torch

    return [one for one in (result if isinstance(result, (list, tuple)) else [result]) if isinstance(one, torch.Tensor)]


def tensors_in(values: Any) -> Iterator[Tensor]:
    """Yields the tensors among an operation's arguments, also those in lists."""
    import torch

    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)
