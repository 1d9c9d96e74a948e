"""Computes how long a kernel of NCCL takes on an otherwise idle network, from measurements: the tuner's model is only
made to choose.

A kernel of a collective starts, then makes one operation after the other on each channel: the first sends, the last
receives, those between receive, reduce or copy, and send on. An operation takes as long as the slowest of: the wire,
which all channels share; the channel's own rate; and, for LL and LL128, the neighbour's latency before its data. With
Simple, a chunk moves in two slices, so that half of the wait for the neighbour overlaps. The parameters and how well
they fit: laboratory/notes/accuracy-network.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from netsim.collectives import tuner
from netsim.collectives.channels import BYTES_PER_THREAD, Division, TransferDivision, divide, multicast_step
from netsim.collectives.hops import MembersByServer
from netsim.collectives.params import PROTOCOLS, CollectiveKernel, Params, TransferKernel
from netsim.collectives.settings import NcclSettings
from netsim.collectives.tuner import Choice
from netsim.topology import ServerFacts

WIRE_BYTES = {"ll": 2.0, "ll128": 128 / 120, "simple": 1.0}
"""The bytes on the wire per byte of data: LL sends a flag with every four bytes, LL128 eight bytes of flags in 128."""
SLICE_NBYTES = 32 << 10
"""The largest chunk in bytes that moves in one slice."""
HOST_SHARE = 0.6
"""The share of NCCL's expected rate that a ring through the host's memory reaches: reads and writes of a GPU share
PCIe.
"""


@dataclass(frozen=True, slots=True)
class Duration:
    """The duration of a kernel: ``latency_us`` in which the wire is idle, and ``moving_us`` in which it carries
    ``wire_nbytes``.

    ``wire_nbytes`` cross each hop of the algorithm.
    """

    latency_us: float
    moving_us: float
    wire_nbytes: float

    @property
    def gbs(self) -> float:
        """The rate of a hop while it moves."""
        return self.wire_nbytes / (1000 * self.moving_us) if self.moving_us else 0.0


def between_us(kernel: CollectiveKernel, path_us: float) -> tuple[float, float, float]:
    """The latencies of a hop between servers by protocol, over cards and switches that take ``path_us``."""
    longer = max(0.0, path_us - kernel.net_path_us)
    ll, ll128, simple = kernel.net_us
    return (ll + longer, ll128 + longer, simple + longer)


def ring(
    op: str,
    nbytes: int,
    where: MembersByServer,
    server: ServerFacts,
    choice: Choice,
    params: Params,
    settings: NcclSettings,
    path_us: float = 0.0,
) -> Duration:
    """The duration of a ring collective; of a broadcast or reduction as its root sees it."""
    n, kernel, p = where.ranks, params.kernel, PROTOCOLS.index(choice.protocol)
    division = divide(op, nbytes, n, choice.protocol, choice.channels)
    start_us = kernel.start_us[op][p] + (kernel.many_blocks_us if division.channels >= kernel.many_blocks else 0.0)
    chain = op in ("broadcast", "reduce")
    hops = 1 if chain else tuner.ring_hops(op, n)
    op_nbytes = nbytes / (1 if chain else n)
    channel_nbytes = division.most_nbytes / (n if op == "all_reduce" else 1)
    wire_nbytes = op_nbytes * WIRE_BYTES[choice.protocol]
    wire_us = wire_nbytes / (1000 * _wire_gbs(chain, where, server, choice, params))
    step_us = _hop_us(op, where, server, params, p, path_us)
    if chain:
        gbs = kernel.send_gbs if n == 2 else kernel.relay_gbs
        return Duration(start_us + step_us, max(wire_us, channel_nbytes / (1000 * gbs[p])), wire_nbytes)
    first_us = max(wire_us, channel_nbytes / (1000 * kernel.send_gbs[p]))
    relay_us = _relay_us(division, channel_nbytes, choice.protocol, kernel)
    # Over a long collective the channels drift apart, and one channel's last receive overlaps with others' sends.
    exposed = 1 / (1 + hops * op_nbytes / (1e6 * kernel.overlap_mb))
    receive_us = exposed * channel_nbytes / (1000 * kernel.receive_gbs[p])
    if choice.protocol == "simple":
        slices = 1 if channel_nbytes <= SLICE_NBYTES else 2
        each_us = _sliced(relay_us, wire_us, step_us, slices, kernel)
        last_us = _sliced(receive_us, 0.0, step_us, slices, kernel)
        if where.nodes > 1:
            # The rank at a server's border hands each slice to the host's proxy, which keeps its block waiting.
            chunk_nbytes = settings.buffer_nbytes // 2
            slices *= max(1, -(-int(channel_nbytes) // chunk_nbytes))
            each_us = max(each_us, relay_us + slices * (kernel.slice_us + params.p2p.net_chunk_us))
            relay_us = max(relay_us, each_us - step_us)
            # A card sends a slice when all of it is there: the first one passes each border in its own time.
            borders = where.nodes * (2 if op == "all_reduce" else 1)
            last_us += borders * wire_us * min(1.0, chunk_nbytes / max(1.0, channel_nbytes)) / 2
    else:
        each_us, last_us = step_us + max(relay_us, wire_us), step_us + receive_us
    moving_us = first_us + (hops - 1) * max(wire_us, relay_us)
    total_us = start_us + first_us + (hops - 1) * each_us + last_us
    return Duration(total_us - moving_us, moving_us, hops * wire_nbytes)


def _sliced(work_us: float, wire_us: float, step_us: float, slices: int, kernel: CollectiveKernel) -> float:
    """The time of an operation of Simple: bound by the wire, by the channel's own work, or by the wait for the
    neighbour.
    """
    return max(wire_us, slices * kernel.slice_us + work_us, step_us + max(work_us, wire_us) / slices)


def _relay_us(division: Division, channel_nbytes: float, protocol: str, kernel: CollectiveKernel) -> float:
    if protocol != "ll":
        return channel_nbytes / (1000 * kernel.relay_gbs[PROTOCOLS.index(protocol)])
    iterations = -(-int(channel_nbytes) // (division.threads * BYTES_PER_THREAD["ll"]))
    return max(0, iterations - 1) * kernel.iteration_us


def _wire_gbs(chain: bool, where: MembersByServer, server: ServerFacts, choice: Choice, params: Params) -> float:
    """The bytes per ns, flags included, of the wire between two members of a ring."""
    if where.nodes == 1 and server.nvlink:
        return params.port_gbs * params.kernel.wire_efficiency
    gbs = choice.bus_gbs * WIRE_BYTES[choice.protocol]
    return gbs * HOST_SHARE if server.through_host and not chain else gbs


def _hop_us(
    op: str, where: MembersByServer, server: ServerFacts, params: Params, protocol: int, path_us: float
) -> float:
    """The mean latency of a hop on the way of the chunk that crosses most servers' borders. NCCL's model gives the
    ratio of a hop over PCIe to one over NVLink, which was measured.
    """
    step_us, net_us = params.kernel.step_us[protocol], between_us(params.kernel, path_us)[protocol]
    if op in ("broadcast", "reduce"):
        # Measured at the root, which waits for nobody; between servers, for the network's acknowledgement.
        return net_us if where.nodes > 1 else 0.0
    inside_us = step_us * tuner.intra_us(server, params)["ring"][protocol] / params.nvlink_us["ring"][protocol]
    hops = tuner.ring_hops(op, where.ranks)
    # Once around a ring is one border for each server; the hop that a chunk does not make is inside a server.
    between = min(hops, where.nodes * (2 if op == "all_reduce" else 1)) if where.nodes > 1 else 0
    return ((hops - between) * inside_us + between * net_us) / hops


def tree(
    nbytes: int, where: MembersByServer, server: ServerFacts, choice: Choice, params: Params, path_us: float = 0.0
) -> Duration:
    """The duration of an all-reduce along double trees; the pipeline of middle sizes is not full, as NCCL expects
    itself.

    The start and the hops over NVLink take the times measured with rings, in proportion to NCCL's constants of the two.
    """
    p, n = PROTOCOLS.index(choice.protocol), where.ranks
    inside_us = params.kernel.step_us[p] * tuner.intra_us(server, params)["tree"][p] / params.nvlink_us["ring"][p]
    depth_us = (where.nodes.bit_length() - 1) * between_us(params.kernel, path_us)[p]
    latency_us = params.kernel.start_us["all_reduce"][p] + 2 * ((n // where.nodes - 1) * inside_us + depth_us)
    carried = tuner.wire_bytes("all_reduce", nbytes, n)
    gbs = choice.bus_gbs * tuner.tree_correction(choice.protocol, nbytes)
    return Duration(latency_us, carried / (1000 * gbs), carried)


def multicast(
    op: str,
    nbytes: int,
    where: MembersByServer,
    server: ServerFacts,
    choice: Choice,
    params: Params,
    settings: NcclSettings,
    path_us: float = 0.0,
) -> Duration:
    """The duration of NVLS and NVLSTree. An all-reduce goes through the switch step by step: while the members read the
    sums of one step, the switch adds the next one's; the first passes both alone. Trees between servers take one step
    at a time, too, at the rate of the cards if that is lower.
    """
    carried = tuner.wire_bytes(op, nbytes, where.ranks)
    if op != "all_reduce" or not nbytes:
        return Duration(choice.latency_us, carried / (1000 * choice.bus_gbs), carried)
    kernel, members = params.kernel.multicast, where.ranks // where.nodes
    step_nbytes = multicast_step(nbytes, choice.channels, members, where.nodes, settings)
    # A port carries (n+1)/n of the bytes; the rate is that of eight members.
    gbs = (kernel.gbs if where.nodes == 1 else kernel.tree_gbs) * min(1.0, members / (members + 1) * 9 / 8)
    step_us = step_nbytes / (1000 * gbs) + kernel.step_us
    latency_us = kernel.start_us
    if where.nodes > 1:
        # Threads for the trees wait for those of the switch, and these for them.
        step_us += kernel.step_us
        step_us = max(step_us, step_nbytes / (1000 * tuner.tree_gbs_of_cards(where, server, params)))
        latency_us += 2 * (where.nodes.bit_length() - 1) * between_us(params.kernel, path_us)[2]
    return Duration(latency_us + 2 * step_us, nbytes / step_nbytes * step_us, carried)


def logarithmic(
    op: str, nbytes: int, where: MembersByServer, choice: Choice, params: Params, path_us: float = 0.0
) -> Duration:
    """The duration of PAT, at NCCL's own latency and bandwidth; a longer way between servers counts once for each of
    its steps.
    """
    carried = tuner.wire_bytes(op, nbytes, where.ranks)
    longer_us = max(0.0, path_us - params.kernel.net_path_us) * (where.nodes.bit_length() - 1)
    return Duration(choice.latency_us + longer_us, carried / (1000 * choice.bus_gbs), carried)


def transfer(
    nbytes: int,
    division: TransferDivision,
    peers: int,
    blocks: int,
    port_gbs: float,
    path_us: float | None,
    exchange: bool,
    params: Params,
) -> Duration:
    """The duration of sends of ``nbytes`` to or from ``peers`` at the busiest member, over its port of ``port_gbs``, by
    so many thread ``blocks`` (0: as many as can be used). ``path_us``: the time of cards and switches between servers;
    None in a server.
    """
    p2p = params.p2p
    kernel = p2p.exchange if exchange else p2p.one_way
    ll = division.protocol == "ll"
    wire_nbytes = nbytes * WIRE_BYTES[division.protocol]
    wire_us = peers * wire_nbytes / (1000 * (min(port_gbs, blocks * kernel.simple_gbs) if blocks else port_gbs))
    part = division.most_nbytes
    hop_us, chunk_us = 0.0, p2p.chunk_us
    if path_us is not None:
        # One thread of the host posts the messages of all peers, and takes the received ones.
        posted = max(0, peers - 1) * (2 if exchange else 1)
        hop_us = between_us(params.kernel, path_us)[0 if ll else 2] + posted * p2p.post_us
        chunk_us = p2p.net_chunk_us
    if ll:
        start_us = kernel.ll_start_us + (p2p.second_iteration_us if part > 4096 else 0.0)
        return Duration(start_us + hop_us, max(wire_us, part / (1000 * kernel.ll_gbs)), wire_nbytes)
    first, rest, receive_us = _chunks(part, division, kernel, params, chunk_us)
    share = min(part, division.chunk_nbytes) / part if part else 0.0
    moving_us = max(first, wire_us * share) + max(rest, wire_us * (1 - share))
    return Duration(kernel.simple_start_us + hop_us + receive_us, moving_us, wire_nbytes)


def _chunks(
    part: int, division: TransferDivision, kernel: TransferKernel, params: Params, chunk_us: float
) -> tuple[float, float, float]:
    """The times in us of a channel's first chunk, of the others, and of the last one's way out of the buffer."""
    first = min(part, division.chunk_nbytes)
    more = max(0, -(-part // division.chunk_nbytes) - 1)
    rest_us = (part - first) / (1000 * kernel.simple_gbs) + more * chunk_us
    return first / (1000 * params.p2p.first_gbs), rest_us, first / (1000 * params.p2p.receive_gbs)


def sender_alone_us(nbytes: int, division: TransferDivision, port_gbs: float, params: Params) -> float:
    """The time of a send into free buffers, without its receive."""
    kernel, part = params.p2p.one_way, division.most_nbytes
    wire_us = nbytes * WIRE_BYTES[division.protocol] / (1000 * port_gbs)
    if division.protocol == "ll":
        start_us = kernel.ll_start_us + (params.p2p.second_iteration_us if part > 4096 else 0.0)
        return start_us + max(wire_us, part / (1000 * params.p2p.ll_send_gbs))
    first, rest, _ = _chunks(part, division, kernel, params, params.p2p.chunk_us)
    return kernel.simple_start_us + max(wire_us, first + rest)


def receiver_alone_us(division: TransferDivision, params: Params) -> float:
    """The time of a receive whose data lies in the buffers already."""
    kernel, part = params.p2p.one_way, division.most_nbytes
    if division.protocol == "ll":
        start_us = kernel.ll_start_us + (params.p2p.second_iteration_us if part > 4096 else 0.0)
        return start_us + part / (1000 * kernel.ll_gbs)
    return params.p2p.late_receive_us + part / (1000 * params.p2p.receive_gbs)
