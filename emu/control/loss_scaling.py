"""The operation by which a loss scaler divides gradients by the scale and looks for infinities and NaN in them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .computed_op import Kernel
from .control_tensors import KNOWN, ControlTensors
from .host_views import Layout, Place
from .references import Output, Recipe, Values, shared

if TYPE_CHECKING:
    from torch import Tensor


def unscale(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Each gradient is known afterwards if it was before. Those that are not known count as finite numbers."""
    import torch

    references = shared(control)

    def scaled(layout: Layout, values: Tensor, inverse: Tensor) -> Tensor:
        return values * inverse.to(values.dtype)

    def found(layout: Layout, before: Tensor, *gradients: Tensor) -> Tensor:
        finite = all(bool(torch.isfinite(gradient).all()) for gradient in gradients)
        return before.clone() if finite else torch.ones_like(before)

    references.kinds["scaled"], references.kinds["found infinity"] = scaled, found

    def known(tensor: Tensor) -> Values | None:
        if not tensor.numel() or not control.hook.data_begins(tensor.data_ptr()):
            return None
        values = references.values_of(tensor)
        return values if values.snapshot is not None or values.pending else None

    def call(keyset: Any, gradients: Any, found_inf: Tensor, inverse: Tensor) -> Any:
        if control.capturing() or control.state([Place(inverse)]) != KNOWN:
            return unknown(keyset, gradients, found_inf, inverse)
        values = control.unrecorded(lambda: [known(gradient) for gradient in gradients])
        if not any(values):
            return unknown(keyset, gradients, found_inf, inverse)
        scale, before = control.unrecorded(lambda: (references.values_of(inverse), known(found_inf)))
        # The values must be taken before the call, since it writes to the gradients in place.
        result = kernel(keyset, gradients, found_inf, inverse)
        control.overwrite([gradient for gradient, one in zip(gradients, values, strict=True) if one is None])
        inputs = [one for one in values if one is not None]
        for gradient, one in zip(gradients, values, strict=True):
            if one is not None:
                references.remember([_output(gradient, "scaled")], [one, scale], 2 * gradient.numel())
        if before is not None:
            numel = sum(math.prod(one.layout.shape) for one in inputs)
            references.remember([_output(found_inf, "found infinity")], [before, *inputs], 2 * numel)
        return result

    def unknown(keyset: Any, gradients: Any, found_inf: Tensor, inverse: Tensor) -> Any:
        result = kernel(keyset, gradients, found_inf, inverse)
        control.overwrite(list(gradients))
        return result

    return call


def _output(tensor: Tensor, kind: str) -> Output:
    return Output(tensor, Layout(tensor), Place(tensor), Recipe(kind, ()))
