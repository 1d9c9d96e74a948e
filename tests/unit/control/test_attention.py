"""Which pairs attention computes over packed sequences and in a window: counted one by one."""

from __future__ import annotations

import pytest

from emu.control.extensions.attention import TILE, together


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
