"""Tells the hook which pairs of a query and a key the kernels of FlashAttention, and PyTorch's memory-efficient ones,
compute, which decides their time.

Packed batches (`cu_seqlens`) have sequences of their own lengths, one behind the other; with a window a query sees the
keys near it. The names of memory-efficient kernels do not say whether a mask is causal. Where the ends of the sequences
are not known they count as equally long. Lengths differ from batch to batch: what they have together is rounded, so
that there are few different signatures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import pairwise
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ...private.access import schema_of
from ...private.imports import when_imported
from ..computed_op import Kernel
from ..control_tensors import ControlTensors
from ..routing.groups import rounded
from .operations import register

if TYPE_CHECKING:
    from torch import Tensor

OPERATIONS = frozenset(
    f"aten::_{kind}_attention_{way}" for kind in ("flash", "efficient") for way in ("forward", "backward")
)
OF_FLASH_ATTN = tuple(
    f"flash_attn::_flash_attn_{kind}" for kind in ("forward", "varlen_forward", "backward", "varlen_backward")
)
TILE = 128
_NAMES = {
    "q": ("q", "query"),
    "k": ("k", "key"),
    "ends_q": ("cu_seqlens_q", "cum_seq_q"),
    "ends_k": ("cu_seqlens_k", "cum_seq_k"),
    "causal": ("causal", "is_causal", "custom_mask_type"),
    "left": ("window_size_left",),
    "right": ("window_size_right",),
}
"""For each argument: its names in flash-attn and in PyTorch."""
FROM_FIRST_KEY = 1
"""A `custom_mask_type`: the first query sees the first key. Others that are not 0: the last query sees the last key."""
_LIBRARIES: list[Any] = []
"""The registered functions: they stay registered as long as these objects live."""


def told(control: ControlTensors, operation: Any, call: Kernel) -> Kernel:
    """Returns the function to call in the place of `call`, which calls the CUDA kernel of one of these operations."""
    arguments = schema_of(operation).arguments
    places = {
        ours: (n, argument.name, argument.default_value)
        for ours, names in _NAMES.items()
        for n, argument in enumerate(arguments)
        if argument.name in names
    }
    hook = control.hook
    in_name = all(argument.name != "custom_mask_type" for argument in arguments)

    def attend(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        given = {
            ours: args[n] if n < len(args) else kwargs.get(name, default) for ours, (n, name, default) in places.items()
        }
        found = sequences(control, in_name, **given)
        if found is None:
            return call(keyset, *args, **kwargs)
        hook.sequences(found)
        try:
            return call(keyset, *args, **kwargs)
        finally:
            hook.sequences(None)

    return attend


def sequences(
    control: ControlTensors,
    in_name: bool,
    q: Tensor,
    k: Tensor,
    causal: int,
    left: int | None = None,
    right: int | None = None,
    ends_q: Tensor | None = None,
    ends_k: Tensor | None = None,
    packed: bool = True,
) -> tuple[int, ...] | None:
    """Returns the fields of a `sequences` signature; None if sizes and the kernel's name tell all. `in_name`: the
    kernel's name has whether the mask is causal, else `causal` is a `custom_mask_type`. `packed`: the sequences are one
    behind the other, so that all together are as long as the tensors; else shorter ones are padded.
    """
    before = None if left is None or left < 0 else left
    after = 0 if causal else None if right is None or right < 0 else right
    if ends_q is None or ends_k is None:
        if before is None and (after is None or (in_name and after == 0)):
            return None
        batch, queries, keys = q.size(0), q.size(1), k.size(1)
        if not in_name and causal == FROM_FIRST_KEY:
            after = queries - keys
        return together(((queries, keys),), before, after, batch)
    queries_of, keys_of = _lengths(control, ends_q), _lengths(control, ends_k)
    if queries_of is None or keys_of is None:
        if not packed:
            return None
        n = max(ends_q.numel() - 1, 1)
        return together(((-(-q.size(-3) // n), -(-k.size(-3) // n)),), before, after, n)
    return tuple(map(rounded, together(tuple(zip(queries_of, keys_of, strict=False)), before, after)))


def _lengths(control: ControlTensors, ends: Tensor) -> list[int] | None:
    """Returns the sequences' lengths; None if they are not known."""
    known = control.values_to_come(ends)
    return None if known is None else [max(end - begin, 0) for begin, end in pairwise(known)]


@lru_cache(maxsize=256)
def together(
    lengths: tuple[tuple[int, int], ...], before: int | None, after: int | None, times: int = 1
) -> tuple[int, ...]:
    """Returns the fields of a `sequences` signature, for sequences of so many queries and keys, each `times` times. A
    query sees so many keys before and after its own place, all if None. The last query's place is that of the last key.
    """
    tiles: Callable[[int], int] = lambda n: -(-n // TILE)  # noqa: E731
    visited = longest = pairs = 0
    for queries, keys in lengths:
        ahead = keys - queries
        for first in range(0, queries, TILE):
            last = min(first + TILE, queries) - 1
            begin = 0 if before is None else max(first + ahead - before, 0)
            end = keys if after is None else min(max(last + ahead + after + 1, 0), keys)
            row = max(tiles(end) - begin // TILE, 0) if end > begin else 0
            visited, longest = visited + row, max(longest, row)
        pairs += _pairs(queries, keys, before, after)
    return (
        len(lengths) * times,
        sum(queries for queries, _ in lengths) * times,
        sum(keys for _, keys in lengths) * times,
        sum(tiles(queries) for queries, _ in lengths) * times,
        sum(tiles(keys) for _, keys in lengths) * times,
        visited * times,
        longest,
        pairs * times,
    )


def _pairs(queries: int, keys: int, before: int | None, after: int | None) -> int:
    """Returns the number of pairs of a query and a key that the query sees."""
    ahead = keys - queries
    end = queries * keys if after is None else _limited_sum(ahead + after + 1, queries, keys)
    return end - (0 if before is None else _limited_sum(ahead - before, queries, keys))


def _limited_sum(first: int, count: int, most: int) -> int:
    """Returns the sum of `count` consecutive numbers from `first` on, each limited to at least 0 and at most `most`."""
    last, least = first + count - 1, max(first, 1)
    inner = min(last, most)
    ramp = (least + inner) * (inner - least + 1) // 2 if inner >= least else 0
    return ramp + max(last - max(least, most + 1) + 1, 0) * most


def follow(control: ControlTensors, registered_for: Callable[[str], Iterable[str]]) -> None:
    """Makes flash-attn's operations tell the hook from now on. Called once, in the forker."""

    def change(_: ModuleType) -> None:
        registered = registered_for("CUDA")
        _LIBRARIES.extend(register(control, name, told) for name in OF_FLASH_ATTN if name in registered)

    when_imported("flash_attn.flash_attn_interface", change)
