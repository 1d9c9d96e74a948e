"""Plans of DCP's checkpoints that ranks without processes would have."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from emu.contract.folding import CannotBePlayed, Folding
from phantora_async.folding.request import mesh_of

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("sizes", "sharded", "rank", "chunk"),
    [
        ((8,), ((0, 0, False),), 3, ((2, 6), (6, 0))),  # 16 rows over eight ranks
        ((2, 4), ((1, 0, False),), 6, ((4, 6), (8, 0))),  # replicas of four shards
        ((4, 2), ((0, 0, False), (1, 1, False)), 5, ((4, 3), (8, 3))),  # rows by dp, columns by tp
        ((4, 2), ((1, 0, False), (0, 0, True)), 5, ((2, 6), (12, 0))),  # rows by tp first, then by dp
        ((8,), (), 3, ((16, 6), (0, 0))),
    ],
)
def test_where_a_rank_s_chunk_lies(sizes: Any, sharded: Any, rank: int, chunk: Any) -> None:
    from emu.folding.checkpoints import Layout

    assert Layout(tuple(range(8)), sizes, sharded).chunk((16, 6), rank) == chunk


def test_uneven_chunks() -> None:
    """Ten rows over four ranks: three each, and one."""
    from emu.folding.checkpoints import Layout

    layout = Layout((0, 1, 2, 3), (4,), ((0, 0, False),))
    assert [layout.chunk((10,), rank) for rank in range(4)] == [((3,), (0,)), ((3,), (3,)), ((3,), (6,)), ((1,), (9,))]


class Wrapper:
    """A stand-in for DCP's wrapper, on the rank that coordinates."""

    use_dist = True
    group = None


def saved(folding: Folding, item: Any, layout: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Returns the plans that rank 0 gathers if every rank that has a process gives a plan with its chunk of one tensor;
    then what it gathers if all say where they have written it.
    """
    from torch.distributed.checkpoint.filesystem import _StorageInfo
    from torch.distributed.checkpoint.planner import SavePlan
    from torch.distributed.checkpoint.storage import WriteResult

    from emu.folding.checkpoints import Checkpoints
    from emu.folding.ranks import FoldedRanks

    world = folding.mesh.world_size
    monkeypatch.setattr("torch.distributed.get_process_group_ranks", lambda group: list(range(world)))
    store: dict[str, bytes] = {}
    ranks = FoldedRanks(folding)
    ranks.store = SimpleNamespace(set=store.__setitem__, get=store.__getitem__)

    def gather(rank: int, what: Any) -> Any:
        ranks.rank = rank
        checkpoints = all_checkpoints[rank]
        checkpoints._layouts = {"weight": layout}

        def real(wrapper: Any, told: Any) -> Any:
            sources = [folding.representative(one) for one in range(world)]
            return [pickle.loads(pickle.dumps(what(one))) for one in sources] if rank == 0 else None

        return checkpoints._gathering(real)(Wrapper(), what(rank))

    all_checkpoints = {rank: Checkpoints(ranks) for rank in folding.live}

    def result(rank: int) -> Any:
        return [WriteResult(item(rank).index, 8, _StorageInfo(f"__{rank}_0.distcp", 0, 8))]

    found = []
    for what in (lambda rank: SavePlan([item(rank)]), result):
        for rank in sorted(folding.live, reverse=True):
            gathered = gather(rank, what)
        found.append(gathered)
    return found


def test_plans_and_results_of_ranks_without_processes_are_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from emu.folding.checkpoints import Layout

    layout = Layout(tuple(range(8)), (8,), ((0, 0, False),))
    folding = Folding(mesh_of("fsdp=8", 8), frozenset((0, 7)))
    plans, results = saved(folding, lambda rank: item_of(layout, rank), layout, monkeypatch)
    assert [tuple(plan.items[0].tensor_data.chunk.offsets) for plan in plans] == [(2 * rank, 0) for rank in range(8)]
    assert [tuple(plan.items[0].index.offset) for plan in plans] == [(2 * rank, 0) for rank in range(8)]
    assert [tuple(one.index.offset) for (one,) in results] == [(2 * rank, 0) for rank in range(8)]
    assert [one.storage_data.relative_path for (one,) in results] == [f"__{rank}_0.distcp" for rank in range(8)]


def item_of(layout: Any, rank: int) -> Any:
    from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
    from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

    sizes, offsets = map(torch.Size, layout.chunk((16, 6), rank))
    data = TensorWriteData(ChunkStorageMetadata(offsets, sizes), TensorProperties(), torch.Size((16, 6)))
    return WriteItem(MetadataIndex("weight", offsets), WriteItemType.SHARD, tensor_data=data)


def test_a_shard_of_which_the_place_is_not_known_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from emu.folding.checkpoints import Layout

    layout = Layout(tuple(range(8)), (8,), ((0, 0, False),))
    folding = Folding(mesh_of("fsdp=8", 8), frozenset((0, 7)))
    with pytest.raises(CannotBePlayed) as caught:
        saved(folding, lambda rank: item_of(layout, rank), None, monkeypatch)
    assert CannotBePlayed.told(caught.value.words)
    assert "weight is sharded, but is no DTensor" in caught.value.words


def test_checkpointing_processes_are_refused() -> None:
    """Those of mirrored ranks are not there, and the others would wait for them."""
    from emu.folding.checkpoints import _refusing

    with pytest.raises(CannotBePlayed) as raised:
        _refusing(None)({}, checkpoint_id="x")
    assert "AsyncCheckpointerType.THREAD works" in raised.value.words
