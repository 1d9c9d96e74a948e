"""Divides an operation among channels as NCCL does: thread blocks that each move a part of the bytes on their own.

Rules and constants: NVIDIA/nccl v2.28.9 and v2.30.7, src/enqueue.cc. The numbers of channels were compared with the
grids of kernels in traces and with NCCL's log (laboratory/notes/accuracy-network.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from netsim.collectives.settings import NcclSettings

THREADS = {"ll": 512, "ll128": 640, "simple": 512}
BYTES_PER_THREAD = {"ll": 8, "ll128": 8, "simple": 64}
"""A channel is added when each thread has this much; for LL, times the number of ranks."""
LEAST_TRAFFIC = 16 << 10
"""Bytes of traffic below which no channel is worth its start."""
SLOTS = 8
"""Chunks that a buffer holds."""
LL_CHUNK = 32 << 10
"""Data bytes of a slot of LL's buffer: half of 64 KiB, the other half are flags."""


@dataclass(frozen=True, slots=True)
class Division:
    """A collective's bytes over channels. ``most_nbytes``: the largest part, of one rank's count."""

    channels: int
    most_nbytes: int
    threads: int


def divide(op: str, nbytes: int, ranks: int, protocol: str, limit: int) -> Division:
    """The division of ``nbytes``, counted as ``planner.plan`` does, over at most ``limit`` channels."""
    threads = THREADS[protocol]
    per_thread = BYTES_PER_THREAD[protocol] * (ranks if protocol == "ll" else 1)
    wanted = min(limit, max(1, nbytes // (threads * per_thread)))
    while nbytes < wanted * threads * per_thread and threads % 128 == 0:
        threads //= 2
    count = -(-nbytes // ranks) if op in ("all_gather", "reduce_scatter") else nbytes
    traffic = {"all_reduce": 2, "all_gather": ranks, "reduce_scatter": ranks}.get(op, 1) * (
        4 if protocol == "ll" else 1
    )
    # Bytes are dealt in cells, each worth the least traffic.
    cell = -(-LEAST_TRAFFIC // traffic // 16) * 16 or 16
    cells = max(1, -(-count // cell))
    share = max(LEAST_TRAFFIC, max(LEAST_TRAFFIC, count * traffic) // wanted)
    each = min(cells, -(-share // (cell * traffic)))
    used = -(-cells // each)
    if used > limit:
        # The first channel keeps its cells, the last one gets what does not divide evenly.
        others = max(1, limit - 1)
        first = each if limit > 1 else cells
        each, rest = divmod(cells - first, others)
        used, each = limit, max(first, each + rest)
    return Division(used, min(each * cell, count), threads)


MOST_HEADS = 32
"""The most members of a server among which NVLS divides the bytes."""
NVLS_CHUNKS = ((64, 64 << 10), (8, 32 << 10), (2, 16 << 10))
NVLS_TREE_CHUNKS = ((32, 256 << 10), (16, 128 << 10), (4, 64 << 10), (1, 32 << 10))
"""The steps and chunk sizes of NVLS and of NVLSTree: with fewer steps than the first number, the chunk is no larger
than the second.
"""


SERVERS_OF_SMALL_CHUNKS = 4
"""The number of servers from which on NVLSTree moves chunks of at most 64 KiB."""


def multicast_step(nbytes: int, channels: int, members: int, nodes: int, settings: NcclSettings) -> int:
    """The bytes that all channels of NVLS or NVLSTree move in one step of an all-reduce over ``nodes`` servers."""
    parts, chunk = channels * min(members, MOST_HEADS), settings.nvls_chunk_nbytes
    if nodes > 1:
        own = 64 << 10 if nodes >= SERVERS_OF_SMALL_CHUNKS else chunk
        chunk = min(chunk, settings.nvls_tree_chunk_nbytes or own)
    for steps, smaller in NVLS_TREE_CHUNKS if nodes > 1 else NVLS_CHUNKS:
        if nbytes < steps * parts * chunk and chunk > smaller:
            chunk = smaller
    return min(nbytes, parts * chunk)


@dataclass(frozen=True, slots=True)
class TransferDivision:
    """A send's bytes over channels. ``chunk_nbytes``: data in a slot of a channel's buffer."""

    protocol: str
    channels: int
    most_nbytes: int
    chunk_nbytes: int

    @property
    def room_nbytes(self) -> int:
        """Data that a channel's buffer holds."""
        return SLOTS * self.chunk_nbytes

    @property
    def held(self) -> bool:
        """The buffers hold all of it, so the sender need not wait for the receive."""
        return self.most_nbytes <= self.room_nbytes


def channels_per_peer(ranks: int, total: int, way: str, several_nodes: bool, settings: NcclSettings) -> int:
    """The channels of ``total`` that a peer of a send or receive gets. ``way``: see ``divide_transfer``."""
    # In a communicator over several nodes a peer gets as many channels as suit a NIC.
    per_peer = min(total, settings.channels_per_net_peer) if several_nodes else total if way == "nvlink" else 2
    while several_nodes and per_peer > 1 and per_peer * ranks > 4 * total:
        per_peer //= 2
    return per_peer


def divide_transfer(
    nbytes: int, ranks: int, coll_channels: int, way: str, several_nodes: bool, settings: NcclSettings
) -> TransferDivision:
    """The division of one send or receive in a communicator of ``ranks``. ``way``: nvlink, pcie or net."""
    total = settings.p2p_channels(coll_channels)
    per_peer = channels_per_peer(ranks, total, way, several_nodes, settings)
    least = per_peer
    while least * ranks > total and least > 1:
        least //= 2
    ll = nbytes <= per_peer * settings.p2p_ll_threshold_nbytes
    if ll:
        chunk = 2 * LL_CHUNK
    else:
        chunk = {
            "nvlink": settings.p2p_nvlink_chunk_nbytes,
            "pcie": settings.p2p_pcie_chunk_nbytes,
            "net": settings.p2p_net_chunk_nbytes,
        }["net" if several_nodes else way]
        chunk = min(chunk, settings.buffer_nbytes // SLOTS)
    smallest, largest = (chunk // 2, chunk) if several_nodes else (chunk // 8, chunk * 32)
    channels = max(1, min(least, -(-nbytes // smallest)))
    part = -(-nbytes // channels)
    while part > largest and channels <= per_peer // 2:
        channels *= 2
        part = -(-nbytes // channels)
    data = LL_CHUNK if ll else chunk
    return TransferDivision("ll" if ll else "simple", channels, part, data)
