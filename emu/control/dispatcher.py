"""Puts our functions before torch's CUDA kernels, in PyTorch's dispatcher: before all of ATen's, but for a few."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

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


class DeviceFunctions:
    """Our functions in PyTorch's dispatcher, and what they share.

    Making them takes some tenths of a second. So it is done where the imports are, once for all runs of a kept
    interpreter, before the run's job is known.
    """

    def __init__(self, hook: Hook) -> None:
        """Registers the functions. Called once, in the forker, when torch has been imported."""
        import torch

        self.control = control = ControlTensors(hook, INTEGER_LIMIT)
        self.routing, self._sized = Routing(control), SizedOps(control)
        self.sizes = self._sized.sizes
        self.responses = Responses(hook)
        self._tokens = SampledTokens(control, self.responses)
        make_library: Any = torch.library.Library  # untyped
        self._library = make_library("aten", "IMPL")
        """The functions stay registered as long as this object lives."""
        self._known: dict[tuple[str, str], str] = {}
        """PyTorch's description of our function before an operation's kernel, by name and dispatch key."""
        self._sampling: dict[str, tuple[Any, Kernel, Kernel]] = {}
        """The operations that sample: each with the function that computes it, and the one that is called."""
        self._register()

    def begin(
        self,
        float_limit_numel: int,
        policy: RoutingPolicy,
        shapes: ShapePolicy,
        lengths: LengthPolicy | None,
        reads: UncomputedReads,
        libraries: Libraries,
    ) -> None:
        """Says what the run's job decides, and registers functions before operations of `libraries`, too. Called once,
        in the forker, when everything is imported.

        Integer and bool tensors are computed up to `INTEGER_LIMIT` elements, others up to `float_limit_numel`. `reads`
        is told of values that the program reads although nobody computed them.
        """
        control, tokens, library = self.control, self._tokens, self._library
        control.begin(float_limit_numel, reads)
        self.routing.policy, self.sizes.policy, self.responses.policy = policy, shapes, lengths
        self._register()  # what was imported meanwhile may have brought kernels
        if lengths is not None:
            for operation, made, ours in self._sampling.values():
                self._put(operation, "CUDA", tokens.around(made, ours))
        libraries.compute(control, self._sized.finding)
        attention.follow(control, registered_for)
        packed_attention.follow(control)
        fused_routers.follow(self.routing)
        transformers_loop.follow(tokens)
        vllm_scheduler.follow(tokens.responses)
        argument_checks.install(control)
        reads.decisions.at_first_on_host = lambda: host_ops.install(control, library, registered_for, _operation)
        reads.decisions.forget_on_device = control.forget_followed
        reads.decisions.flags_on_device = control.flags_of_unknown
        reads.decisions.is_unknown = control.is_unknown

    # ---- registering -----------------------------------------------------------------------------------------------
    def _register(self) -> None:
        """Puts a function before each kernel that has none."""
        for name in sorted({*registered_for("CUDA"), *op_rules.OF_ALL_DEVICES}):
            if name not in op_rules.LEFT_ALONE or name in attention.OPERATIONS:
                self._put_before(name, "CUDA", self._function)
        for key in sparse_ops.KEYS:
            for name in sorted(registered_for(key)):
                if name not in sparse_ops.LEFT_ALONE:
                    self._put_before(name, key, self._sparse_function)

    def _put_before(self, name: str, key: str, make: Callable[[str, Any, Kernel], Kernel | None]) -> None:
        import torch

        operation = _operation(name)
        if operation is None:
            return
        kernel: Any = torch.library.get_kernel(name, key)
        if self._known.get((name, key)) == str(kernel):
            return
        ours = make(name, operation, kernel.call_boxed)
        if ours is not None:
            self._put(operation, key, ours)
            self._known[name, key] = str(torch.library.get_kernel(name, key))

    def _put(self, operation: Any, key: str, ours: Kernel) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of overrides
            self._library.impl(operation, ours, key, with_keyset=True, allow_override=True)

    def _function(self, name: str, operation: Any, kernel: Kernel) -> Kernel:
        """Makes the function before an operation's kernel."""
        control = self.control
        if name in attention.OPERATIONS:
            return attention.told(control, operation, kernel)
        made = (self._sized.makers.get(name) or _maker(name, operation))(control, operation, kernel)
        made = overflow_checks.noted(control, name, made)
        ours = self.routing.before(operation, made)
        if name in SAMPLES:
            self._sampling[name] = operation, made, ours
        return ours

    def _sparse_function(self, name: str, operation: Any, kernel: Kernel) -> Kernel | None:
        """Makes the function before an operation's kernel for sparse tensors; None: it needs none."""
        if not sparse_ops.writes_or_makes(operation):
            return None
        maker = partial(coalesce, self._sized) if name == "aten::_coalesce" else sparse_ops.sparse_op
        return maker(self.control, operation, kernel)


def libraries_from_now_on() -> Libraries:
    """Begins to note the operations that libraries bring. Called in the forker, before libraries are imported for all
    ranks.
    """
    return Libraries(registered_for)


def registered_for(key: str) -> list[str]:
    """Returns the names of operations that have a kernel of their own for a dispatch key."""
    names = changes.usable("control values")
    return [] if names is None else list(names.get("_dispatch_get_registrations_for_dispatch_key")(key))
