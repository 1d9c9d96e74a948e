"""Groups of different ranks under one name, with a torch.distributed of our own."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from emu.interpreter.group_names import GroupNames

NONE = object()


class Store:
    """A stand-in for the store of all ranks."""

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        if self.entries.setdefault(key, desired if expected == "" else "") == expected:
            self.entries[key] = desired
        return self.entries[key].encode()


class World:
    def __init__(self, store: Store, bound: object = None) -> None:
        self.bound_device_id = bound
        self._store = store

    def get_group_store(self) -> Store:
        return self._store


class Rank:
    """A rank that makes groups and notes what it is warned of."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, world: Any, line: str) -> None:
        self.world = world
        self.warned: list[str] = []
        self._patch = monkeypatch
        self._line = line
        self._names = GroupNames(self)

    def line(self) -> str:
        return self._line

    def warn_once(self, name: str, text: str) -> None:
        self.warned.append(text)

    def makes(self, name: str, ranks: list[int] | None) -> None:
        distributed = SimpleNamespace(
            group=SimpleNamespace(WORLD=self.world),
            GroupMember=SimpleNamespace(NON_GROUP_MEMBER=NONE),
            get_process_group_ranks=lambda group: group.ranks,
        )
        self._patch.setitem(sys.modules, "torch", SimpleNamespace(distributed=distributed))
        self._patch.setitem(sys.modules, "torch.distributed", distributed)
        self._names.made(NONE if ranks is None else SimpleNamespace(group_name=name, ranks=ranks))


def test_ranks_that_make_different_groups_as_their_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(Store())
    one, other = Rank(monkeypatch, world, "train.py:7"), Rank(monkeypatch, world, "train.py:9")
    one.makes("1", [2, 3])
    other.makes("1", [0, 1])
    assert one.warned == []
    (text,) = other.warned
    assert text.startswith(
        "this may hang: ranks 0,1 at train.py:9 and ranks 2,3 at train.py:7 make different groups under one name (1)."
    )


def test_all_ranks_make_all_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(Store())
    ranks = [Rank(monkeypatch, world, "train.py:7") for _ in range(4)]
    for number, rank in enumerate(ranks):
        rank.makes("1", [0, 1] if number < 2 else None)
        rank.makes("2", [2, 3] if number >= 2 else None)
    assert [rank.warned for rank in ranks] == [[], [], [], []]


def test_groups_that_split_the_communicator_of_all_exchange_no_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(Store(), bound="cuda:0")
    one, other = Rank(monkeypatch, world, "train.py:7"), Rank(monkeypatch, world, "train.py:9")
    one.makes("1", [0, 1])
    other.makes("1", [2, 3])
    assert one.warned == other.warned == []


def test_names_begin_again_with_each_default_group(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    rank = Rank(monkeypatch, World(store), "train.py:7")
    rank.makes("1", [0, 1])
    rank.world = World(store)
    rank.makes("1", [0, 2])
    assert rank.warned == []
