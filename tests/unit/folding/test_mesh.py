"""Meshes of ranks: roles, representatives, images of communicators."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from emu.contract.folding import NeedsParts
from phantora_async.errors import UsageError
from phantora_async.folding import Axis, CannotFold, Folding, Mesh, mesh_of
from phantora_async.virtual_time import Timelines


def folding(text: str, world_size: int, apart: frozenset[int] = frozenset()) -> Folding:
    return Folding(mesh_of(text, world_size), apart)


def test_data_parallel_axes_are_folded_unless_others_are_marked() -> None:
    assert mesh_of("dp=2,pp=3, tp=4", 24).axes == (Axis("dp", 2, True), Axis("pp", 3, False), Axis("tp", 4, False))
    assert mesh_of("dp=2,ring*=3", 6).axes == (Axis("dp", 2, False), Axis("ring", 3, True))


@pytest.mark.parametrize(
    "text",
    ["", "dp", "dp=0", "dp=2,dp=4", "dp=4", "pp=2,tp=4", "dp=x8", "8", "dp=4+", "dp=0+8", "dp=4+3", "dp=2,tp=2+2"],
)
def test_wrong_meshes_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        mesh_of(text, 8)


def test_the_last_axis_is_the_fastest() -> None:
    mesh = mesh_of("dp=2,pp=3,tp=4", 24)
    assert [mesh.coordinate(23 - 4, at) for at in range(3)] == [1, 1, 3]
    assert mesh.role(19) == 7
    assert mesh.role_name(19) == "pp 1, tp 3"


def test_ranks_that_are_apart_represent_nobody() -> None:
    folded = folding("dp=4,tp=2", 8, frozenset((0, 7)))
    assert folded.live == (0, 1, 2, 7)
    assert folded.mirrored == {0: (), 1: (3, 5), 2: (4, 6), 7: ()}
    assert [folded.representative(rank) for rank in range(8)] == [0, 1, 2, 1, 2, 1, 2, 7]


def test_images() -> None:
    folded = folding("pp=2,dp=3,tp=2", 12)
    assert folded.image((0, 2, 4), 0, 4) == (0, 2, 4)  # along dp
    assert folded.image((0, 1), 0, 4) == (4, 5)  # along tp
    assert folded.image((0, 6), 0, 2) == (2, 8)  # along pp
    assert folded.image((6, 0), 0, 2) == (8, 2)  # the order stays
    assert folded.image(tuple(range(12)), 0, 2) == tuple(range(12))


@pytest.mark.parametrize(
    ("members", "rank", "to", "image"),
    [
        ((0, 2), 0, 2, (2, 4)),
        ((0, 2), 2, 4, (2, 4)),
        ((0, 2), 0, 6, (0, 6)),  # around the end, in the order of the group
        ((0, 6), 0, 2, (0, 2)),
        ((2, 4), 2, 2, (2, 4)),
    ],
)
def test_two_members_of_a_group_have_an_image_for_their_messages(
    members: tuple[int, ...], rank: int, to: int, image: tuple[int, ...]
) -> None:
    assert folding("dp=4,tp=2", 8).image(members, rank, to, (0, 2, 4, 6)) == image


def test_members_for_messages_keep_the_order_of_their_group() -> None:
    assert folding("dp=4,tp=2", 8).image((2, 0), 0, 6, (6, 4, 2, 0)) == (6, 0)


def test_two_members_along_another_axis_move_with_their_group() -> None:
    assert folding("pp=3,dp=4", 12).image((0, 4), 0, 2, (0, 4, 8)) == (2, 6)


def test_a_part_of_a_folded_axis_has_no_image() -> None:
    with pytest.raises(CannotFold, match="2 of the 4 coordinates of the folded axis dp"):
        folding("dp=4,tp=2", 8).image((0, 2), 0, 4)


def test_members_that_are_no_grid_have_no_image() -> None:
    with pytest.raises(CannotFold, match="no grid"):
        folding("dp=2,fsdp=2,tp=2", 8).image((0, 6), 0, 2)


def test_peers_move_with_their_rank_and_folded_axes_are_rings() -> None:
    mesh = mesh_of("dp=4,pp=2", 8)
    assert mesh.moved(1, 0, 6) == 7  # the next stage of the same replica
    assert mesh.moved(2, 0, 6) == 0  # the same stage of the next replica


def test_images_of_one_communicator_are_the_same_for_all_its_members() -> None:
    """Mirrored ranks must agree on a communicator's members, or it would never be complete."""
    drawn = random.Random(7)
    for _ in range(50):
        axes = tuple(Axis(f"a{at}", drawn.randint(1, 4), drawn.random() < 0.5) for at in range(drawn.randint(1, 4)))
        axes = tuple(replace(axis, parts=(1, axis.size - 1) if axis.folded and axis.size > 2 else ()) for axis in axes)
        mesh = Mesh(axes)
        world = range(mesh.world_size)
        apart = frozenset(rank for rank in world if drawn.random() < 0.2)
        folded = Folding(mesh, apart)
        along = [at for at in range(len(axes)) if drawn.random() < 0.5]

        def group(rank: int, mesh: Mesh = mesh, along: list[int] = along) -> tuple[int, ...]:
            """Returns the ranks that share all coordinates but those `along`."""
            spread = (
                range(mesh.axes[at].size) if at in along else [mesh.coordinate(rank, at)]
                for at in range(len(mesh.axes))
            )
            return tuple(
                sum(here * stride for here, stride in zip(point, mesh.strides, strict=True))
                for point in itertools.product(*spread)
            )

        for rank in world:
            representative = folded.representative(rank)
            assert mesh.role(representative) == mesh.role(rank)
            assert folded.image(group(representative), representative, rank) == group(rank)


