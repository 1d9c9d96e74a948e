"""Puts our functions before torch's CUDA kernels, in PyTorch's dispatcher: before all of ATen's, but for a few."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from ..contract.policies.length_policy import LengthPolicy
from ..contract.policies.routing_policy import RoutingPolicy
from ..contract.policies.shape_policy import ShapePolicy
from ..interpreter.hook_library import Hook
from ..private.access import schema_of
from ..private.changes import changes
from ..reads.uncomputed import UncomputedReads
from . import argument_checks, device_ops, host_ops, host_reads, large_ops, loss_scaling, op_rules, overflow_checks
from .computed_op import Kernel
from .control_tensors import ControlTensors
from .data_sizes.chosen_sizes import ChosenSizes
from .data_sizes.sized_ops import SizedOps
from .extensions import attention, packed_attention
from .extensions import operations as extensions
from .generation import transformers_loop, vllm_scheduler
from .generation.responses import Responses
from .generation.sampled_tokens import SAMPLES, SampledTokens
from .random_numbers import choices, distributions, fills
from .routing import fused_routers
from .routing.routing import Routing
from .sparse import operations as sparse_ops
from .sparse.coalesce import coalesce

Maker = Callable[[ControlTensors, Any, Kernel], Kernel]
"""`maker(control, operation, cuda_kernel)` returns the function that is called in the kernel's place."""
_OWN: dict[str, Maker] = {
    "aten::all": device_ops.all_of,
    "aten::all.dim": device_ops.all_of,
    "aten::eq.Tensor": device_ops.finite_comparison,
    "aten::ne.Scalar": device_ops.finite_comparison,
    "aten::pow.Scalar": device_ops.number_first,
    "aten::pow.Scalar_out": device_ops.number_first,
    "aten::isin.Scalar_Tensor": device_ops.number_first,
    "aten::isin.Scalar_Tensor_out": device_ops.number_first,
    "aten::searchsorted.Scalar": device_ops.searched_number,
    "aten::searchsorted.Scalar_out": device_ops.searched_number,
    "aten::bucketize.Scalar": device_ops.searched_number,
    "aten::bucketize.Scalar_out": device_ops.searched_number,
    "aten::mode": device_ops.mode,
    "aten::_amp_foreach_non_finite_check_and_unscale_": loss_scaling.unscale,
    **large_ops.OF_LARGE_TENSORS,
    "aten::_local_scalar_dense": host_reads.item,
    "aten::_assert_async": host_reads.assertion,
    "aten::_assert_async.msg": host_reads.assertion,
    "aten::equal": host_reads.equal,
    "aten::bernoulli_.Tensor": fills.bernoulli_of_tensor,
    **dict.fromkeys(choices.NORMALS, choices.normal_of_tensors),
    "aten::native_dropout": fills.dropout,
    "aten::multinomial": choices.multinomial,
    "aten::multinomial.out": choices.multinomial,
    "aten::randperm.generator_out": choices.permutation,
    **dict.fromkeys(distributions.IN_PLACE, fills.in_place),
}
INTEGER_LIMIT = 1 << 20
"""The most elements of an integer tensor that is computed."""
Libraries = extensions.Libraries


def _maker(name: str, operation: Any) -> Maker:
    own = _OWN.get(name)
    if own is not None:
        return own
    if any(a.name == "generator" for a in schema_of(operation).arguments):
        return fills.other
    return device_ops.any_op


def _operation(name: str) -> Any:
    """Returns the operation of this name; None if it is not ATen's."""
    import torch

    if not name.startswith("aten::"):
        return None
    base, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, base, None), overload or "default", None)


class Installed(NamedTuple):
    """The objects that `install` made."""

    library: Any
    """The functions stay registered as long as this object lives."""
    routing: Routing
    sizes: ChosenSizes
    control: ControlTensors
    responses: Responses


def install(
    hook: Hook,
    limit_numel: int,
    float_limit_numel: int,
    policy: RoutingPolicy,
    shapes: ShapePolicy,
    lengths: LengthPolicy | None,
    reads: UncomputedReads,
    libraries: Libraries,
) -> Installed:
    """Registers the functions, also before operations of `libraries`. Called once, in the forker.

    Integer and bool tensors are computed up to `limit_numel` elements, others up to `float_limit_numel`. `reads` is
    told of values that the program reads although nobody computed them.
    """
    import torch

    control = ControlTensors(hook, limit_numel, float_limit_numel, reads)
    routing, sized = Routing(control, policy), SizedOps(control, shapes)
    tokens = SampledTokens(control, Responses(hook, lengths))
    make_library: Any = torch.library.Library  # untyped
    library = make_library("aten", "IMPL")
    for name in sorted({*registered_for("CUDA"), *op_rules.OF_ALL_DEVICES}):
        if name in op_rules.LEFT_ALONE and name not in attention.OPERATIONS:
            continue
        operation = _operation(name)
        if operation is None:
            continue
        kernel = torch.library.get_kernel(name, "CUDA")
        if name in attention.OPERATIONS:
            ours = attention.told(control, operation, kernel.call_boxed)
        else:
            made = (sized.makers.get(name) or _maker(name, operation))(control, operation, kernel.call_boxed)
            made = overflow_checks.noted(control, name, made)
            ours = routing.before(operation, made)
            if lengths is not None and name in SAMPLES:
                ours = tokens.around(made, ours)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of overrides
            library.impl(operation, ours, "CUDA", with_keyset=True, allow_override=True)
    for key in sparse_ops.KEYS:
        _install_sparse(library, key, control, sized, registered_for(key))
    libraries.compute(control, sized.finding)
    attention.follow(control, registered_for)
    packed_attention.follow(control)
    fused_routers.follow(routing)
    transformers_loop.follow(tokens)
    vllm_scheduler.follow(tokens.responses)
    argument_checks.install(control)
    reads.decisions.at_first_on_host = lambda: host_ops.install(control, library, registered_for, _operation)
    reads.decisions.forget_on_device = control.forget_followed
    reads.decisions.flags_on_device = control.flags_of_unknown
    reads.decisions.is_unknown = control.is_unknown
    return Installed(library, routing, sized.sizes, control, tokens.responses)


def libraries_from_now_on() -> Libraries:
    """Begins to note the operations that libraries bring. Called in the forker, before libraries are imported for all
    ranks.
    """
    return Libraries(registered_for)


def registered_for(key: str) -> list[str]:
    """Returns the names of operations that have a kernel of their own for a dispatch key."""
    names = changes.usable("control values")
    return [] if names is None else list(names.get("_dispatch_get_registrations_for_dispatch_key")(key))


def _install_sparse(
    library: Any, key: str, control: ControlTensors, sized: SizedOps, registered: Iterable[str]
) -> None:
    import torch

    for name in sorted(registered):
        operation = _operation(name)
        if operation is None or name in sparse_ops.LEFT_ALONE or not sparse_ops.writes_or_makes(operation):
            continue
        kernel = torch.library.get_kernel(name, key)
        maker = partial(coalesce, sized) if name == "aten::_coalesce" else sparse_ops.sparse_op
        ours = maker(control, operation, kernel.call_boxed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            library.impl(operation, ours, key, with_keyset=True, allow_override=True)
