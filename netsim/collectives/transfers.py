"""Plans send and receive, and the operations that are made of them: all-to-all, gather, scatter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from netsim.collectives import hops, timing, tuner
from netsim.collectives.channels import TransferDivision, divide_transfer
from netsim.collectives.params import Params
from netsim.collectives.settings import NcclSettings
from netsim.collectives.timing import Duration
from netsim.topology import Topology

PEERS_OF_A_BATCH = 8


@dataclass(frozen=True, slots=True)
class Call:
    """A checked operation as ``planner.plan`` takes it. ``ranks``: the size of the communicator."""

    op: str
    nbytes: int
    members: tuple[int, ...]
    root: int
    ranks: int
    exchange: bool


@dataclass(frozen=True, slots=True)
class Transfers:
    """The transfers of a call inside servers, or those between servers: all alike, and begun together."""

    division: TransferDivision
    duration: Duration
    links: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class BufferedSend:
    """A send that NCCL's buffers hold: its kernel ends without the receive.

    The buffers are of one communicator and one pair of ranks. They are free again when the receive has run.
    """

    sender_ns: int
    """The ns of the sender's kernel alone."""
    receiver_ns: int
    """The ns of the receiver's kernel, if the data is there when it starts."""
    held_nbytes: int
    """The bytes that the send takes in each buffer until it is received."""
    room_nbytes: int
    """The size of each buffer in bytes."""


def parts(call: Call, topology: Topology, params: Params, settings: NcclSettings) -> list[Transfers]:
    """The call's transfers inside servers and between them."""
    each = call.nbytes if call.op == "send_recv" else ceil(call.nbytes / len(call.members))
    found = []
    for moves in _moves(call.op, call.members, topology, call.members[call.root]):
        if not moves.links:
            continue
        division = _division(each, call.ranks, moves.far, call.members, topology, params, settings)
        path_us = hops.path_us(hops.by_server(call.members, topology), topology) if moves.far else None
        port_gbs = _port_gbs(moves.far, call.exchange, topology, params)
        blocks = _blocks(call, division, moves, topology)
        duration = timing.transfer(each, division, moves.busiest, blocks, port_gbs, path_us, call.exchange, params)
        found.append(Transfers(division, duration, moves.links))
    return found


def buffered_send(
    nbytes: int, members: tuple[int, int], ranks: int, topology: Topology, params: Params, settings: NcclSettings
) -> BufferedSend | None:
    """The part of a send from the first member to the second that does not wait for its receive; None if the send has
    to wait.
    """
    far = topology.server_of(members[0]) != topology.server_of(members[1])
    division = _division(nbytes, ranks, far, members, topology, params, settings)
    if not division.held or members[0] == members[1]:
        return None
    port_gbs = _port_gbs(far, False, topology, params)
    return BufferedSend(
        sender_ns=round(1000 * timing.sender_alone_us(nbytes, division, port_gbs, params)),
        receiver_ns=round(1000 * timing.receiver_alone_us(division, params)),
        held_nbytes=division.most_nbytes,
        room_nbytes=division.room_nbytes,
    )


def _division(
    nbytes: int,
    ranks: int,
    far: bool,
    members: Sequence[int],
    topology: Topology,
    params: Params,
    settings: NcclSettings,
) -> TransferDivision:
    where = hops.by_server(members, topology)
    channels = tuner.channel_count(_communicator(ranks, where, topology), topology.server, params, NcclSettings())
    way = "nvlink" if topology.server.nvlink else "pcie"
    several_nodes = far or where.nodes > 1 or ranks > topology.server.gpus
    return divide_transfer(nbytes, ranks, channels, way, several_nodes, settings)


def _blocks(call: Call, division: TransferDivision, moves: _Moves, topology: Topology) -> int:
    """The number of thread blocks that move a member's bytes, 0 for one per peer and channel: eight peers of a server
    share their channels in a communicator over several servers (NVIDIA/nccl v2.30.7, src/include/channel.h).
    """
    where = hops.by_server(call.members, topology)
    if where.nodes == 1 or moves.busiest == 1:
        return 0
    others = where.nodes - 1 if moves.far else 1
    return division.channels * max(1, min(moves.busiest, others * -(-where.rails // PEERS_OF_A_BATCH)))


def _communicator(ranks: int, where: hops.MembersByServer, topology: Topology) -> hops.MembersByServer:
    """The places of a communicator's ranks as far as its channels depend on them: if only a sender and a receiver are
    known, the others are assumed to fill servers.
    """
    gpus = topology.server.gpus
    if ranks <= where.ranks or where.nodes > 2:
        return where
    servers = max(where.nodes, -(-ranks // gpus))
    each = max(1, ranks // servers)
    return hops.MembersByServer(tuple(tuple(range(s * gpus, s * gpus + each)) for s in range(servers)))


def _port_gbs(far: bool, exchange: bool, topology: Topology, params: Params) -> float:
    """The bytes that one GPU can send or receive per ns."""
    server = topology.server
    if far:
        return server.nic_gbps / 8 * params.factor.net_efficiency
    if server.nvlink:
        kernel = params.p2p.exchange if exchange else params.p2p.one_way
        return params.port_gbs * kernel.port_efficiency
    return server.gpu_gbps / 8 * tuner.PCIE_SHARE * (timing.HOST_SHARE if server.through_host else 1.0)


@dataclass(frozen=True, slots=True)
class _Moves:
    """Transfers inside servers, or between them: their links, and how many share the busiest end."""

    far: bool
    links: tuple[tuple[int, int], ...]
    busiest: int


@lru_cache(maxsize=1024)
def _moves(op: str, members: tuple[int, ...], topology: Topology, root: int) -> tuple[_Moves, _Moves]:
    """The transfers between pairs of members, inside servers and between them."""
    if op == "send_recv":
        moves = [(members[0], members[1])]
    elif op == "all_to_all":
        moves = hops.pairs(members)
    else:
        moves = [(m, root) if op == "gather" else (root, m) for m in members if m != root]
    made = []
    for far in (False, True):
        part = [hop for hop in moves if (topology.server_of(hop[0]) != topology.server_of(hop[1])) == far]
        made.append(_Moves(far, hops.weights(part, topology), _busiest_end(part)))
    return made[0], made[1]


def _busiest_end(moves: Sequence[hops.Hop]) -> int:
    """The most transfers that begin or end at one member: they share its port."""
    sends, receives = Counter(src for src, _ in moves), Counter(dst for _, dst in moves)
    return max((*sends.values(), *receives.values()), default=0)