def test_each_part_of_an_axis_has_its_representative() -> None:
    folded = folding("dp=2+1+3,tp=2", 12)
    assert folded.mirrored == {0: (2,), 1: (3,), 4: (), 5: (), 6: (8, 10), 7: (9, 11)}
    assert [folded.mesh.role_name(rank) for rank in (2, 5, 10)] == ["dp 0-1, tp 0", "dp 2, tp 1", "dp 3-5, tp 0"]
    assert str(folded.mesh) == "dp*=2+1+3,tp=2"
    assert mesh_of(str(folded.mesh), 12) == folded.mesh


def test_ranks_of_a_part_share_a_timeline() -> None:
    timelines = Timelines(7, folding("dp=4+3", 7, frozenset((0,))), (7,))
    assert list(timelines.of_each) == [0, 1, 1, 1, 4, 4, 4]


def test_parts_begin_where_members_of_a_communicator_differ() -> None:
    mesh = mesh_of("replicate=2,dp=4,tp=2", 16)
    assert mesh.boundaries((0, 2, 4, 6), "aabc") == {1: {2, 3}}
    assert mesh.boundaries((8, 10, 12, 14), "aaaa") == {}
    assert mesh.boundaries((0, 1), "ab") == {}, "tp is not folded"
    assert mesh.boundaries(tuple(range(0, 16, 2)), "aabbaabb") == {1: {2}}
    finer = mesh.with_parts({1: {2, 3}})
    assert str(finer) == "replicate*=2,dp*=2+1+1,tp=2"
    assert str(finer.with_parts({0: {1}, 1: {2}})) == "replicate*=1+1,dp*=2+1+1,tp=2"


def test_the_mesh_that_is_needed_travels_in_a_rank_s_last_words() -> None:
    error = NeedsParts("FSDP2 shards 10 rows over 4 ranks", mesh_of("dp=3+1", 4))
    assert error.code == 80
    assert NeedsParts.told(error.words) == ("FSDP2 shards 10 rows over 4 ranks", "dp*=3+1")
    assert NeedsParts.told("SystemExit: see --fold dp=4") == ("", "")


def test_a_folding_travels_as_json() -> None:
    folded = folding("dp=3+1,tp=2", 8, frozenset((0, 7)))
    assert Folding.from_json(folded.to_json()) == folded


def test_turns_are_parts_that_repeat() -> None:
    folded = folding("dp=12:1+3", 12)
    assert str(folded.mesh) == "dp*=12:1+3"
    assert folded.mirrored == {0: (4, 8), 1: (2, 3, 5, 6, 7, 9, 10, 11)}
    assert folded.mesh.role_name(6) == "dp 1-3, 5-7, 9-11"
    assert folded.mesh.roles == 2
    assert Folding.from_json(folded.to_json()) == folded
    both = folding("dp=4+8:1+3,tp=2", 24)
    assert [both.mesh.role(rank) for rank in (2, 10, 16, 18)] == [2, 10, 8, 10]
    assert str(both.mesh.with_parts({0: {10}})) == "dp*=4+6+2:1+3,tp=2"
    with pytest.raises(UsageError, match="repeat after more ranks than it has"):
        mesh_of("dp=4:3+2", 4)


def test_ranks_of_different_kinds_get_different_roles() -> None:
    """Turns where the kinds repeat, parts where they do not; nothing along axes that are not folded."""
    mesh = mesh_of("dp=8,tp=2", 16)
    assert str(mesh.told_apart([rank % 4 == 2 for rank in range(16)])) == "dp*=8:1+1,tp=2"
    assert str(mesh.told_apart([rank % 2 for rank in range(16)])) == "dp*=8,tp=2"
    assert str(mesh.told_apart([rank == 5 for rank in range(16)])) == "dp*=2+1+5,tp=2"
    once = mesh.told_apart([rank % 4 == 2 for rank in range(16)])
    assert once.told_apart([rank % 8 == 2 for rank in range(16)]) == mesh_of("dp=8:1+1+1+1,tp=2", 16)
    assert once.told_apart([rank % 4 == 2 for rank in range(16)]) == once
    for seed in range(200):
        drawn = random.Random(seed)
        kinds = [drawn.randint(0, 1) for _ in range(drawn.choice((1, 2, 3, 4, 16)))]
        kinds = [kinds[rank % len(kinds)] for rank in range(16)]
        finer = mesh.told_apart(kinds)
        assert mesh_of(str(finer), 16) == finer
        by_role: dict[int, set[int]] = {}
        for rank in range(16):
            by_role.setdefault(finer.role(rank), set()).add(kinds[rank])
        assert all(len(one) == 1 for one in by_role.values())


@pytest.mark.parametrize(
    ("mesh", "size", "peer", "finer"),
    [
        ("dp=2,cp*=4,tp=2", 16, 2, "dp=2,cp*=4:1+1,tp=2"),
        ("dp=2,cp*=4,tp=2", 16, 6, "dp=2,cp*=4:1+1,tp=2"),
        ("cp*=8", 8, 2, "cp*=8:2+2"),
        ("cp*=2,tp=2", 4, 2, "cp*=1+1,tp=2"),
        ("cp*=3", 3, 1, "cp*=1+1+1"),
        ("cp*=5:1+1", 5, 4, "cp*=1+1+1+1+1:1+1"),
    ],
)
def test_neighbours_of_a_ring_are_told_apart(mesh: str, size: int, peer: int, finer: str) -> None:
    """The neighbours of rank 0; in a ring of an odd number of ranks all are told apart, where two neighbours would be
    alike.
    """
    assert str(mesh_of(mesh, size).with_neighbours_apart(0, peer)) == finer
