"""Stores whose server starts late, and process groups that are made again after `destroy_process_group`.

A TCPStore that nobody serves yet tries again after half a second, then after longer: it sleeps in real time, and
nothing that another rank does ends the sleep. A rank whose server starts meanwhile would look as if it waited for
others, and virtual time would go on without it. So it looks often here, and its connection is made as soon as it can
be.

On a cluster the ranks end their groups at nearly the same time: NCCL's end is collective within a server. Here a rank
runs ahead of others by seconds. It would find the store of the former groups, with their keys: it would take an id of
NCCL that nobody answers to, or lose its connection when rank 0 ends that store. So each making has keys of its own, and
rank 0's store serves until its process ends.
"""

from __future__ import annotations

import functools
import socket
from collections import Counter
from typing import Any

from ..interpreter import real_time
from ..private.changes import changes

_LOOK_EVERY_S = 0.02
"""The real seconds between two looks for a server. A rank takes longer than that from the start of its server to the
first question that virtual time answers.
"""


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


def wait_for_server(host: Any, port: Any) -> None:
    """Returns when somebody listens at this port. Returns at once for a host or port that is no address, and where no
    address refuses the connection: the store says what is wrong.
    """
    if not isinstance(host, str) or not isinstance(port, int):
        return
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return
    while (answers := {_listens(place[:3], place[4]) for place in places}) >= {False} and True not in answers:
        real_time.sleep(_LOOK_EVERY_S)


def _listens(kind: tuple[int, int, int], address: Any) -> bool | None:
    """Tells whether a connection is accepted here; None if it is neither accepted nor refused. `kind`: the family,
    type and protocol of the socket.
    """
    try:
        with socket.socket(*kind) as probe:
            probe.connect(address)
    except ConnectionRefusedError:
        return False
    except OSError:
        return None
    return True
