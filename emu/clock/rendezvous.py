"""Process groups that are made again after `destroy_process_group`.

On a cluster the ranks end their groups at nearly the same time: NCCL's end is collective within a server. Here a rank
runs ahead of others by seconds. It would find the store of the former groups, with their keys: it would take an id of
NCCL that nobody answers to, or lose its connection when rank 0 ends that store. So each making has keys of its own, and
rank 0's store serves until its process ends.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

from ..private.changes import changes


def install() -> None:
    """Numbers the stores of process groups, so that each rendezvous has keys of its own. Called once, in the forker."""
    import torch.distributed

    if not torch.distributed.is_available():
        return
    changes.install("groups made again", lambda names: names.change("_create_c10d_store", _numbering))


def _numbering(real: Any) -> Any:
    from torch.distributed import PrefixStore

    made: Counter[tuple[str, int, int]] = Counter()
    served: list[Any] = []

    @functools.wraps(real)
    def create(hostname: str, port: int, rank: int, world_size: int, *arguments: Any, **options: Any) -> Any:
        store = real(hostname, port, rank, world_size, *arguments, **options)
        if rank == 0:
            served.append(store)
        world = hostname, port, world_size
        made[world] += 1
        return PrefixStore(f"made {made[world]}", store) if made[world] > 1 else store

    return create
