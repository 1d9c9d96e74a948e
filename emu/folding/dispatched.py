"""gloo's stand-in where PyTorch has no backends that are written in Python, before 2.12: the process group gets a
backend of this process alone, and c10d's operators for tensors of the host go to the stand-in.

What an operator is to reduce by is an object that Python cannot read, so it is noted where Python names it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._C import _distributed_c10d as c10d
from torch.distributed import ProcessGroup, ReduceOp

from ..interpreter.hook_library import Hook
from ..private.access import backend_of
from .work import Done

_REDUCING = (
    "allreduce",
    "allreduce_coalesced",
    "reduce",
    "reduce_scatter",
    "_reduce_scatter_base",
    "reduce_scatter_tensor_coalesced",
)
"""Names of the methods of process groups that take what is reduced by."""
_FUNCTIONAL = ("all_reduce", "all_reduce_coalesced", "reduce_scatter_tensor", "reduce_scatter_tensor_coalesced")
_HOST = torch.device("cpu")


class Dispatched:
    """Takes c10d's operators for tensors of the host. One in a process."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._library: Any = None
        self._backends: list[Any] = []
        """The backends live as long as the process: c10d's groups know their C++ halves alone."""
        self._unfinished: set[Done] = set()
        """Work that C++ holds: it calls the Python half, which has to live until then."""
        self._noted = threading.local()

    def backends(self, real: Any, stand_in: Any) -> Any:
        """Returns the class that process groups get in place of gloo's backend: a backend of one process alone, with a
        stand-in.
        """
        dispatched = self

        class ProcessGroupGloo(real):
            def __init__(self, store: Any, rank: int, size: int, *rest: Any, **options: Any) -> None:
                super().__init__(torch.distributed.HashStore(), 0, 1, *rest, **options)
                self.stand_in = stand_in(store, rank, size)
                dispatched._hook.uncounted(1)  # functions of PyTorch would take time that gloo's own backend does not
                try:
                    dispatched.install()
                finally:
                    dispatched._hook.uncounted(-1)
                dispatched._backends.append(self)

        return ProcessGroupGloo

    def member_of(self, group: Any) -> Any:
        """Returns the stand-in of a process group, or its backend if it has none."""
        backend = backend_of(group, _HOST)
        return getattr(backend, "stand_in", backend)

    # ---- operators -------------------------------------------------------------------------------------------------

    def install(self) -> None:
        if self._library is not None:
            return
        self._library = torch.library.Library("c10d", "IMPL")
        for name, call in _CALLS.items():
            if hasattr(torch.ops.c10d, name):
                self._library.impl(name, functools.partial(self._run, call), "CPU", allow_override=True)
        for name in _REDUCING:
            real = getattr(ProcessGroup, name, None)
            if real is not None:
                setattr(ProcessGroup, name, self._noting(real))
        from torch.distributed import _functional_collectives as functional

        for name in _FUNCTIONAL:
            real = getattr(functional, name, None)
            if real is not None:
                setattr(functional, name, self._noting(real))

    def _noting(self, real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def method(*arguments: Any, **options: Any) -> Any:
            with self._reducing_by(_reduce_op((*arguments, *options.values()))):
                return real(*arguments, **options)

        return method

    @contextmanager
    def _reducing_by(self, op: Any) -> Iterator[None]:
        outer = getattr(self._noted, "op", None)
        self._noted.op = op
        try:
            yield
        finally:
            self._noted.op = outer

    def _run(self, call: Callable[..., tuple[Any, Any]], *arguments: Any, **options: Any) -> Any:
        places = [place for place, one in enumerate(arguments) if isinstance(one, torch.ScriptObject)]
        member = self.member_of(ProcessGroup.unbox(arguments[places[0]]))
        told = [one for place, one in enumerate(arguments) if place not in places]
        results, work = call(member, getattr(self._noted, "op", None) or ReduceOp.SUM, *told, **options)
        boxed = self._kept(work).boxed()
        return boxed if results is None else (results, boxed)

    def _kept(self, work: Any) -> Any:
        if isinstance(work, Done):
            self._unfinished.add(work)
            work.on_done(lambda: self._unfinished.discard(work))
        return work


def _reduce_op(told: tuple[Any, ...]) -> Any:
    """Returns what a call reduces by, from the call's arguments; None if none of them says it."""
    for one in told:
        if hasattr(one, "reduceOp"):
            return one.reduceOp
        if isinstance(one, ReduceOp | ReduceOp.RedOpType):
            return one
        if isinstance(one, str) and hasattr(ReduceOp, one.upper()):
            return getattr(ReduceOp, one.upper())
    return None


def _with(options: Any, **values: Any) -> Any:
    for name, value in values.items():
        setattr(options, name, value)
    return options


# By name of an operator: the call of a backend, and what the operator returns beside the work. `by`: a reduction;
# `_`: whether it is asynchronous, and its timeout.


def _allreduce(member: Any, by: Any, tensors: Any, sparse: Any, *_: Any) -> tuple[Any, Any]:
    return tensors, member.allreduce(tensors, _with(c10d.AllreduceOptions(), reduceOp=by))


def _allreduce_coalesced(member: Any, by: Any, tensors: Any, *_: Any) -> tuple[Any, Any]:
    return None, member.allreduce_coalesced(tensors, _with(c10d.AllreduceCoalescedOptions(), reduceOp=by))


def _broadcast(member: Any, by: Any, tensors: Any, root: int, root_tensor: int, *_: Any) -> tuple[Any, Any]:
    options = _with(c10d.BroadcastOptions(), rootRank=root, rootTensor=root_tensor)
    return tensors, member.broadcast(tensors, options)


def _reduce(member: Any, by: Any, tensors: Any, root: int, root_tensor: int, *_: Any) -> tuple[Any, Any]:
    options = _with(c10d.ReduceOptions(), reduceOp=by, rootRank=root, rootTensor=root_tensor)
    return None, member.reduce(tensors, options)


def _allgather(member: Any, by: Any, outputs: Any, inputs: Any, *_: Any) -> tuple[Any, Any]:
    return outputs, member.allgather(outputs, inputs)


def _allgather_base(member: Any, by: Any, output: Any, tensor: Any, *_: Any) -> tuple[Any, Any]:
    return output, member._allgather_base(output, tensor)


def _allgather_coalesced(member: Any, by: Any, outputs: Any, inputs: Any, *_: Any) -> tuple[Any, Any]:
    return None, member.allgather_coalesced(outputs, inputs)


def _allgather_into_tensor_coalesced(member: Any, by: Any, outputs: Any, inputs: Any, *_: Any) -> tuple[Any, Any]:
    return None, member.all_gather_single_coalesced(outputs, inputs)


def _gather(member: Any, by: Any, outputs: Any, inputs: Any, root: int, *_: Any) -> tuple[Any, Any]:
    return None, member.gather(outputs, inputs, _with(c10d.GatherOptions(), rootRank=root))


def _scatter(member: Any, by: Any, outputs: Any, inputs: Any, root: int, *_: Any) -> tuple[Any, Any]:
    return outputs, member.scatter(outputs, inputs, _with(c10d.ScatterOptions(), rootRank=root))


def _reduce_scatter(member: Any, by: Any, outputs: Any, inputs: Any, *_: Any) -> tuple[Any, Any]:
    return outputs, member.reduce_scatter(outputs, inputs, _with(c10d.ReduceScatterOptions(), reduceOp=by))


def _reduce_scatter_base(member: Any, by: Any, output: Any, tensor: Any, *_: Any) -> tuple[Any, Any]:
    return output, member._reduce_scatter_base(output, tensor, _with(c10d.ReduceScatterOptions(), reduceOp=by))


def _reduce_scatter_coalesced(member: Any, by: Any, outputs: Any, inputs: Any, *_: Any) -> tuple[Any, Any]:
    options = _with(c10d.ReduceScatterOptions(), reduceOp=by)
    return None, member.reduce_scatter_single_coalesced(outputs, inputs, options)


def _alltoall(member: Any, by: Any, outputs: Any, inputs: Any, *_: Any) -> tuple[Any, Any]:
    return outputs, member.alltoall(outputs, inputs)


def _alltoall_base(
    member: Any, by: Any, output: Any, tensor: Any, out_sizes: Any, in_sizes: Any, *_: Any
) -> tuple[Any, Any]:
    return None, member.alltoall_base(output, tensor, out_sizes, in_sizes)


def _barrier(member: Any, by: Any, tensor: Any, *_: Any) -> tuple[Any, Any]:
    return None, member.barrier()


def _send(member: Any, by: Any, tensors: Any, to: int, tag: int) -> tuple[Any, Any]:
    return None, member.send(tensors, to, tag)


def _recv(member: Any, by: Any, tensors: Any, source: int, tag: int) -> tuple[Any, Any]:
    return None, member.recv(tensors, source, tag)


_CALLS: dict[str, Callable[..., tuple[Any, Any]]] = {
    "allreduce_": _allreduce,
    "allreduce_coalesced_": _allreduce_coalesced,
    "broadcast_": _broadcast,
    "reduce_": _reduce,
    "allgather_": _allgather,
    "_allgather_base_": _allgather_base,
    "allgather_coalesced_": _allgather_coalesced,
    "allgather_into_tensor_coalesced_": _allgather_into_tensor_coalesced,
    "gather_": _gather,
    "scatter_": _scatter,
    "reduce_scatter_": _reduce_scatter,
    "_reduce_scatter_base_": _reduce_scatter_base,
    "reduce_scatter_tensor_coalesced_": _reduce_scatter_coalesced,
    "alltoall_": _alltoall,
    "alltoall_base_": _alltoall_base,
    "barrier": _barrier,
    "send": _send,
    "recv_": _recv,
}
