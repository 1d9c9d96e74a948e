"""Initialisation of large CPU tensors: ranks that would write the same numbers compute them once.

What `uniform_` and the like write follows from their arguments and the generator's state alone. Where a rank's call has
been made before in this run, its tensor maps the values that were drawn then, and its generator moves on as if it had
drawn them. A constant needs no generator, and zeros need no store.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from . import pages
from .tensors import Sharing, block_of, watched

RANDOM_METHODS = ("uniform_", "normal_")
"""Names of the methods of torch.Tensor that draw numbers."""
RANDOM_FUNCTIONS = ("trunc_normal_", "orthogonal_")
"""Names of the functions of torch.nn.init that change the numbers that they draw."""
CONSTANT_METHODS = ("zero_", "fill_")
"""Names of the methods of torch.Tensor that write a constant."""
_GRAIN = 1 << 15
"""The number of elements from which `zero_` calls `fill_`."""


def install(sharing: Sharing) -> None:
    """Replaces these methods and functions. Called once, in the forker."""
    import torch
    import torch.nn.init

    for name in RANDOM_METHODS:
        setattr(torch.Tensor, name, _drawn_once(sharing, getattr(torch.Tensor, name), name))
    for name in RANDOM_FUNCTIONS:
        setattr(torch.nn.init, name, _drawn_once(sharing, getattr(torch.nn.init, name), name))
    for name in CONSTANT_METHODS:
        setattr(torch.Tensor, name, _constant(sharing, getattr(torch.Tensor, name), name))


def _drawn_once(sharing: Sharing, function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Makes the replacement of a function that draws numbers. The functions of torch.nn.init switch autograd off
    themselves.
    """

    @functools.wraps(function)
    def initialise(tensor: Any, *arguments: Any, **options: Any) -> Any:
        if sharing.is_large(tensor) and not (name in RANDOM_METHODS and watched(tensor)) and sharing.may_fill(tensor):
            return _draw(sharing, function, name, tensor, arguments, options)
        return function(tensor, *arguments, **options)

    return initialise


def _draw(
    sharing: Sharing,
    function: Callable[..., Any],
    name: str,
    tensor: Any,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
) -> Any:
    import torch

    with sharing.uncounted:
        generator = options.get("generator") or torch.default_generator
        state = generator.get_state()
        small = torch.empty(2, 2, dtype=tensor.dtype)
        sharing.charge(lambda: function(small, *arguments, **options), tensor)
        generator.set_state(state)

        def draw() -> bytes:
            function(tensor.detach(), *arguments, **options)
            return bytes(generator.get_state().numpy().tobytes())

        others = sorted((option, value) for option, value in options.items() if option != "generator")
        key = f"{name} {arguments} {others} {tuple(tensor.shape)} {tensor.dtype} {state.numpy().tobytes().hex()}"
        after = sharing.fill(tensor, key, draw)
        generator.set_state(torch.frombuffer(bytearray(after), dtype=torch.uint8))
    return tensor


def _constant(sharing: Sharing, function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def write(tensor: Any, *arguments: Any, **options: Any) -> Any:
        plain = not options and all(type(argument) in (int, float, bool) for argument in arguments)
        if plain and sharing.is_large(tensor) and not watched(tensor) and _is_new(sharing, tensor):
            return _write(sharing, function, name, tensor, arguments)
        return function(tensor, *arguments, **options)

    return write


def _is_new(sharing: Sharing, tensor: Any) -> bool:
    """Tells whether this process has no page of the tensor in its memory yet. Else it is faster to write to the pages
    again.
    """
    with sharing.uncounted:
        new = pages.untouched(pages.whole_pages(block_of(tensor)))
    return new and sharing.may_fill(tensor)


def _write(sharing: Sharing, function: Callable[..., Any], name: str, tensor: Any, arguments: tuple[Any, ...]) -> Any:
    import torch

    with sharing.uncounted:
        small = torch.empty(_GRAIN, dtype=tensor.dtype)
        sharing.charge(lambda: function(small, *arguments), tensor, _GRAIN)
        if name == "zero_" or (arguments and not arguments[0] and str(arguments[0]) != "-0.0"):
            block = block_of(tensor)
            sharing.store.forget(block)
            pages.map_zeros(block)
            torch.autograd.graph.increment_version(tensor)
        else:
            nbytes = tensor.numel() * tensor.element_size()

            def fill() -> bytes:
                function(tensor.detach(), *arguments)
                return b""

            sharing.fill(tensor, f"{name} {arguments} {tensor.dtype} {nbytes}", fill)
    return tensor
