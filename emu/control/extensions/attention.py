"""Tells the hook which pairs of a query and a key the kernels of FlashAttention, and PyTorch's memory-efficient ones,
compute, which decides their time.

Packed batches (`cu_seqlens`) have sequences of their own lengths, one behind the other; with a window a query sees the
keys near it. The names of memory-efficient kernels do not say whether a mask is causal. Where the ends of the sequences
are not known they count as equally long. Lengths differ from batch to batch: what they have together is rounded, so
that there are few different signatures.

Engines of inference attend to a cache of keys and values, of which each sequence uses some (`seqused_k`). They capture
these operations in CUDA graphs, whose launches read the lengths anew. So does the hook: it is told where they lie in
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
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
OF_ENGINES = {
    "vllm.vllm_flash_attn.flash_attn_interface": (
        "_vllm_fa2_C::varlen_fwd",
        "_vllm_fa2_C::fwd_kvcache",
        "_vllm_fa3_C::fwd",
    ),
    "flash_attn_interface": ("flash_attn_3::fwd",),
}
"""The operations that attend to a cache, by the module that brings them."""
JOINING = frozenset(("_vllm_fa3_C::fwd", "flash_attn_3::fwd"))
"""The operations whose tiles have the queries of all heads that share keys."""
TILE = 128
_NAMES = {
    "q": ("q", "query"),
    "k": ("k", "key"),
    "ends_q": ("cu_seqlens_q", "cum_seq_q"),
    "ends_k": ("cu_seqlens_k", "cum_seq_k"),
    "causal": ("causal", "is_causal", "custom_mask_type"),
    "left": ("window_size_left",),
    "right": ("window_size_right",),
    "used_k": ("seqused_k",),
}
"""For each argument: its names in flash-attn and in PyTorch."""
_CACHED = {
    "q": ("q", "query"),
    "k": ("k", "kcache", "key"),
    "ends_q": ("cu_seqlens_q", "cum_seq_q"),
    "ends_k": ("cu_seqlens_k", "cum_seq_k"),
    "used_k": ("seqused_k", "seqlens_k"),
    "new": ("k_new", "cu_seqlens_k_new"),
    "causal": ("is_causal",),
    "left": ("window_size_left",),
    "right": ("window_size_right",),
}
"""Names of arguments of operations that attend to a cache, by what they are here."""
_ALL = 2**64 - 1
FROM_FIRST_KEY = 1
"""A `custom_mask_type`: the first query sees the first key. Others that are not 0: the last query sees the last key."""
_LIBRARIES: list[Any] = []
"""The registered functions: they stay registered as long as these objects live."""


def told(control: ControlTensors, operation: Any, call: Kernel) -> Kernel:
    """Returns the function to call in the place of `call`, which calls the CUDA kernel of one of these operations."""
    arguments = schema_of(operation).arguments
    given_to, hook = _reader(arguments, _NAMES), control.hook
    in_name = all(argument.name != "custom_mask_type" for argument in arguments)

    def attend(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        given = given_to(args, kwargs)
        used_k = given.pop("used_k", None)
        in_memory = used_k is not None or (given.get("ends_k") is not None and control.capturing())
        found = lengths(**given, used_k=used_k, joins=False) if in_name and in_memory else None
        if found is not None:
            return _during(hook.lengths, found, call, keyset, args, kwargs)
        return _during(hook.sequences, sequences(control, in_name, **given), call, keyset, args, kwargs)

    return attend


def _reader(
    arguments: Sequence[Any], names: Mapping[str, Sequence[str]]
) -> Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]]:
    """Returns a function that finds in a call's arguments those that an operation has, by what they are here."""
    places = {
        ours: (n, argument.name, argument.default_value)
        for ours, known in names.items()
        for n, argument in enumerate(arguments)
        if argument.name in known
    }

    def given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        return {
            ours: args[n] if n < len(args) else kwargs.get(name, default) for ours, (n, name, default) in places.items()
        }

    return given


