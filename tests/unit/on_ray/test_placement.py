"""Which servers go to which nodes."""

from __future__ import annotations

import pytest

from phantora_async.on_ray.placement import MACHINE_NBYTES, RANK_NBYTES, MachinePlace, Node, NoRoom, places_of

MUCH = 1 << 40


def node(processors: int, ranks: int | None = None) -> Node:
    """Returns a node with memory for so many ranks; None: for any number."""
    return Node("n", processors, MUCH if ranks is None else MACHINE_NBYTES + ranks * RANK_NBYTES)


def servers_on(places: list[MachinePlace]) -> list[tuple[int, ...]]:
    return [place.servers for place in places]


def test_servers_are_divided_as_the_free_processors_are() -> None:
    places = places_of([8] * 8, [node(2), node(4), node(2)], None)
    assert servers_on(places) == [(0, 1, 2, 3), (4, 5), (6, 7)]
    assert [place.processors for place in places] == [4, 2, 2]
    assert places[0].nbytes == MACHINE_NBYTES + 32 * RANK_NBYTES


def test_no_node_gets_more_ranks_than_its_memory_holds() -> None:
    assert servers_on(places_of([2] * 4, [node(64, ranks=3), node(1)], None)) == [(0,), (1, 2, 3)]


def test_a_machine_asks_for_no_more_processors_than_it_has_ranks() -> None:
    assert places_of([2], [node(16)], None) == [MachinePlace((0,), 2, MACHINE_NBYTES + 2 * RANK_NBYTES)]


def test_the_freest_nodes_are_taken() -> None:
    assert [place.processors for place in places_of([8] * 4, [node(1), node(4), node(0), node(6)], 2)] == [6, 4]


@pytest.mark.parametrize(
    ("nodes", "machines", "said"),
    [
        ([], None, "1 machine needed, but 0 of the cluster's 0 nodes have a free processor and 1.8 GiB of free memory"),
        ([node(0), node(4, ranks=7)], None, "but 0 of the cluster's 2 nodes"),
        ([node(1), node(1)], 3, "3 machines needed, but 2 of the cluster's 2 nodes"),
        (
            [node(1, ranks=15), node(1, ranks=16)],
            None,
            "32 ranks need 4.0 GiB of memory, and 2 nodes have 4.9 GiB free",
        ),
    ],
)
def test_no_room(nodes: list[Node], machines: int | None, said: str) -> None:
    with pytest.raises(NoRoom) as raised:
        places_of([8] * 4, nodes, machines)
    assert said in str(raised.value)
