"""Says how much of a GPU's memory NCCL takes for a communicator, and what makes it take more.

Sizes and rules: NVIDIA/nccl v2.28.9 (src/init.cc, src/channel.cc, src/transport/p2p.cc, net.cc and nvls.cc). NCCL
allocates in pages of 2 MiB. It makes a communicator's tables at once, and the buffers of a connection when the first
operation needs them. Communicators of one and two H200s agree to 2 MiB (laboratory/notes/workspaces.md); multicast, and
what networks take, follows from the source alone.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import lru_cache

from netsim.collectives import tuner
from netsim.collectives.channels import SLOTS, channels_per_peer
from netsim.collectives.hops import MembersByServer, by_server
from netsim.collectives.params import Params
from netsim.collectives.settings import NcclSettings
from netsim.topology import ServerFacts, Topology

PAGE = 2 << 20
LL_NBYTES = 512 << 10
LL128_NBYTES = 640 * 120 * SLOTS * 8
HEAD_NBYTES = 4096
"""The flags beside the buffers of each end of a connection."""
PEER_NBYTES = 608
"""An entry of a channel's table of peers on the GPU."""
TABLES = 2
"""The tables of a communicator that are not those of a channel."""
PAGES_WITHOUT_CUMEM = 4
"""The pages of a channel's tables where NCCL allocates by cudaMalloc: measured, of one rank and of two."""
CHANNELS_OF_ONE = 64
"""The channels of a communicator of one rank on a server with several GPUs (measured)."""
SHARED_STEPS = 16
"""The chunks that messages to other servers share, for each channel."""
TREE_PEERS, TREE_PEERS_OF_TWO = 3, 1
"""The ends of connections between servers that a tree adds to a ring's, as a mean of both of NCCL's trees; of two
servers, one."""
MULTICAST_TREE_PEERS, MULTICAST_TREE_PEERS_OF_TWO = 4, 2
"""The ends of connections between servers of a channel of NVLSTree, likewise."""
LARGEST = 1 << 38
"""The largest size in bytes for which algorithms are told."""


@dataclass(frozen=True, slots=True)
class CommunicatorMemory:
    """The bytes of one member's GPU. Sizes of operations are those of ``planner.plan``, told as masks: bit k stands for
    all sizes from 2^k bytes to the next power of two.
    """

    made: int = 0
    """The bytes that are taken when the communicator is created."""
    ring: int = 0
    """The bytes that the first collective adds."""
    tree: int = 0
    """The bytes that the first all-reduce adds whose size is in ``tree_sizes``."""
    multicast: int = 0
    """The bytes that the first collective adds whose size is in ``multicast_sizes`` or ``gather_sizes``."""
    send: int = 0
    """The bytes that the first message to a member of the same server adds, for each such member."""
    receive: int = 0
    net_send: int = 0
    """The bytes that the first message to a member of another server adds, for each such member."""
    net_receive: int = 0
    tree_sizes: int = 0
    multicast_sizes: int = 0
    """Sizes of all-reduces by NVLS or NVLSTree."""
    gather_sizes: int = 0
    """Sizes of all-gathers and reduce-scatters by NVLS."""
    first_near: int = 0
    """The members of the same server, this one included, are those from here on, in rank order."""
    near: int = 0


def communicator_memory(
    members: tuple[int, ...], place: int, topology: Topology, params: Params, settings: NcclSettings
) -> CommunicatorMemory:
    """The memory of the member at ``place`` of ``members`` (endpoint ids in rank order)."""
    where = by_server(members, topology)
    own = next(
        server for server in where.servers if topology.server_of(server[0]) == topology.server_of(members[place])
    )
    found = _memory(where, len(own), topology.server, params, settings)
    first = members.index(own[0])
    return replace(found, first_near=first, near=members.index(own[-1], first) + 1 - first)


