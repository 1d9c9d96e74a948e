"""Functions before the CUDA kernels of random operations with a course of their own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..computed_op import Kernel
from ..control_tensors import KNOWN, ControlTensors
from ..host_views import Place
from .distributions import Output
from .fills import memory_order, shared

if TYPE_CHECKING:
    from torch import Tensor


def multinomial(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Without replacement, and for one sample, the kernel divides the probabilities by exponential numbers and takes
    the largest quotients: these are operations of their own. With replacement thread i of a block of 128 draws sample
    i and looks it up among the sums of the probabilities.
    """
    import torch

    ops = shared(control)

    def call(keyset: Any, weights: Tensor, samples: int, replacement: bool = False, *args: Any, **kwargs: Any) -> Any:
        own = replacement and samples > 1
        state = None
        if own and control.is_small(weights) and control.state_of(Place(weights)) == KNOWN:
            state = ops.state(ops.generator_of(args, kwargs, weights))
        result = kernel(keyset, weights, samples, replacement, *args, **kwargs)
        if not own:
            return result
        if state is None or not control.is_small(result):
            control.overwrite([result])
            return result
        rows = weights.numel() // weights.size(-1)
        per_row = -(-samples // 128) * 128
        # A copy, as the program may change the weights before the numbers are written.
        view = control.unrecorded(lambda: control.host_view(weights).clone())

        def chosen() -> Tensor:
            share = view.reshape(rows, -1)
            share = share / share.sum(-1, keepdim=True)
            sums = share.cumsum(-1)
            drawn = ops.distributions(weights.device).groups(state, rows * per_row)[:, 0]
            drawn = drawn.reshape(rows, per_row)[:, :samples].to(sums.dtype)
            found = torch.searchsorted(sums, drawn.contiguous()).clamp_max(share.size(-1) - 1)
            # No category without probability: the last one before it that has some.
            places = torch.arange(share.size(-1), device="cpu").expand_as(share)
            last = torch.where(share > 0, places, 0).cummax(-1).values
            return last.gather(-1, found).reshape(-1)

        ops.fill(result, chosen)
        return result

    return call


NORMALS = tuple(
    f"aten::normal.{overload}{out}"
    for overload in ("Tensor_Tensor", "Tensor_float", "float_Tensor")
    for out in ("", "_out")
)


def normal_of_tensors(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Makes the function before `torch.normal(mean, std)`: standard normal numbers, times `std`, plus `mean`."""
    ops = shared(control)

    def call(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        given = (*args, *(kwargs[name] for name in ("mean", "std") if name in kwargs))
        tensors = [value for value in given if isinstance(value, control.tensor_type)]
        small = all(control.is_small(t) and (not t.is_cuda or control.state_of(Place(t)) == KNOWN) for t in tensors)
        state = ops.state(ops.generator_of(args, kwargs, kwargs.get("out", tensors[0]))) if small else None
        result: Tensor = kernel(keyset, *args, **kwargs)
        if state is None or not control.is_small(result) or not result.numel():
            control.overwrite([result])
            return result
        mean = kwargs.get("mean", args[0] if args else 0.0)
        std = kwargs.get("std", args[1] if len(args) > 1 else 1.0)
        values = control.unrecorded(
            lambda: (
                ops.distributions(result.device)
                .gaussian(state, Output(result.numel(), result.dtype))
                .to(result.dtype)
                .mul_(_in_order(control, std, result))
                .add_(_in_order(control, mean, result))
            )
        )
        ops.fill(result, values.clone)
        return result

    return call


def _in_order(control: ControlTensors, value: Any, like: Tensor) -> Any:
    """Returns the numbers of a tensor in the order of the memory of `like`, to whose shape it is expanded."""
    if not isinstance(value, control.tensor_type):
        return value
    view = control.host_view(value) if value.is_cuda else value
    return view.expand(like.shape).permute(memory_order(like)).reshape(-1)


def permutation(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """The kernel sorts 0 ... n - 1 by random keys, of which it takes so many bits that equal keys are improbable; the
    numbers of equal keys are then shuffled by themselves.
    """

    ops = shared(control)

    def call(keyset: Any, n: int, *args: Any, **kwargs: Any) -> Any:
        out: Tensor = kwargs["out"]
        small = 0 < n <= control.limit_numel and out.is_contiguous()
        state = ops.state(ops.generator_of(args, kwargs, out)) if small else None
        result = kernel(keyset, n, *args, **kwargs)
        bits = min(64, math.ceil(math.log2(n - (6.0 * n * n + 1) / (12 * math.log(0.9))))) if n else 0
        if state is None or bits >= 63:
            control.overwrite([result])
            return result

        def shuffled() -> Tensor:
            low, high = (-(1 << 31), (1 << 31) - 1) if bits <= 32 else (-(1 << 63), (1 << 63) - 1)
            keys = ops.distributions(result.device).between(state, n, low, high) & ((1 << bits) - 1)
            ordered = keys.sort(stable=True)
            numbers = ordered.indices
            begun = 0
            after = ops.distributions(result.device).after_integers(state, n)
            # Stable sorting has left the numbers of equal keys in ascending order: each such run is shuffled, as by the
            # kernel.
            for at in (ordered.values[1:] == ordered.values[:-1]).nonzero().flatten().tolist():
                if at < begun:
                    continue
                begun = at + 1
                while begun < n and ordered.values[begun] == ordered.values[at]:
                    begun += 1
                _shuffle(numbers, at, begun - at, ops.distributions(result.device).thread(after, at, begun - at))
            return numbers

        ops.fill(result, shuffled)
        return result

    return call


def _shuffle(numbers: Tensor, start: int, count: int, words: list[int]) -> None:
    """Exchanges numbers with random ones before them, from the last to the second."""
    for place, word in zip(range(count - 1, 0, -1), words, strict=False):
        other = word % (place + 1)
        if other != place:
            one, two = int(numbers[start + place]), int(numbers[start + other])
            numbers[start + place], numbers[start + other] = two, one
