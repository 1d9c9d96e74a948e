"""Facts that a script's text tells of its ranks become parts of the mesh, processes, witnesses or a warning."""

from __future__ import annotations

import pytest

from phantora_async.errors import UsageError
from phantora_async.folding.dividing import Divided, divided
from phantora_async.folding.request import mesh_of
from phantora_async.folding.script_text import source_of
from phantora_async.folding.script_values import Ranks
from phantora_async.folding.told_apart import told_apart


def division(text: str, mesh: str, world_size: int, gpus: int = 8, **given: bool) -> Divided:
    source = source_of(text)
    assert source is not None
    ranks = Ranks((gpus,) * (world_size // gpus), mesh_of(mesh, world_size))
    assert ranks.mesh is not None
    told = told_apart([source], (), ranks)
    given = {"may_be_apart": True, "is_checked": True} | given
    return divided(ranks.mesh, told, ranks, (0, world_size - 1), **given)


def test_one_gpu_of_each_server_is_a_turn_of_the_axis() -> None:
    found = division("if local_rank == 3: x()", "dp=1024", 1024)
    assert (str(found.mesh), found.apart, found.witnesses) == ("dp*=1024:3+1+4", frozenset(), frozenset())
    assert found.remarks == ("--fold: dp*=1024:3+1+4, because ranks of one role differ in the script (train.py:1)",)


def test_axes_that_are_not_folded_tell_ranks_apart_themselves() -> None:
    assert str(division("if local_rank == 3: x()", "dp=128,tp=8", 1024).mesh) == "dp*=128,tp=8"
    assert str(division("if local_rank == 3: x()", "dp=256,tp=4", 1024).mesh) == "dp*=256:1+1,tp=4"
    assert str(division("if local_rank == 3: x()", "pp=2,dp=16", 32, 4).mesh) == "pp=2,dp*=16:3+1"


def test_single_ranks_get_a_process() -> None:
    text = "if rank == 700: x()\nif rank == 0: y()\nif rank == world_size - 1: z()"
    found = division(text, "dp=1024", 1024)
    assert (str(found.mesh), found.apart) == ("dp*=1024", {700})
    assert found.remarks == ("--fold: rank 700 has a process, because the script gives it another task (train.py:1)",)


def test_a_single_rank_that_is_played_by_the_users_will_is_a_warning() -> None:
    """The option is `--fold-apart none`. Rank 0 has a process, which plays the others: a witness shows what differs
    there.
    """
    text = "if local_rank == 3: x()\nif rank == 0: y()\nif rank == 5: z()\nif local_rank == 3: x()"
    source = source_of(text)
    assert source is not None
    mesh = mesh_of("dp=8", 8)
    ranks = Ranks((8,), mesh)
    found = divided(mesh, told_apart([source], (), ranks), ranks, (), may_be_apart=False, is_checked=True)
    assert (found.mesh, found.apart, found.witnesses) == (mesh, frozenset(), frozenset())
    assert found.remarks == tuple(
        f"--fold: warning: the script gives rank {rank} another task (train.py:{line}), but it is played as the others "
        f"of its role are, because --fold-apart does not name it: --fold-apart {rank}"
        for rank, line in ((3, 1), (5, 3))
    )


def test_few_ranks_are_parts_where_none_may_have_a_process_of_its_own() -> None:
    """Rank 3 of each of two servers: one turn of the axis for each server, in which rank 3 is a role of its own."""
    text = "if local_rank == 3: x()"
    assert division(text, "dp=16", 16).apart == {3, 11}
    found = division(text, "dp=16", 16, may_be_apart=False)
    assert (str(found.mesh), found.apart) == ("dp*=16:3+1+4", frozenset())
    assert found.remarks == ("--fold: dp*=16:3+1+4, because ranks of one role differ in the script (train.py:1)",)


def test_a_range_of_ranks_is_a_part() -> None:
    assert str(division("if rank < 256: x()", "dp=1024", 1024).mesh) == "dp*=256+768"
    assert str(division("if node_rank == 1: x()", "dp=1024", 1024).mesh) == "dp*=8+8+1008"
    both = division("if node_rank == 1: x()\nif local_rank == 0: y()", "dp=1024", 1024)
    assert str(both.mesh) == "dp*=8+8+1008:1+7"


def test_all_gpus_of_a_server_are_told_apart_if_the_text_does_not_tell_which_differ() -> None:
    text = "if local_rank == config.chosen: x()"
    found = division(text, "dp=1024", 1024)
    assert str(found.mesh) == "dp*=1024:1+1+1+1+1+1+1+1"
    assert "the script may tell such ranks apart; its text does not tell which (train.py:1)" in found.remarks[0]
    unchecked = division(text, "dp=1024", 1024, is_checked=False)
    assert str(unchecked.mesh) == "dp*=1024"
    assert "warning: what ranks do at train.py:1 depends on their place" in unchecked.remarks[0]


def test_of_many_servers_some_are_witnesses() -> None:
    """128 parts would be as many processes. The first server has rank 0."""
    found = division("if node_rank in busy: x()", "dp=1024", 1024)
    assert str(found.mesh) == "dp*=1024"
    assert len(found.witnesses) == 8
    assert {8, 1016} < found.witnesses
    assert all(rank % 8 == 0 for rank in found.witnesses)
    assert "warning: what ranks do at train.py:1 depends" in found.remarks[0]
    assert str(division("if node_rank in busy: x()", "dp=32", 32).mesh) == "dp*=8+8+8+8"


def test_a_place_in_a_group_is_a_warning() -> None:
    found = division("if dist.get_rank(group) == 0: x()", "dp=32", 32)
    assert str(found.mesh) == "dp*=32"
    assert "warning" in found.remarks[0]


def test_coordinates_that_the_text_does_not_tell_are_never_guessed() -> None:
    """Few ranks are all told apart. For many, the run is refused, unless the user has said which ranks differ."""
    text = "mesh = make()\nif mesh.get_coordinate()[1] == 2: x()"
    assert str(division(text, "dp=4,tp=2", 8).mesh) == "dp*=1+1+1+1,tp=2"
    with pytest.raises(UsageError, match=r"train\.py:2 depends on get_coordinate\(\) of a mesh .* 1,024 ranks are too"):
        division(text, "dp=512,tp=2", 1024)
    found = division(text, "dp=512,tp=2", 1024, may_be_apart=False)
    assert found.witnesses
    assert "warning: what ranks do at train.py:2 depends on their place" in found.remarks[-1]
    told = division(
        "mesh = init_device_mesh('cuda', (512, 2))\nif mesh.get_coordinate()[0] % 2: x()", "dp=512,tp=2", 1024
    )
    assert not any("warning" in one for one in told.remarks)
