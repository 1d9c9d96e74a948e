"""Process groups of a folded run: the members of each are noted before it is made, for the coordinator and for gloo."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from ..contract.folding import Folding
from ..interpreter.hook_library import Hook
from ..private.changes import Names, changes
from . import messages
from .checkpoints import Checkpoints
from .gathered import Gathered
from .ranks import FoldedRanks
from .shards import Shards
from .stores import ONE_ROOT, RANKS_PER_ROOT, GroupStore

if TYPE_CHECKING:
    from .dispatched import Dispatched


def install(folding: Folding, simulated: Collection[int] | None, hook: Hook) -> FoldedRanks:
    """Changes the making of process groups. Called once, in the forker. `simulated`: the ranks whose groups are made;
    None: all are.
    """
    import torch.distributed as dist

    from .dispatched import Dispatched
    from .gloo import StandIn

    dispatched = Dispatched(hook)
    ranks = FoldedRanks(folding, simulated)
    # One id for each communicator, however large: its members are known by that id.
    os.environ[RANKS_PER_ROOT] = ONE_ROOT
    if os.environ.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL":  # its wrapper makes gloo groups of its own
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "INFO"
        dist.set_debug_level_from_env()

    def change(names: Names) -> None:
        names.change("_create_c10d_store", _counting_processes(ranks))
        names.change("_store_based_barrier", _waiting_for_processes(ranks))
        names.change("_new_process_group_helper", functools.partial(_noting_members, ranks, hook))
        names.change("ProcessGroupGloo", lambda real: StandIn.beside(real, ranks, dispatched))

    changes.install("folded groups", change)
    changes.install("gathers and scatters", lambda names: messages.change(names, hook))
    shards = Shards(ranks)
    changes.install("uneven shards", shards.change)
    shards.change_modules()
    checkpoints = Checkpoints(ranks)
    changes.when_imported("checkpoints' plans", checkpoints.change_items)
    changes.when_imported("gathered checkpoints' plans", checkpoints.change_gathering)
    changes.when_imported("checkpointing processes", checkpoints.change_processes)
    gathered = Gathered(ranks)
    ranks.explains = gathered.explains
    for gathering in (dist.distributed_c10d.all_gather_object, dist.distributed_c10d.gather_object):
        _replace(gathering, gathered.noting)
    _replace(dist.distributed_c10d.split_group, functools.partial(_noting_parts, ranks, hook))
    _replace(dist.distributed_c10d.monitored_barrier, lambda real: _looking_for_nobody(dispatched))
    return ranks


def _replace(real: Any, change: Callable[[Any], Any]) -> None:
    """Replaces a function wherever it is bound by its name."""
    changed = functools.wraps(real)(change(real))
    name = changed.__name__
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(name) is real:
            module.__dict__[name] = changed


def _noting_members(ranks: FoldedRanks, hook: Hook, real: Any) -> Any:
    def make(
        size: int, place: int, members: Sequence[int], backend: Any, store: Any, name: str, *rest: Any, **options: Any
    ) -> Any:
        if not members:
            ranks.store = store
        group = ranks.begin(tuple(members) or tuple(range(size)), name)
        own = GroupStore(store, group, name, ranks, hook.comm_members)
        ranks.stores.append(own)
        hook.split_members(group.members, each_its_own=False)
        try:
            return real(size, place, members, backend, own, name, *rest, **options)
        finally:
            ranks.making = None
            hook.split_members((), each_its_own=False)

    return make


def _noting_parts(ranks: FoldedRanks, hook: Hook, real: Any) -> Any:
    def split_group(parent: Any = None, parts: Any = None, *rest: Any, **options: Any) -> Any:
        import torch.distributed as dist

        parent = options.pop("parent_pg", parent) or dist.group.WORLD
        parts = options.pop("split_ranks", parts)
        members = ranks.begin_part(parent, parts)
        hook.split_members(members, each_its_own=True)
        try:
            return real(parent, parts, *rest, **options)
        finally:
            ranks.making = None
            hook.split_members((), each_its_own=True)

    return split_group


def _looking_for_nobody(dispatched: Dispatched) -> Callable[..., None]:
    """Returns a monitored barrier that looks for nobody: whoever is late is found by the coordinator."""

    def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        import torch.distributed as dist

        group = group or dist.group.WORLD
        if group is not dist.GroupMember.NON_GROUP_MEMBER:
            dispatched.member_of(group).barrier().wait()

    return monitored_barrier


def _counting_processes(ranks: FoldedRanks) -> Callable[[Any], Any]:
    """Wraps what makes the default store, which waits for all ranks: here it waits for those that have processes."""

    def change(real: Any) -> Any:
        def create(hostname: str, port: int, rank: int, world_size: int, *arguments: Any, **options: Any) -> Any:
            size = len(ranks.live) if world_size == ranks.world_size else world_size
            return real(hostname, port, rank, size, *arguments, **options)

        return create

    return change


def _waiting_for_processes(ranks: FoldedRanks) -> Callable[[Any], Any]:
    """Wraps the barrier that counts ranks in the store: here it counts those that have processes."""

    def change(real: Any) -> Any:
        def barrier(rank: int, store: Any, group_name: str, count: int, *arguments: Any, **options: Any) -> Any:
            group = ranks.by_name.get(group_name)
            processes = len(ranks.live) if group is None else ranks.processes(group.members)
            if count == ranks.world_size:
                processes = len(ranks.live)
            return real(rank, store, group_name, processes, *arguments, **options)

        return barrier

    return change