def _during(
    tell: Callable[[Sequence[int] | None], None],
    found: Sequence[int] | None,
    call: Kernel,
    keyset: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Calls the kernel while the hook has been told what was found."""
    if found is None:
        return call(keyset, *args, **kwargs)
    tell(found)
    try:
        return call(keyset, *args, **kwargs)
    finally:
        tell(None)


def told_where(control: ControlTensors, operation: Any, call: Kernel) -> Kernel:
    """Returns the function to call in the place of `call`, which calls the CUDA kernels of an operation that attends to
    a cache.
    """
    schema = schema_of(operation)
    given_to, hook, joins = _reader(schema.arguments, _CACHED), control.hook, schema.name in JOINING

    def attend(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        return _whole(_during(hook.lengths, lengths(**given_to(args, kwargs), joins=joins), call, keyset, args, kwargs))

    return attend


def _whole(results: Any) -> Any:
    """Returns the results with an empty tensor for those that a kernel has left undefined: PyTorch takes no list from
    Python that has a None among its tensors, and FlashAttention 3 returns parts that only some calls have.
    """
    if not isinstance(results, list) or all(one is not None for one in results):
        return results
    return [_nothing() if one is None else one for one in results]


@lru_cache(maxsize=1)
def _nothing() -> Tensor:
    import torch

    return torch.empty(0, device="cpu")


def lengths(
    q: Tensor,
    k: Tensor,
    causal: int = False,
    left: int | None = None,
    right: int | None = None,
    ends_q: Tensor | None = None,
    ends_k: Tensor | None = None,
    used_k: Tensor | None = None,
    new: Tensor | None = None,
    joins: bool = True,
) -> tuple[int, ...] | None:
    """Returns the fields of the hook's `ph_lengths`; None if no tensor says how long the sequences are, or not that
    alone. `joins`: heads that share keys are computed together.
    """
    keys = ends_k if used_k is None else used_k
    if keys is None or new is not None or not all(map(_is_read, (keys, ends_q))):
        return None
    n = keys.numel() - (used_k is None)
    if ends_q is not None and ends_q.numel() != n + 1:
        return None
    heads, key_heads = q.size(-2), k.size(-2)
    if n < 1 or key_heads < 1 or heads % key_heads or (ends_q is None and (q.dim() != _PADDED or q.size(0) != n)):
        return None
    return (
        n,
        0 if ends_q is None else ends_q.data_ptr(),
        q.size(1) if ends_q is None else 0,
        keys.data_ptr(),
        int(used_k is None),
        _ALL if left is None or left < 0 else left,
        0 if causal else _ALL if right is None or right < 0 else right,
        heads // key_heads if joins else 1,
    )


_PADDED = 4  # dimensions of queries that are equally many in each sequence: sequences, queries, heads, depth


def _is_read(tensor: Tensor | None) -> bool:
    """Says whether the hook can read the tensor: 32-bit integers, one behind the other."""
    return tensor is None or (tensor.is_cuda and tensor.element_size() == 4 and tensor.is_contiguous())


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
    lengths: tuple[tuple[int, int], ...], before: int | None, after: int | None, times: int = 1, joined: int = 1
) -> tuple[int, ...]:
    """Returns the fields of a `sequences` signature, for sequences of so many queries and keys, each `times` times. A
    query sees so many keys before and after its own place, all if None. The last query's place is that of the last key.
    `joined`: so many heads share keys, and a row has pairs of a query and one of them.
    """
    tiles: Callable[[int], int] = lambda n: -(-n // TILE)  # noqa: E731
    visited = longest = pairs = 0
    for queries, keys in lengths:
        ahead = keys - queries
        for place in range(0, queries * joined, TILE):
            first, last = place // joined, min((place + TILE - 1) // joined, queries - 1)
            begin = 0 if before is None else max(first + ahead - before, 0)
            end = keys if after is None else min(max(last + ahead + after + 1, 0), keys)
            row = max(tiles(end) - begin // TILE, 0) if end > begin else 0
            visited, longest = visited + row, max(longest, row)
        pairs += _pairs(queries, keys, before, after)
    return (
        len(lengths) * times,
        sum(queries for queries, _ in lengths) * times,
        sum(keys for _, keys in lengths) * times,
        sum(tiles(queries * joined) for queries, _ in lengths) * times,
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

    def change(names: Iterable[str], make: Callable[[ControlTensors, Any, Kernel], Kernel], _: ModuleType) -> None:
        registered = registered_for("CUDA")
        _LIBRARIES.extend(register(control, name, make) for name in names if name in registered)

    when_imported("flash_attn.flash_attn_interface", partial(change, OF_FLASH_ATTN, told))
    for module, names in OF_ENGINES.items():
        when_imported(module, partial(change, names, told_where))
