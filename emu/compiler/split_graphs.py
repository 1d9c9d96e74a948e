"""Caches the graphs of a compiled model under DistributedDataParallel as those of other models.

torch splits such a model's graph into one for each bucket of gradients. To compile the next one it needs to know what
the one before returns: it has the first call of each compiled graph return fake tensors, which only a graph that was
traced a moment ago can. So AOTAutograd caches none of these graphs, and every rank of every run traces them again. Here
an entry of the cache also says what its graph returns, and the first call of a cached graph returns that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..private.changes import Names, changes

_RETURNS = "phantora_returns"
"""Attribute of a cache entry."""
_WRAP = "wrap_post_compile"
"""A method of the class of cache entries, which torch 2.9 has in another module."""


class Returned(NamedTuple):
    """A tensor that a graph returns."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: Any
    device: str


def install() -> None:
    """Makes AOTAutograd cache the graphs that DistributedDataParallel splits. Called once, in the forker, before torch
    compiles. Has no effect on versions of torch that work in another way.
    """
    returned = _ByKey()
    changes.when_imported("what split graphs return", functools.partial(_note_returned, returned))
    changes.when_imported("split graphs", functools.partial(_save_returned, returned))
    changes.when_imported("cached split graphs", lambda names: names.change(_WRAP, _returning_fakes))


_ByKey = dict[str, "list[Returned | int | None]"]
"""For each graph, by its key in AOTAutograd's cache: what it returns, until the graph's entry is saved."""


def describe(values: Sequence[Any], own_device: int) -> list[Returned | int | None] | None:
    """Describes what a graph returns; None if a size is not a number: such a graph fits several sizes."""
    import torch

    found: list[Returned | int | None] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            size, stride = tuple(value.size()), tuple(value.stride())
            if not all(type(number) is int for number in (*size, *stride)):
                return None
            is_own = value.device.type == "cuda" and value.device.index == own_device
            found.append(Returned(size, stride, value.dtype, "cuda" if is_own else str(value.device)))
        elif value is None or type(value) is int:
            found.append(value)
        else:
            return None
    return found


def _is_split() -> bool:
    """Tells whether torch compiles one of several graphs that it has made of one."""
    import torch

    context = torch._guards.TracingContext.try_get()
    return context is not None and context.fakify_first_call


def _note_returned(returned: _ByKey, names: Names) -> None:
    names.change("post_compile", functools.partial(_noting, returned))


def _noting(returned: _ByKey, post_compile: Any) -> Any:
    @functools.wraps(post_compile)
    def post_compile_and_note(self: Any, compiled_fn: Any, aot_config: Any, **named: Any) -> Any:
        import torch

        if not self.needs_post_compile:
            return post_compile(self, compiled_fn, aot_config, **named)
        own_device, context = torch.cuda.current_device(), torch._guards.TracingContext.try_get()
        traced = describe(self.out_metas, own_device)
        if traced is not None and context is not None:
            # New ones, as for a cached graph: Inductor has marked the traced ones, which the next graph's key tells.
            self.out_metas = _fakes(traced, context.fake_mode)
        wrapped = post_compile(self, compiled_fn, aot_config, **named)
        info = getattr(aot_config, "cache_info", None)
        final = describe(self.out_metas, own_device)  # the strides are now those that Inductor has chosen
        if final is None or info is None:
            return wrapped
        returned[info.cache_key] = final
        return _first_call_returns(wrapped([]), compiled_fn)

    return post_compile_and_note


def _save_returned(returned: _ByKey, names: Names) -> None:
    names.change("check_cacheable", _cacheable_if_split)
    names.change("AOTAutogradCache.save", functools.partial(_saving, returned))
    names.change(_WRAP, _returning_fakes)


def _cacheable_if_split(check_cacheable: Any) -> Any:
    @functools.wraps(check_cacheable)
    def check_cacheable_also_if_split(gm: Any) -> None:
        import torch

        if not _is_split():
            check_cacheable(gm)
            return
        context: Any = torch._guards.TracingContext.try_get()
        context.fakify_first_call = False
        try:
            check_cacheable(gm)
        finally:
            context.fakify_first_call = True

    return check_cacheable_also_if_split


def _saving(returned: _ByKey, save: Any) -> Any:
    @functools.wraps(save)
    def save_with_returned(key: str, entry: Any, *rest: Any, **named: Any) -> Any:
        values = returned.pop(key, None)
        if values is not None:
            setattr(entry, _RETURNS, values)
        return save(key, entry, *rest, **named)

    return save_with_returned


def _returning_fakes(wrap_post_compile: Any) -> Any:
    @functools.wraps(wrap_post_compile)
    def wrap_post_compile_if_split(self: Any, *arguments: Any, **named: Any) -> Any:
        import torch

        if _is_split():
            values = getattr(self, _RETURNS, None)
            if values is None or self.maybe_subclass_meta is not None:
                raise RuntimeError("this entry does not say what its graph returns")  # torch compiles the graph then
            context: Any = torch._guards.TracingContext.try_get()
            context.fw_metadata = self.runtime_metadata
            self.compiled_fw = _FirstCallReturns(self.compiled_fw, _fakes(values, context.fake_mode))
        return wrap_post_compile(self, *arguments, **named)

    return wrap_post_compile_if_split


def _fakes(values: list[Returned | int | None], fake_mode: Any) -> list[Any]:
    """Makes fake tensors without the operator that makes a tensor in this mode, which takes several times as long."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    def fake(value: Returned) -> Any:
        device = torch.device(value.device)
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        meta = torch.empty_strided(value.size, value.stride, dtype=value.dtype, device="meta")
        return FakeTensor(fake_mode, meta, device)

    with torch._C._DisableTorchDispatch():
        return [fake(value) if isinstance(value, Returned) else value for value in values]


class _FirstCallReturns:
    """A cached forward graph, as AOTAutograd loads it, whose first call returns `values`."""

    def __init__(self, graph: Any, values: list[Any]) -> None:
        self._graph = graph
        self._values = values

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graph, name)

    def post_compile(self, result: Any, fx_config: Any) -> Callable[[list[Any]], Any]:
        return _first_call_returns(self._values, self._graph.post_compile(result, fx_config))


def _first_call_returns(values: list[Any] | None, compiled: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Wraps a compiled graph, so that one compiled just now and a cached one take the same host time."""

    @functools.wraps(compiled)  # AOTAutograd looks for attributes of the compiled graph when it saves its entry
    def call(arguments: list[Any]) -> Any:
        nonlocal values
        if values is not None:
            returned, values = values, None
            return returned
        return compiled(arguments)

    vars(call)["_boxed_call"] = True
    return call
