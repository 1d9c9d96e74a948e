"""Transformer Engine's router scores experts and chooses among them in one kernel: what it writes follows the policy.

The kernel writes a map of the experts of each token, a byte or a bit for each expert, or the chosen experts' numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, NamedTuple

from ...private.imports import when_imported
from .score_masks import MAX_NUMEL

if TYPE_CHECKING:
    from types import ModuleType

    from torch import Tensor

    from .routing import Routing

MODULE = "transformer_engine.pytorch.router"
"""The module that calls the functions of the extension, which Transformer Engine loads without an import."""
BITS = 8
"""The experts in a byte of a map of bits."""


class _Arguments(NamedTuple):
    """The places of a function's arguments, which it takes in order: of the count of groups of experts, of how many of
    them are chosen first, of the map's form (1: bits), and of the tensor for the experts' numbers. None: it has none.
    """

    groups: int | None
    groups_chosen: int | None
    in_bits: int
    numbers: int


FUNCTIONS = {
    "fused_topk_with_score_function_fwd": _Arguments(3, 4, 8, 9),
    "fused_topk_with_score_function_qb_fwd": _Arguments(None, None, 4, 5),
}
"""Functions whose first arguments are the scores and how many are chosen, and whose second result is the map."""


def follow(routing: Routing) -> None:
    """Makes Transformer Engine's routers choose by the policy from now on. Called once, in the forker."""

    def change(module: ModuleType) -> None:
        extension = module.tex
        for name, arguments in FUNCTIONS.items():
            if hasattr(extension, name):
                made = choosing(routing, getattr(extension, name), name.removesuffix("_fwd"), arguments)
                setattr(extension, name, made)

    when_imported(MODULE, change)


def choosing(routing: Routing, function: Callable[..., Any], verb: str, places: _Arguments) -> Callable[..., Any]:
    """Returns the function to call in the place of the router's."""

    @wraps(function)
    def choose(*args: Any, **kwargs: Any) -> Any:
        def argument(place: int | None) -> Any:
            return args[place] if place is not None and place < len(args) else None

        result = function(*args, **kwargs)
        if kwargs:  # Transformer Engine's own calls have none
            return result
        scores, count, numbers = args[0], args[1], argument(places.numbers)
        candidates = scores.size(-1)
        written = result[1] if numbers is None else numbers
        if not 0 < written.numel() <= MAX_NUMEL:
            return result
        form: Callable[[Tensor], Tensor] | None = None
        if numbers is None:
            in_bits = bool(argument(places.in_bits))
            form = partial(_map_of, candidates=candidates, in_bits=in_bits)
        groups, groups_chosen = argument(places.groups) or 1, argument(places.groups_chosen) or 1
        of_groups = (groups, groups_chosen) if groups_chosen < groups else None
        counted = routing.fill(written, candidates, count, None, -1, False, verb, form, of_groups)
        if counted is not None:
            counted.used()
        return result

    return choose


def _map_of(chosen: Tensor, candidates: int, in_bits: bool) -> Tensor:
    """Returns the map of the experts that each token has chosen; `chosen`: int64[tokens, experts of a token]."""
    import torch

    width = -(-candidates // BITS) * BITS if in_bits else candidates
    bytes_of = torch.zeros(len(chosen), width, dtype=torch.bool, device="cpu").scatter_(1, chosen, True)
    if not in_bits:
        return bytes_of
    values = 2 ** torch.arange(BITS, device="cpu")
    return (bytes_of.view(len(chosen), -1, BITS) * values).sum(-1).to(torch.uint8)
