"""Copies and conversions of large CPU tensors whose values are in the store: ranks share the results, too.

`module.bfloat16()`, `copy.deepcopy(module)` and `module.load_state_dict(...)` come here. A copy maps what its source
maps; a conversion is computed once. A tensor that this process has written to is copied as always.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .store import Origin
from .tensors import Sharing, block_of, watched

_CONVERSIONS = ("to", "bfloat16", "half", "float", "double")
"""Names of the methods of torch.Tensor that convert."""


def install(sharing: Sharing, of_lazy_modules: list[Any]) -> None:
    """Replaces these methods. Called once, in the forker. `of_lazy_modules`: functions that PyTorch lets change a
    parameter that has no size yet.
    """
    import torch

    dtypes = {"bfloat16": torch.bfloat16, "half": torch.half, "float": torch.float, "double": torch.double}
    for name in _CONVERSIONS:
        converted = _conversion(sharing, getattr(torch.Tensor, name), dtypes.get(name))
        setattr(torch.Tensor, name, converted)
    setattr(torch.Tensor, "clone", _clone(sharing, torch.Tensor.clone))  # noqa: B010
    setattr(torch.Tensor, "copy_", _copy(sharing, torch.Tensor.copy_))  # noqa: B010
    of_lazy_modules += [getattr(torch.Tensor, name) for name in (*_CONVERSIONS, "copy_")]


def _conversion(sharing: Sharing, function: Callable[..., Any], named: Any) -> Callable[..., Any]:
    """Makes the replacement of a conversion. `named`: the type that the function's name says; None: the arguments say
    it.
    """

    @functools.wraps(function)
    def convert(tensor: Any, *arguments: Any, **options: Any) -> Any:
        if sharing.store.has_blocks() and sharing.is_large(tensor) and not watched(tensor):
            result = _converted(sharing, function, tensor, named, arguments, options)
            if result is not None:
                return result
        return function(tensor, *arguments, **options)

    return convert


def _converted(
    sharing: Sharing, function: Callable[..., Any], tensor: Any, named: Any, arguments: Any, options: Any
) -> Any:
    """Returns the converted tensor; None if the source is not shared, or if this is no conversion alone."""
    import torch

    dtype = named if not arguments and not options else None if named else _asked(arguments, options)
    if dtype is None or dtype is tensor.dtype or not (dtype.is_floating_point and tensor.dtype.is_floating_point):
        return None
    with sharing.uncounted:
        origin = sharing.store.origin(block_of(tensor))
        if origin is None:
            return None
        small = torch.empty(2, 2, dtype=tensor.dtype)
        sharing.charge(lambda: function(small, *arguments, **options), tensor)
        result = torch.empty(tensor.shape, dtype=dtype, device="cpu")
        _fill_from(sharing, result, tensor, origin)
    return result


def _asked(arguments: Any, options: Any) -> Any:
    """Returns the type that `tensor.to(...)` is asked for; None if it is asked for anything else as well."""
    import torch

    options = dict(options)
    copy, form = options.pop("copy", False), options.get("memory_format")
    if copy or form not in (None, torch.preserve_format):
        return None
    options.pop("memory_format", None)
    try:
        device, dtype, _, form = torch._C._nn._parse_to(*arguments, **options)
    except (TypeError, RuntimeError):
        return None
    return dtype if form is None and (device is None or device.type == "cpu") else None


def _clone(sharing: Sharing, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def clone(tensor: Any, *arguments: Any, **options: Any) -> Any:
        import torch

        simple = not arguments and options.get("memory_format") in (None, torch.preserve_format)
        if simple and sharing.store.has_blocks() and sharing.is_large(tensor) and not watched(tensor):
            with sharing.uncounted:
                origin = sharing.store.origin(block_of(tensor))
                if origin is not None:
                    small = torch.empty(2, 2, dtype=tensor.dtype)
                    sharing.charge(lambda: function(small, **options), tensor)
                    result = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
                    _fill_from(sharing, result, tensor, origin)
                    return result
        return function(tensor, *arguments, **options)

    return clone


def _copy(sharing: Sharing, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def copy_(tensor: Any, source: Any, *arguments: Any, **options: Any) -> Any:
        import torch

        if (
            sharing.store.has_blocks()
            and sharing.is_large(tensor)
            and sharing.is_large(source)
            and source.shape == tensor.shape
            and (source.dtype == tensor.dtype or (source.is_floating_point() and tensor.is_floating_point()))
            and not (torch.is_grad_enabled() and (tensor.requires_grad or source.requires_grad))
            and sharing.may_fill(tensor)
        ):
            with sharing.uncounted:
                origin = sharing.store.origin(block_of(source))
                if origin is not None:
                    small = torch.empty(2, 2, dtype=tensor.dtype), torch.empty(2, 2, dtype=source.dtype)
                    sharing.charge(lambda: function(*small), tensor)
                    _fill_from(sharing, tensor, source, origin)
                    return tensor
        return function(tensor, source, *arguments, **options)

    return copy_


def _fill_from(sharing: Sharing, tensor: Any, source: Any, origin: Origin) -> None:
    """Gives the tensor the source's values, converted to its type."""
    if tensor.dtype == source.dtype and sharing.store.copy(
        block_of(tensor), tensor.untyped_storage(), block_of(source)
    ):
        return

    def compute() -> bytes:
        tensor.detach().copy_(source.detach())
        return b""

    sharing.fill(tensor, f"copy {origin.name} {source.dtype} {tensor.dtype}", compute)
