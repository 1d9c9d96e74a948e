"""Ranks that a script names do what no other rank does."""

from __future__ import annotations

import pytest

from phantora_async.folding import named_ranks


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("if rank == 37: x()", {37}),
        ("if 37 != rank: x()", {37}),
        ("if dist.get_rank() == 700 and step > 5: x()", {700}),
        ("if self.rank in (3, 5): x()", {3, 5}),
        ("if int(os.environ['RANK']) == 12: x()", {12}),
        ("if os.environ.get('RANK', '0') == '12': x()", {12}),
        ("y = a if RANK == 1 else b", {1}),
        ("if rank == 2000: x()", set()),  # the run has 1,024
        ("if rank > 5: x()", set()),  # no single rank
        ("if local_rank == 3 or tp_rank == 2 or world_size == 8: x()", set()),
        ("if rank == size - 1: x()", set()),
        ("if rank in (1, 2, 3, 4, 5, 6, 7, 8, 9): x()", set()),  # too many
        ("if rank ==", set()),  # no Python
    ],
)
def test_names(text: str, ranks: set[int]) -> None:
    assert named_ranks(text, 1024) == ranks
