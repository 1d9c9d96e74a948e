"""`coalesce` of tensors that are not computed: equal places become one, so indices decide how large the result is."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

from ..computed_op import Kernel
from ..control_tensors import KNOWN, ControlTensors
from ..data_sizes.sized_ops import SizedOps, given
from ..host_reads import kernel_alone, values_on_host
from .operations import sparse_op

if TYPE_CHECKING:
    from torch import Tensor


def coalesce(sized: SizedOps, control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Makes the function before `coalesce`. Its result has as many elements as there are different places; where these
    are unknown, as many as the policy says.
    """
    computed = sparse_op(control, operation, kernel)

    def call(keyset: Any, tensor: Tensor) -> Any:
        indices, elements = tensor._indices(), tensor._values()
        values, state = values_on_host(control, indices)
        if not indices.numel() or (state == KNOWN and control.is_small(elements)):
            return computed(keyset, tensor)
        found, chosen = None, False
        if values is not None and (state == KNOWN or not sized.is_free(indices, state)):
            chosen = sized.note(indices, state)
            found = control.unrecorded(lambda: _different(values, tensor))
            size = found.size(1)
        else:
            most = min(indices.size(1), math.prod(tensor.shape[: indices.size(0)]))
            size = max(sized.sizes.choose("coalesce", most), 1)
            sized.warn(indices, size, most)
        made = kernel_alone(control, kernel, keyset, tensor, elements=size)
        control.overwrite([made._indices(), made._values()])
        if found is not None:
            given(control, made._indices(), found, state, chosen=chosen)
        return made

    return call


def _different(indices: Tensor, like: Tensor) -> Tensor:
    """Returns the different ones among a sparse tensor's indices, in the order of its places."""
    import torch

    nothing = torch.zeros(indices.size(1), dtype=torch.bool, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that it does not check the indices
        tensor = torch.sparse_coo_tensor(indices, nothing, like.shape[: indices.size(0)], check_invariants=False)
    return tensor.coalesce().indices()