@lru_cache(maxsize=256)
def _memory(
    where: MembersByServer, near: int, server: ServerFacts, params: Params, settings: NcclSettings
) -> CommunicatorMemory:
    ranks = where.ranks
    if ranks == 1:
        several = server.nvlink and server.gpus > 1
        return CommunicatorMemory(_tables(settings.p2p_channels(CHANNELS_OF_ONE if several else 32), 1, settings))
    rings = tuner.channel_count(where, server, params, settings)
    messages = settings.p2p_channels(tuner.found_channels(where, server, params))
    heads = (settings.nvls_channels or params.nvls_channels) if server.nvls and near > 1 else 0
    send, receive = _ends(server, settings)
    outside = _paged(HEAD_NBYTES + LL_NBYTES + LL128_NBYTES + settings.buffer_nbytes)
    # Each channel's ring enters and leaves a server once, at other GPUs than the next channel's.
    ways_out = rings * (2 * outside - send - receive) // near if where.nodes > 1 else 0
    way = "nvlink" if server.nvlink else "pcie"
    per_peer = channels_per_peer(ranks, messages, way, where.nodes > 1, settings)
    shared = messages * SHARED_STEPS * min(settings.p2p_net_chunk_nbytes, settings.buffer_nbytes // SLOTS)
    sizes = _sizes("all_reduce", where, server, params, settings)
    inside = heads and where.nodes == 1
    memory = CommunicatorMemory(
        made=_tables(max(rings, messages, heads), ranks, settings) + (PAGE * (heads + 1) if heads else 0),
        ring=rings * (send + receive) + ways_out,
        tree=_tree(where, near, rings, send, receive, outside),
        multicast=_multicast(where, near, heads, outside, settings) if heads else 0,
        send=per_peer * send,
        receive=per_peer * receive,
        net_send=shared if where.nodes > 1 else 0,
        net_receive=shared if where.nodes > 1 else 0,
        tree_sizes=sizes["tree"],
        multicast_sizes=sizes["nvls"] | sizes["nvls_tree"] if heads else 0,
        gather_sizes=_sizes("all_gather", where, server, params, settings)["nvls"] if inside else 0,
    )
    if settings.runtime_connect and settings.cumem:
        return memory
    made = memory.made + memory.ring + memory.tree + memory.multicast
    return replace(memory, made=made, ring=0, tree=0, multicast=0)


def _paged(nbytes: int) -> int:
    return -(-nbytes // PAGE) * PAGE


def _tables(channels: int, ranks: int, settings: NcclSettings) -> int:
    """A channel has a table of connections, one of pointers to them, and the order of its ring."""
    if not settings.cumem:
        return channels * PAGES_WITHOUT_CUMEM * PAGE
    return channels * (_paged(ranks * PEER_NBYTES) + _paged(ranks * 8) + _paged(ranks * 4)) + TABLES * PAGE


def _ends(server: ServerFacts, settings: NcclSettings) -> tuple[int, int]:
    """The bytes of both ends of one channel's connection inside of a server. The buffers lie at the receiver, in the
    host's memory where GPUs do not reach each other.
    """
    if server.through_host:
        return 0, 0
    return _paged(HEAD_NBYTES), _paged(HEAD_NBYTES + LL_NBYTES + LL128_NBYTES + settings.buffer_nbytes)


def _tree(where: MembersByServer, near: int, rings: int, send: int, receive: int, outside: int) -> int:
    """The bytes of a tree's connections that are not a ring's, too. In a server a tree is a chain of the ring's order,
    used both ways; the first and the last of the chain, which need less, count as the others.
    """
    both_ways = near > 2 or (near == 2 and where.nodes > 1)
    peers = 0 if where.nodes == 1 else TREE_PEERS_OF_TWO if where.nodes == 2 else TREE_PEERS
    return rings * (send + receive if both_ways else 0) + rings * peers * outside // near


def _multicast(where: MembersByServer, near: int, heads: int, outside: int, settings: NcclSettings) -> int:
    """The buffers that NVLS reduces from and broadcasts to, for each member of the server; NVLSTree's connections."""
    peers = 0 if where.nodes == 1 else MULTICAST_TREE_PEERS_OF_TWO if where.nodes == 2 else MULTICAST_TREE_PEERS
    return _paged(heads * 2 * settings.nvls_chunk_nbytes * SLOTS * near) + heads * peers * outside


def _sizes(
    op: str, where: MembersByServer, server: ServerFacts, params: Params, settings: NcclSettings
) -> dict[str, int]:
    """The mask of the sizes for which NCCL takes each algorithm."""
    found: dict[str, int] = defaultdict(int)
    for place in range(LARGEST.bit_length()):
        found[tuner.choose(op, 1 << place, where, server, params, settings).algorithm] |= 1 << place
    return found
