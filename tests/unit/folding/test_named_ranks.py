"""Ranks that a script names do what no other rank does."""

from __future__ import annotations

import pytest

from phantora_async.folding import named_ranks, tells_ranks_apart


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


@pytest.mark.parametrize(
    ("text", "apart"),
    [
        ("if rank % 2: x()", True),
        ("stage = int(os.environ['RANK']) // 4", True),
        ("r = dist.get_rank()\nif r < 4: x()", True),
        ("size = [512, 1024][rank]", True),
        ("if int(os.environ['LOCAL_RANK']) >= 4: x()", True),
        ("torch.cuda.set_device(rank % torch.cuda.device_count())", False),
        ("torch.manual_seed(7 + rank)\nif rank == 0: print(x % 100)", False),
        ("data = data[start:]\nloader = Sampler(data, rank=rank)", False),
        ("if rank ==", False),  # no Python
    ],
)
def test_texts_that_tell_ranks_apart(text: str, apart: bool) -> None:
    assert tells_ranks_apart(text) is apart
