"""Which pairs attention computes over packed sequences and in a window: counted one by one."""

from __future__ import annotations

from typing import Any

import pytest

from emu.control.extensions.attention import TILE, _whole, together
from emu.control.extensions.attention import lengths as where


def counted(lengths: list[tuple[int, int]], before: int | None, after: int | None) -> tuple[int, int, int]:
    """Tiles, the most of one row, pairs."""
    tiles, longest, pairs = 0, 0, 0
    for queries, keys in lengths:
        rows: dict[int, set[int]] = {}
        for query in range(queries):
            place = query + keys - queries
            for key in range(keys):
                if (before is None or key >= place - before) and (after is None or key <= place + after):
                    pairs += 1
                    rows.setdefault(query // TILE, set()).add(key // TILE)
        tiles += sum(map(len, rows.values()))
        longest = max([longest, *map(len, rows.values())])
    return tiles, longest, pairs


@pytest.mark.parametrize("before", [None, 0, 5, 130, 300])
@pytest.mark.parametrize("after", [None, 0, 7, 140])
@pytest.mark.parametrize(
    "lengths", [[(300, 300)], [(130, 257), (1, 300), (5, 5)], [(257, 130)], [(128, 256), (0, 0), (400, 1)]]
)
def test_pairs(lengths: list[tuple[int, int]], before: int | None, after: int | None) -> None:
    sequences, queries, keys, rows, columns, tiles, longest, pairs = together(tuple(lengths), before, after)
    assert (tiles, longest, pairs) == counted(lengths, before, after)
    assert (sequences, queries, keys) == (len(lengths), sum(q for q, _ in lengths), sum(k for _, k in lengths))
    assert rows == sum((q + 127) // 128 for q, _ in lengths)
    assert columns == sum((k + 127) // 128 for _, k in lengths)


def test_equal_sequences_are_counted_at_once() -> None:
    assert together(((300, 300),), 5, 0, 3) == together(((300, 300),) * 3, 5, 0)


def test_results_that_a_kernel_left_undefined_are_empty() -> None:
    torch = pytest.importorskip("torch")
    out = torch.ones(2)
    whole = _whole([out, None])
    assert whole[0] is out
    assert (whole[1].numel(), whole[1].device.type) == (0, "cpu")
    assert _whole((out, None)) == (out, None)


class Lengths:
    """As much of a CUDA tensor of 32-bit integers as is asked for."""

    is_cuda = True

    def __init__(self, address: int, numel: int, item: int = 4, contiguous: bool = True) -> None:
        self._address, self._numel, self._item, self._contiguous = address, numel, item, contiguous

    def data_ptr(self) -> int:
        return self._address

    def numel(self) -> int:
        return self._numel

    def element_size(self) -> int:
        return self._item

    def is_contiguous(self) -> bool:
        return self._contiguous


class Shaped:
    def __init__(self, *sizes: int) -> None:
        self._sizes = sizes

    def size(self, dim: int) -> int:
        return self._sizes[dim]

    def dim(self) -> int:
        return len(self._sizes)


ALL = 2**64 - 1
Q, PAGES = Shaped(20, 32, 128), Shaped(4096, 16, 8, 128)


def told_of(**given: Any) -> tuple[int, ...] | None:
    usual: dict[str, Any] = {"q": Q, "k": PAGES, "causal": True, "ends_q": Lengths(64, 5), "used_k": Lengths(96, 4)}
    return where(**usual | given)


def test_where_the_lengths_of_a_cache_lie() -> None:
    assert told_of() == (4, 64, 0, 96, 0, ALL, 0, 4)
    assert told_of(joins=False) == (4, 64, 0, 96, 0, ALL, 0, 1)
    assert told_of(causal=False, left=127, right=3) == (4, 64, 0, 96, 0, 127, 3, 4)
    # Without `seqused_k` the ends of the keys say it; without ends of queries each sequence has as many.
    assert told_of(used_k=None, ends_k=Lengths(32, 5)) == (4, 64, 0, 32, 1, ALL, 0, 4)
    assert told_of(q=Shaped(4, 5, 32, 128), ends_q=None) == (4, 0, 5, 96, 0, ALL, 0, 4)


@pytest.mark.parametrize(
    "given",
    [
        {"used_k": None},
        {"new": Shaped(4, 1, 8, 128)},
        {"used_k": Lengths(96, 4, item=8)},
        {"used_k": Lengths(96, 4, contiguous=False)},
        {"ends_q": Lengths(64, 4)},
        {"ends_q": None},
        {"k": Shaped(4096, 16, 7, 128)},
    ],
)
def test_nothing_is_told_of_a_call_that_is_not_understood(given: dict[str, Any]) -> None:
    assert told_of(**given) is None
