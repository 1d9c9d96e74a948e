"""Scripts that compute with the rank may give every rank another task."""

from __future__ import annotations

import pytest

from phantora_async.folding import tells_ranks_apart


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
