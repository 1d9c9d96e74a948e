"""Who is in a communicator, from the keys under which NCCL's ids travel."""

from __future__ import annotations

import gc
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from emu.contract.folding import Axis, Folding, Mesh

pytest.importorskip("torch")
ID = b"an id".ljust(128, b"\0")
EVERYBODY, EVEN = tuple(range(8)), (0, 2, 4, 6)


class Told:
    """A stand-in for the hook library, as far as groups tell it of members."""

    def __init__(self) -> None:
        self.ids: list[tuple[bytes, tuple[int, ...]]] = []

    def comm_members(self, unique_id: bytes, members: tuple[int, ...]) -> None:
        self.ids.append((bytes(unique_id), members))

    def split_members(self, members: tuple[int, ...], *, each_its_own: bool) -> None:
        pass


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def store_of(told: Told) -> Callable[[str, tuple[int, ...], Any], Any]:
    """Returns a function that makes a group's store, from its name, its members and the store beneath, as PyTorch makes
    and keeps it.
    """
    from torch.distributed import PrefixStore

    from emu.folding.groups import _noting_members
    from emu.folding.ranks import FoldedRanks

    ranks = FoldedRanks(Folding(Mesh((Axis("dp", 4, True), Axis("tp", 2, False)))))

    def make(name: str, members: tuple[int, ...], beneath: Any) -> Any:
        def real(size: int, place: int, members: Any, backend: Any, store: Any, name: str) -> Any:
            return PrefixStore(f"{name}/", store)

        helper = _noting_members(ranks, told, real)  # type: ignore[arg-type]
        return helper(len(members), 0, list(members), "nccl", beneath, name)

    return make


@pytest.mark.parametrize("key", ["0", "0/nccl_storekey_0"])
def test_a_group_above_the_default_one_has_its_own_members(
    store_of: Callable[[str, tuple[int, ...], Any], Any], told: Told, key: str
) -> None:
    """PyTorch 2.11 lays a group's store over the default group's, which sees its keys as well."""
    from torch.distributed import HashStore, PrefixStore

    everybody = store_of("0", EVERYBODY, HashStore())
    even = store_of("17", EVEN, everybody)
    gc.collect()
    PrefixStore("cuda/", even).set(key, ID)
    assert told.ids == [(ID, EVEN)]
    assert len(PrefixStore("cuda/", even).get(key)) == len(ID)
    assert {members for _, members in told.ids} == {EVEN}
    PrefixStore("cuda/", everybody).set(key, ID)
    assert told.ids[-1] == (ID, EVERYBODY)


def test_two_members_that_send_each_other_messages_are_told_with_their_group(
    store_of: Callable[[str, tuple[int, ...], Any], Any], told: Told
) -> None:
    """PyTorch 2.11 makes a communicator for each pair of ranks whose messages are not in one call."""
    from torch.distributed import HashStore, PrefixStore

    even = PrefixStore("cuda/", store_of("17", EVEN, HashStore()))
    even.set("1:3", ID)
    assert told.ids == [(ID, (2, 6, *EVEN))]
    both = PrefixStore("cuda/", store_of("18", (2, 6), HashStore()))
    both.set("0:1", ID)
    assert told.ids[1:] == [(ID, (2, 6))]


def test_nobody_waits_for_another_member_s_id(store_of: Callable[[str, tuple[int, ...], Any], Any], told: Told) -> None:
    """The first member may get on only when virtual time does, which does not know of a rank that waits in a store."""
    from torch.distributed import DistStoreError, HashStore, PrefixStore

    beneath = HashStore()
    beneath.set_timeout(timedelta(milliseconds=1))
    even = PrefixStore("cuda/", store_of("17", EVEN, beneath))
    even.wait(["0"])
    first, second = even.get("0"), even.get("1")
    assert told.ids == [(first, EVEN), (second, EVEN)]
    assert first != second
    for key in ("what the program waits for", "exchanges/0/1"):
        with pytest.raises(DistStoreError):
            even.wait([key])


def test_a_key_of_the_program_s_own_is_no_id(store_of: Callable[[str, tuple[int, ...], Any], Any], told: Told) -> None:
    from torch.distributed import DistStoreError, HashStore, PrefixStore

    beneath = HashStore()
    beneath.set_timeout(timedelta(milliseconds=1))
    group = store_of("17", EVEN, beneath)
    for store in (group, PrefixStore("app", group)):
        store.set("7", "hello")
        assert store.get("7") == b"hello"
        with pytest.raises(DistStoreError):
            store.wait(["8"])
    assert told.ids == []
