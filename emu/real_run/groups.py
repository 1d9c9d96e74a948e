"""Process groups of which this process is the only member that exists: `torch.distributed` of a rank that is alone.

Whatever backend a script asks for, it gets the same stand-in; `get_backend` answers what was asked for. Ranks, sizes,
group names and device meshes are the real ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NoReturn

import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.distributed import distributed_c10d

from . import collectives

BACKEND = "phantora_stand_in"
WAIT = timedelta(seconds=2)
"""The time for which this rank waits for a key of the store that no other rank will ever set."""


class LoneStore(c10d.HashStore):
    """A key-value store that other ranks write nothing into."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__()
        super().set_timeout(WAIT)

    def set_timeout(self, timeout: timedelta) -> None:
        """Keeps the timeout as it is: nobody will come, however long this rank waits."""


def install(rank: int, world_size: int) -> None:
    """Makes the process groups and the store of this process stand-ins. Called before the script starts."""
    collectives.install()
    dist.Backend.register_backend(BACKEND, _stand_in, extended_api=True, devices=["cpu", "cuda"])
    # Both variables make torch.distributed put something of its own between groups and backends.
    os.environ.pop("TORCH_DISTRIBUTED_USE_TORCHCOMMS", None)
    if os.environ.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL":
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "INFO"
        dist.set_debug_level_from_env()
    _replace_store(rank, world_size)
    _replace_groups()
    _replace_object_calls()


def _stand_in(options: Any, _: Any) -> Any:
    """Makes a process group whose collectives are never called: operators come first (`collectives`)."""
    make = getattr(c10d.FakeProcessGroup, "_create_internal", c10d.FakeProcessGroup)
    return make(options.group_rank, options.group_size)


def _replace(name: str, value: Any) -> None:
    """Replaces a function wherever PyTorch itself has bound it."""
    import torch.distributed.device_mesh as device_mesh

    for module in (dist, distributed_c10d, device_mesh):
        if hasattr(module, name):
            setattr(module, name, value)


def _replace_store(rank: int, world_size: int) -> None:
    def rendezvous(url: str, given_rank: int = -1, given_size: int = -1, **_: Any) -> Iterator[tuple[Any, int, int]]:
        yield LoneStore(), rank if given_rank < 0 else given_rank, world_size if given_size < 0 else given_size

    _replace("rendezvous", rendezvous)
    _replace("TCPStore", type("TCPStore", (LoneStore,), {}))
    distributed_c10d._store_based_barrier = lambda *given, **options: None


def _replace_groups() -> None:
    make_group = distributed_c10d._new_process_group_helper
    world = distributed_c10d._world

    def new_process_group(
        size: int, rank: int, ranks: list[int], backend: str, store: Any, *given: Any, **options: Any
    ) -> Any:
        # A group that is bound to a device would connect at once, and be split for smaller groups.
        options |= {"backend_options": None, "device_id": None}
        group, its_store = make_group(size, rank, ranks, dist.Backend(BACKEND), store, *given, **options)
        if group is not dist.GroupMember.NON_GROUP_MEMBER:
            asked = dist.Backend(backend)
            world.pg_map[group] = (asked, its_store)
            world.pg_backend_config[group] = str(distributed_c10d.BackendConfig(asked))
        return group, its_store

    def split_group(
        parent: Any = None, split_ranks: list[list[int]] | None = None, timeout: Any = None, *given: Any, **options: Any
    ) -> Any:
        """Makes a group of this rank's part of the parent. `split_ranks`: the parent's ranks in parts."""
        parent = parent or dist.group.WORLD
        own = next((ranks for ranks in split_ranks or [] if parent.rank() in ranks), None)
        if own is None:
            return None
        members = dist.get_process_group_ranks(parent)
        return dist.new_group([members[rank] for rank in own], timeout=timeout)

    _replace("_new_process_group_helper", new_process_group)
    _replace("split_group", split_group)


def _replace_object_calls() -> None:
    """Objects that only another rank knows. Other calls with objects work, since they are made of collectives."""
    broadcast, scatter = dist.broadcast_object_list, dist.scatter_object_list

    def is_root(src: int | None, group: Any, group_src: int | None) -> bool:
        return dist.get_rank(group) == group_src if group_src is not None else dist.get_rank() == (src or 0)

    def broadcast_object_list(
        object_list: list[Any],
        src: int | None = None,
        group: Any = None,
        device: Any = None,
        group_src: Any = None,
        **options: Any,
    ) -> None:
        """Keeps the list as it is where another rank is the root: others say what this rank says."""
        if is_root(src, group, group_src):
            broadcast(object_list, src, group, device, group_src, **options)

    def scatter_object_list(
        outputs: list[Any],
        inputs: list[Any] | None = None,
        src: int | None = None,
        group: Any = None,
        group_src: int | None = None,
        **options: Any,
    ) -> None:
        if is_root(src, group, group_src):
            scatter(outputs, inputs, src, group, group_src, **options)
        elif inputs:
            outputs[0] = inputs[dist.get_rank(group)]

    def recv_object_list(*given: Any, **options: Any) -> NoReturn:
        raise RuntimeError(
            "phantora-async profile: recv_object_list waits for an object of another rank, which does not exist here; "
            "profile a rank that receives none (a pipeline's first stage), or give shapes to the script's stages"
        )

    _replace("broadcast_object_list", broadcast_object_list)
    _replace("scatter_object_list", scatter_object_list)
    _replace("recv_object_list", recv_object_list)
