"""The faults of a run, and whether the run has what they name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import netsim
from emu.contract.folding import Folding
from phantora_async.faults.files import read_faults
from phantora_async.faults.grammar import parse
from phantora_async.faults.kinds import (
    DeadGpu,
    DeadNic,
    DeadNode,
    EccRetry,
    Fault,
    FaultError,
    FlappingLink,
    JitteryHost,
    SlowGpu,
    SlowHost,
    SlowLink,
    SlowLoader,
)
from profiles import Cluster


def given_faults(
    texts: Sequence[str], file: Path | None, servers: Sequence[int], cluster: Cluster
) -> tuple[Fault, ...]:
    """The faults of the command line, then those of the file. Raises FaultError."""
    faults = tuple(parse(text) for text in texts) + (() if file is None else tuple(read_faults(file)))
    if faults:
        check(faults, servers, netsim.build(cluster.network, cluster.network_servers(len(servers))))
    return faults


def check_deaths(faults: Sequence[Fault], servers: Sequence[int], folding: Folding | None, launcher: bool) -> None:
    """Checks that every rank which reacts to a death has a process of its own. Raises FaultError."""
    for fault in faults:
        match fault:
            case DeadGpu(rank=rank):
                ranks = range(rank, rank + 1)
            case DeadNode(server=server):
                first = sum(servers[:server])
                ranks = range(first, first + servers[server])
                if launcher:
                    raise FaultError(f"fault '{fault}': not with --launcher, whose agent there would go on")
            case _:
                continue
        played = [] if folding is None else [rank for rank in ranks if rank not in folding.live]
        if played:
            raise FaultError(
                f"fault '{fault}': rank {played[0]} of this folded run has no process",
                f"--fold-apart {','.join(map(str, ranks))} gives it one",
            )


def check(faults: Sequence[Fault], servers: Sequence[int], topology: netsim.Topology) -> None:
    """Checks that the run has the things that the faults name. `servers`: the number of GPUs in use on each. Raises
    FaultError.
    """
    world_size = sum(servers)
    jittery = Counter(fault.server for fault in faults if isinstance(fault, JitteryHost))
    if twice := [server for server, count in jittery.items() if count > 1]:
        raise FaultError(f"host {twice[0]} has two faults of the kind jitter: one is possible")
    for fault in faults:
        match fault:
            case SlowGpu(rank=rank) | EccRetry(rank=rank) | DeadGpu(rank=rank) | SlowLoader(rank=rank) if (
                rank >= world_size
            ):
                raise FaultError(f"fault '{fault}': there is no rank {rank}: the run has ranks 0 to {world_size - 1}")
            case SlowHost(server=server) | JitteryHost(server=server) | DeadNode(server=server) if server >= len(
                servers
            ):
                raise FaultError(
                    f"fault '{fault}': there is no server {server}: the run has servers 0 to {len(servers) - 1}"
                )
            case SlowLink(link=name) | FlappingLink(link=name) | DeadNic(nic=name):
                try:
                    netsim.find_links(topology.links, name)
                except netsim.TopologyError as error:
                    raise FaultError(f"fault '{fault}': {error}") from None
