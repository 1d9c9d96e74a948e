"""c10d's store in a folded run: ranks without processes set no keys and are not counted.

NCCL's unique ids travel by the store. Whoever passes one to NCCL has set or got it there first, under a key of its
group: so it is known here who the communicator's members will be. Any bytes serve as an id, because the coordinator
goes by the members. So nobody waits here for the first member, which may have no process: a rank that waited in the
store would sleep where no record tells of it, and each answer that the others need meanwhile would take looks at all
processes. It waits for the other members' questions instead, as virtual time knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from torch.distributed import Store

from .ranks import FoldedRanks, Group

UNIQUE_ID_NBYTES = 128
RANKS_PER_ROOT = "TORCH_NCCL_RANKS_PER_ROOT"
"""The variable that says for how many ranks one makes an id: in larger communicators several do, and all members need
all ids.
"""
ONE_ROOT = str(1 << 30)
_KEY = re.compile(r"(?:.*/)?(?:(?:nccl_storekey_)?(?P<number>\d+)|(?P<low>\d+):(?P<high>\d+))")
"""Matches ProcessGroupNCCL's keys of unique ids: the number of the group's communicator, or two places in the group."""
_OF_NCCL = re.compile(r"/*cuda/+(?:\d+(?:/nccl_storekey_\d+)?|\d+:\d+)")
"""Matches those of these keys, without the group's name, that nothing but an id can have: PyTorch puts the name of the
device before the keys of a group's backend. Other users of a group's store count, too, without it.
"""
Tell = Callable[[bytes, tuple[int, ...]], None]


class GroupStore(Store):
    """The store of one group. What is no unique id of NCCL's goes to the store of all."""

    def __init__(self, store: Any, group: Group, name: str, ranks: FoldedRanks, tell: Tell) -> None:
        """Makes the store. `tell`: is told of a unique id, and of the world ranks that it joins; of two members of a
        group, which send each other messages, also of all that are in the group.
        """
        super().__init__()
        self._store = store
        self._group = group
        self._name = name
        self._ranks = ranks
        self._tell = tell

    def _members(self, key: str) -> tuple[int, ...]:
        """Returns the members of the communicator whose unique id this key has; none: it has another meaning.

        The default group's store is beneath those of the others, so a key that it sees can be one of theirs.
        """
        found = _KEY.fullmatch(key) if key.startswith(f"{self._name}/") else None
        if found is None or self._ranks.by_name.keys() & key.split("//")[1:-1]:
            return ()
        if found["number"] is not None:
            return self._group.members
        return tuple(self._group.members[int(found[place])] for place in ("low", "high"))

    def set(self, key: str, value: Any) -> None:
        members = self._members(key)
        if members:
            data = value.encode() if isinstance(value, str) else bytes(value)
            if len(data) == UNIQUE_ID_NBYTES:
                self._tell(data, self._with_group(members))
        self._store.set(key, value)

    def get(self, key: str) -> bytes:
        members = self._members(key)
        if self._nobody_waits(key, members):
            unique = f"rank {members[0]}, {key}".encode()[:UNIQUE_ID_NBYTES].ljust(UNIQUE_ID_NBYTES, b"\0")
        else:
            unique = self._store.get(key)
        if members and len(unique) == UNIQUE_ID_NBYTES:
            self._tell(unique, self._with_group(members))
        return unique

    def _with_group(self, members: tuple[int, ...]) -> tuple[int, ...]:
        group = self._group.members
        return members if members == group else (*members, *group)

    def _nobody_waits(self, key: str, members: tuple[int, ...]) -> bool:
        """Tells whether this key has an id, or a rank without a process would have to set it."""
        if not members:
            return False
        return members[0] not in self._ranks.live or _OF_NCCL.fullmatch(key[len(self._name) + 1 :]) is not None

    # ---- as they are -----------------------------------------------------------------------------------------------

    def add(self, key: str, amount: int) -> int:
        return int(self._store.add(key, amount))

    def append(self, key: str, value: Any) -> None:
        self._store.append(key, value)

    def check(self, keys: list[str]) -> bool:
        return bool(self._store.check(keys))

    def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
        return bytes(self._store.compare_set(key, expected, desired))

    def delete_key(self, key: str) -> bool:
        return bool(self._store.delete_key(key))

    def num_keys(self) -> int:
        return int(self._store.num_keys())

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [self.get(key) for key in keys]

    def multi_set(self, keys: list[str], values: list[Any]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def has_extended_api(self) -> bool:
        return True

    def wait(self, keys: list[str], *timeout: timedelta) -> None:
        others = [key for key in keys if not self._nobody_waits(key, self._members(key))]
        if others:
            self._store.wait(others, *timeout)

    def set_timeout(self, timeout: timedelta) -> None:
        self._store.set_timeout(timeout)

    @property
    def timeout(self) -> timedelta:
        given: timedelta = self._store.timeout
        return given

    def clone(self) -> GroupStore:
        return GroupStore(self._store.clone(), self._group, self._name, self._ranks, self._tell)
