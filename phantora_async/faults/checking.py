"""The faults of a run, and whether the run has what they name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import netsim
from phantora_async.faults.files import read_faults
from phantora_async.faults.grammar import parse
from phantora_async.faults.kinds import (
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
    """Those of the command line, then those of the file. Raises FaultError."""
    faults = tuple(parse(text) for text in texts) + (() if file is None else tuple(read_faults(file)))
    if faults:
        check(faults, servers, netsim.build(cluster.network, cluster.network_servers(len(servers))))
    return faults


def check(faults: Sequence[Fault], servers: Sequence[int], topology: netsim.Topology) -> None:
    """`servers`: GPUs in use on each. Raises FaultError."""
    world_size = sum(servers)
    jittery = Counter(fault.server for fault in faults if isinstance(fault, JitteryHost))
    if twice := [server for server, count in jittery.items() if count > 1]:
        raise FaultError(f"host {twice[0]} has two faults of the kind jitter: one is possible")
    for fault in faults:
        match fault:
            case SlowGpu(rank=rank) | EccRetry(rank=rank) | SlowLoader(rank=rank) if rank >= world_size:
                raise FaultError(f"fault '{fault}': there is no rank {rank}: the run has ranks 0 to {world_size - 1}")
            case SlowHost(server=server) | JitteryHost(server=server) if server >= len(servers):
                raise FaultError(
                    f"fault '{fault}': there is no server {server}: the run has servers 0 to {len(servers) - 1}"
                )
            case SlowLink(link=name) | FlappingLink(link=name):
                try:
                    netsim.find_links(topology.links, name)
                except netsim.TopologyError as error:
                    raise FaultError(f"fault '{fault}': {error}") from None
