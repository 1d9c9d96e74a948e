"""Collectives of a process group of which this process is the only member that exists.

The other ranks are taken to hold what this rank holds. So results have their real shapes and ordinary values, which is
what the durations of later kernels depend on: matrix products of zeros draw less power, and infinite values end
training. Sums of floating-point numbers stay what this rank contributed.

These functions take the place of the kernels of PyTorch's `c10d::` operators, through which all callers go: Python,
DistributedDataParallel's reducer in C++, functional collectives in compiled code.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

RANGE = "phantora.stand_in"
"""Work within this range of the trace is not the script's: copies that take the place of a collective."""
SPREAD = 0.02
"""The standard deviation of numbers that another rank would have sent."""
LARGEST = 1e4
"""A buffer with a larger number in it was never written."""

Call = dict[str, Any]
"""Arguments of the operator, by the names in its schema."""
Member = Any
"""The process group: `rank()` and `size()`."""
_KERNELS: dict[str, Callable[[Member, Call], None]] = {}
_LIBRARY: list[torch.library.Library] = []
"""Registrations last as long as this object."""


def _kernel(*operators: str) -> Callable[[Callable[[Member, Call], None]], Callable[[Member, Call], None]]:
    def register(function: Callable[[Member, Call], None]) -> Callable[[Member, Call], None]:
        _KERNELS.update(dict.fromkeys(operators, function))
        return function

    return register


def install() -> None:
    """Makes collectives of all process groups of this process stand-ins from now on."""
    library = torch.library.Library("c10d", "IMPL")
    _LIBRARY.append(library)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that kernels are replaced
        for operator, kernel in _KERNELS.items():
            try:
                schema = torch._C._get_schema(f"c10d::{operator}", "")
            except RuntimeError:
                continue  # this PyTorch does not have it
            for key in ("CPU", "CUDA"):
                library.impl(operator, _adapted(kernel, schema), key, allow_override=True)


def _adapted(kernel: Callable[[Member, Call], None], schema: Any) -> Callable[..., Any]:
    names = [argument.name for argument in schema.arguments]
    defaults = {argument.name: argument.default_value for argument in schema.arguments if argument.has_default_value()}
    results = len(schema.returns)

    def run(*given: Any) -> Any:
        call = defaults | dict(zip(names, given, strict=False))
        with torch.no_grad(), torch.profiler.record_function(RANGE):
            kernel(dist.ProcessGroup.unbox(call["process_group"]), call)
        if not results:
            return None
        # Operators that return tensors return their first argument.
        done = torch.futures.Future[Any]()
        done.set_result(_flat(given[0]))
        work = c10d._create_work_from_future(done).boxed()
        return work if results == 1 else (given[0], work)

    return run


def _flat(tensors: Any) -> list[torch.Tensor]:
    if isinstance(tensors, torch.Tensor):
        return [tensors]
    return [tensor for one in tensors for tensor in _flat(one)]


# ---- values ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _alone(tensor: torch.Tensor) -> Iterator[None]:
    """A context in which nothing else runs on the GPU: the script's kernels shall not be measured beside our copies."""
    wait = tensor.is_cuda and not torch.cuda.is_current_stream_capturing()
    if wait:
        torch.cuda.synchronize()
    yield
    if wait:
        torch.cuda.synchronize()


