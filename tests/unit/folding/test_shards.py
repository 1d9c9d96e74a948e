"""Shards of FSDP2 of which some are smaller: the mesh gets parts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from emu.contract.folding import NeedsParts
from phantora_async.folding import Folding, mesh_of

torch = pytest.importorskip("torch")


def shards(mesh: str, world_size: int) -> Any:
    from emu.folding.ranks import FoldedRanks
    from emu.folding.shards import Shards

    return Shards(FoldedRanks(Folding(mesh_of(mesh, world_size))))


def needed(found: Any) -> str:
    """Returns the mesh that the first step asks for; "" if it goes on."""
    try:
        assert found._checking(lambda state: state)("state") == "state"
    except NeedsParts as error:
        return NeedsParts.told(error.words)[1]
    return ""


@pytest.mark.parametrize(
    ("rows", "shards_", "mesh"),
    [
        (16, 8, ""),
        (8, 8, ""),
        (4, 8, "dp*=4+4"),  # half of the ranks have none
        (10, 8, "dp*=5+3"),  # five have two
        (9, 8, "dp*=4+1+3"),  # four have two, one has one
        (1, 8, "dp*=1+7"),
    ],
)
def test_ranks_with_equal_shards_are_a_part(rows: int, shards_: int, mesh: str) -> None:
    """The shards are as `torch.chunk` makes them."""
    found = shards(f"dp={shards_}", shards_)
    chunks = torch.chunk(torch.empty(rows, 3), shards_)
    found.made((rows, 3), tuple(chunks[0].shape), tuple(range(shards_)))
    assert needed(found) == mesh


def test_all_parameters_and_groups_count() -> None:
    found = shards("dp_replicate=2,dp_shard=4,tp=2", 16)
    found.made((7,), (2,), (0, 2, 4, 6))
    found.made((5, 2), (2, 2), (9, 11, 13, 15))
    assert needed(found) == "dp_replicate*=2,dp_shard*=2+1+1,tp=2"
    found = shards("dp_replicate=2,dp_shard=2+1+1,tp=2", 16)
    found.made((7,), (2,), (0, 2, 4, 6))
    assert needed(found) == "", "the mesh has these parts"


def test_a_shard_of_another_dimension_is_even() -> None:
    """PyTorch refuses others."""
    found = shards("dp=4", 4)
    found.made((3, 8), (3, 2), (0, 1, 2, 3))
    found.made((), (), (0, 1, 2, 3))
    assert needed(found) == ""


def test_what_is_not_sharded_needs_no_parts() -> None:
    found = shards("dp=4", 4)
    found.note(SimpleNamespace(mesh_info=SimpleNamespace(), _orig_size=(3,), padded_sharded_param_size=(3,)))
    assert needed(found) == ""


def test_modules_that_get_memory_only_now_ask_before_their_ranks_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.nn.Module, "to_empty", torch.nn.Module.to_empty)
    found = shards("dp=4", 4)
    found.change_modules()
    module = torch.nn.Linear(3, 5, device="meta")
    assert module.to_empty(device="cpu").weight.device.type == "cpu"
    found.made((5, 3), (2, 3), (0, 1, 2, 3))
    with pytest.raises(NeedsParts, match="80") as caught:
        module.to_empty(device="cpu")
    assert NeedsParts.told(caught.value.words)[1] == "dp*=2+1+1"
