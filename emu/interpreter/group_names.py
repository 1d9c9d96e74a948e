"""Groups of different ranks that have one name.

`torch.distributed.new_group` numbers the groups that a rank makes, and all members exchange their ids under keys of the
store that begin with that number. So all ranks have to make all groups, in one order. Where two ranks make different
groups as their next one, both groups exchange under the same keys: who finds whom is a race that real time decides, so
it may hang on GPUs and end well here.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

from ..contract.races import MAY_HANG

_PREFIX = "phantora group "
"""The store's keys here begin with it; no other does."""


class Host(Protocol):
    """The functions of the hook library that are used here."""

    def line(self) -> str: ...
    def warn_once(self, name: str, text: str) -> None: ...


class GroupNames:
    """Compares, by the store, the groups that this rank makes with those of the others."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._world: Any = None
        self._worlds = 0
        """The number of default groups that this rank has made groups of. Each has names of its own."""

    def made(self, group: Any) -> None:
        """Looks whether another rank has made a group of other ranks with the same name. `group`: what `new_group` has
        returned.
        """
        import torch.distributed as dist

        world = dist.group.WORLD
        if world is not self._world:
            self._world = world
            self._worlds += 1
        if group is dist.GroupMember.NON_GROUP_MEMBER or not hasattr(world, "get_group_store"):
            return
        if world.bound_device_id is not None:
            return  # NCCL splits the communicator of all ranks, by the ranks of the groups
        mine = [dist.get_process_group_ranks(group), self._host.line()]
        key, told = f"{_PREFIX}{self._worlds} {group.group_name}", json.dumps(mine)
        first = json.loads(world.get_group_store().compare_set(key, "", told))
        if first[0] != mine[0]:
            self._host.warn_once(key, _clash(group.group_name, *sorted((first, mine))))


def _clash(name: str, one: list[Any], other: list[Any]) -> str:
    makers = " and ".join(f"{_named(ranks)} at {line or 'a line that is not known'}" for ranks, line in (one, other))
    return (
        f"{MAY_HANG}{makers} make different groups under one name ({name}). The ids of both travel under the same "
        "keys of the store, so which ranks find each other depends on their timing. Every rank has to call new_group "
        "for every group, in the same order, or all with use_local_synchronization=True"
    )


def _named(ranks: list[int]) -> str:
    """`ranks 0,1,4`; long lists begin only."""
    text = ",".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    return f"rank {text}" if len(ranks) == 1 else f"ranks {text}"