def _put(target: torch.Tensor, source: torch.Tensor) -> None:
    """Fills the target with the source, repeated or cut off where their sizes differ. `data` keeps the target's
    version, which no collective changes.
    """
    target, source = target.data, source.data
    if not target.numel() or (target.data_ptr() == source.data_ptr() and target.numel() == source.numel()):
        return
    with _alone(target):
        if target.numel() == source.numel():
            target.copy_(source.reshape(target.shape))
        elif not source.numel():
            target.zero_()
        else:
            times = -(-target.numel() // source.numel())
            target.copy_(source.reshape(-1).repeat(times)[: target.numel()].reshape(target.shape))


def _put_in_all_places(target: torch.Tensor, source: torch.Tensor) -> None:
    if not source.numel() or target.numel() % source.numel() or not target.is_contiguous():
        _put(target, source)
        return
    for place in target.data.view(-1, source.numel()):
        _put(place, source)


def _hear(tensor: torch.Tensor) -> None:
    """Fills the tensor with what another rank would send: small random numbers, or zeros if they are integers."""
    tensor = tensor.data
    with _alone(tensor):
        if not tensor.is_floating_point() and not tensor.is_complex():
            tensor.zero_()
        elif tensor.element_size() == 1:
            tensor.copy_(torch.randn(tensor.shape, device=tensor.device).mul_(SPREAD))
        else:
            tensor.normal_(0, SPREAD)


def _was_written(tensor: torch.Tensor) -> bool:
    if not tensor.numel() or not tensor.is_floating_point():
        return True
    return bool(tensor.float().abs().max() < LARGEST)


# ---- operators -------------------------------------------------------------------------------------------------------


@_kernel("allreduce_", "allreduce_coalesced_", "reduce_")
def _reduce(group: Member, call: Call) -> None:
    if call["reduce_op"].op() != dist.ReduceOp.SUM.value:
        return
    for tensor in _flat(call["tensors"]):
        if not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype is not torch.bool:
            with _alone(tensor):
                tensor.data.mul_(group.size())


@_kernel("broadcast_")
def _broadcast(group: Member, call: Call) -> None:
    """Takes the values that this rank holds to be those of the root, unless they were never written."""
    if group.rank() != call["root_rank"]:
        for tensor in _flat(call["tensors"]):
            if not _was_written(tensor):
                _hear(tensor)


@_kernel("allgather_")
def _all_gather(group: Member, call: Call) -> None:
    for targets, source in zip(call["output_tensors"], call["input_tensors"], strict=True):
        for target in targets:
            _put(target, source)


@_kernel("allgather_coalesced_")
def _all_gather_lists(group: Member, call: Call) -> None:
    for targets in call["output_lists"]:
        for target, source in zip(targets, call["input_list"], strict=True):
            _put(target, source)


@_kernel("_allgather_base_")
def _all_gather_one(group: Member, call: Call) -> None:
    _put_in_all_places(call["output_tensor"], call["input_tensor"])


@_kernel("allgather_into_tensor_coalesced_")
def _all_gather_several(group: Member, call: Call) -> None:
    for target, source in zip(call["outputs"], call["inputs"], strict=True):
        _put_in_all_places(target, source)


@_kernel("gather_")
def _gather(group: Member, call: Call) -> None:
    if group.rank() == call["root_rank"]:
        _all_gather(group, call)


@_kernel("gather_into_tensor_")
def _gather_one(group: Member, call: Call) -> None:
    if group.rank() == call["root_rank"]:
        _all_gather_one(group, call)


@_kernel("scatter_")
def _scatter(group: Member, call: Call) -> None:
    for place, target in enumerate(call["output_tensors"]):
        if group.rank() == call["root_rank"]:
            _put(target, call["input_tensors"][place][group.rank()])
        else:
            _hear(target)


@_kernel("reduce_scatter_")
def _reduce_scatter(group: Member, call: Call) -> None:
    for target, sources in zip(call["output_tensors"], call["input_tensors"], strict=True):
        _put(target, sources[group.rank()])


def _put_own_part(group: Member, target: torch.Tensor, source: torch.Tensor) -> None:
    begin = group.rank() * target.numel()
    _put(target, source.data.reshape(-1)[begin : begin + target.numel()])


@_kernel("_reduce_scatter_base_")
def _reduce_scatter_one(group: Member, call: Call) -> None:
    _put_own_part(group, call["output_tensor"], call["input_tensor"])


@_kernel("reduce_scatter_tensor_coalesced_")
def _reduce_scatter_several(group: Member, call: Call) -> None:
    for target, source in zip(call["outputs"], call["inputs"], strict=True):
        _put_own_part(group, target, source)


@_kernel("alltoall_base_")
def _all_to_all_one(group: Member, call: Call) -> None:
    """Gives the rank as many rows as it sends, unless the call says otherwise."""
    _put(call["output"], call["input"])


@_kernel("alltoall_")
def _all_to_all(group: Member, call: Call) -> None:
    for target, source in zip(call["output_tensors"], call["input_tensors"], strict=True):
        _put(target, source)


@_kernel("recv_", "recv_any_source_")
def _receive(group: Member, call: Call) -> None:
    for tensor in _flat(call["tensors"]):
        _hear(tensor)


@_kernel("send", "barrier", "monitored_barrier_")
def _nothing(group: Member, call: Call) -> None:
    pass
