"""Reads how links queue and how senders react to it: ``[network.congestion]``."""

from __future__ import annotations

from dataclasses import dataclass

from netsim.fields import SpecTable

KINDS = ("queues", "dcqcn")


@dataclass(frozen=True, slots=True)
class Congestion:
    """Links with first-in-first-out queues. Defaults are those of the HPCC paper's public simulation of DCQCN."""

    dcqcn: bool
    """True: long queues mark packets, and marks cut the rates of senders. False: senders always send at line rate."""
    packet_nbytes: int = 4096
    ack_nbytes: int = 84
    """The bytes of the answer to a packet, on the way back; 0: answers take no room."""
    mark_from_us: float = 32.0
    """The queue, in us that its link needs for it, from which packets are marked."""
    mark_to_us: float = 128.0
    """The queue from which every packet is marked."""
    mark_most: float = 0.2
    """The share of packets that is marked just before that."""
    cut_every_us: float = 4.0
    recover_every_us: float = 300.0
    alpha_every_us: float = 1.0
    alpha_gain: float = 1 / 256


def read(table: SpecTable) -> Congestion:
    """``[network.congestion]``; FieldError for what does not fit."""
    dcqcn = table.text("kind", choices=KINDS) == "dcqcn"
    plain = Congestion(dcqcn)
    packet = table.integer("packet_nbytes", plain.packet_nbytes, least=64, most=65_536)
    ack = table.integer("ack_nbytes", plain.ack_nbytes, least=0, most=1024)
    if not dcqcn:
        table.end()
        return Congestion(False, packet, ack)
    mark_from = table.number("mark_from_us", plain.mark_from_us, least=0, most=1e6)
    found = Congestion(
        True,
        packet,
        ack,
        mark_from,
        table.number("mark_to_us", max(plain.mark_to_us, 4 * mark_from), least=0, most=1e6),
        table.number("mark_most", plain.mark_most, least=0, most=1),
        table.number("cut_every_us", plain.cut_every_us, least=0.1, most=1e6),
        table.number("recover_every_us", plain.recover_every_us, least=0.1, most=1e6),
        table.number("alpha_every_us", plain.alpha_every_us, least=0.1, most=1e6),
        table.number("alpha_gain", plain.alpha_gain, least=1e-6, most=1),
    )
    if found.mark_to_us <= found.mark_from_us:
        raise table.error("mark_to_us", f"{found.mark_to_us} is not more than mark_from_us ({found.mark_from_us})")
    table.end()
    return found
