"""Network interfaces of the thread's net namespace: made, given an address and turned on by messages to the kernel
(rtnetlink(7)). All numbers are those of Linux's headers, which are named beside them.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable
from types import TracebackType

NEWLINK, NEWADDR = 16, 20
"""Kinds of messages (linux/rtnetlink.h)."""
REQUEST, ACKNOWLEDGE, EXCLUSIVE, CREATE = 0x1, 0x4, 0x200, 0x400
"""Flags of a message (linux/netlink.h)."""
ERROR = 2
"""The kind of the kernel's answer (linux/netlink.h)."""
IFNAME, MTU, MASTER, LINKINFO, NET_NS_FD = 3, 4, 10, 18, 28
"""Attributes of an interface (linux/if_link.h)."""
INFO_KIND, INFO_DATA, VETH_INFO_PEER = 1, 2, 1
"""Attributes in LINKINFO (linux/if_link.h, linux/veth.h)."""
IFA_ADDRESS, IFA_LOCAL = 1, 2
"""Attributes of an address (linux/if_addr.h)."""
IFF_UP = 0x1
_HEADER = struct.Struct("=IHHII")
"""Length, kind, flags, number, sender (struct nlmsghdr)."""
_INTERFACE = struct.Struct("=BxHiII")
"""Family, type, index, flags, changed flags (struct ifinfomsg)."""
_ADDRESS = struct.Struct("=BBBBI")
"""Family, prefix length, flags, scope, index (struct ifaddrmsg)."""
_ATTRIBUTE = struct.Struct("=HH")
"""Length, kind (struct nlattr)."""
_ERROR = struct.Struct("=i")


class Interfaces:
    """A connection to the kernel for one net namespace. Its methods raise OSError for what the kernel refuses."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)

    def __enter__(self) -> Interfaces:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        self._socket.close()

    def add_bridge(self, name: str, mtu: int) -> None:
        self._make(*_named(name, mtu), _attribute(LINKINFO, _attribute(INFO_KIND, b"bridge")))

    def add_pair(self, name: str, mtu: int, peer: str, peer_namespace: int) -> None:
        """Adds a virtual link: one end here, the other one, `peer`, in the net namespace of that descriptor."""
        there = [*_named(peer, mtu), _attribute(NET_NS_FD, _number(peer_namespace))]
        data = _attribute(VETH_INFO_PEER, _INTERFACE.pack(0, 0, 0, 0, 0), *there)
        info = [_attribute(INFO_KIND, b"veth"), _attribute(INFO_DATA, data)]
        self._make(*_named(name, mtu), _attribute(LINKINFO, *info))

    def turn_on(self, name: str, bridge: str | None = None) -> None:
        """Turns on the interface, as a port of that bridge."""
        attributes = [_attribute(MASTER, _number(socket.if_nametoindex(bridge)))] if bridge is not None else []
        changed = _INTERFACE.pack(0, 0, socket.if_nametoindex(name), IFF_UP, IFF_UP)
        self._ask(NEWLINK, 0, changed, attributes)

    def add_address(self, name: str, address: str, prefix_length: int) -> None:
        packed = socket.inet_aton(address)
        which = _ADDRESS.pack(socket.AF_INET, prefix_length, 0, 0, socket.if_nametoindex(name))
        self._ask(NEWADDR, CREATE | EXCLUSIVE, which, [_attribute(IFA_LOCAL, packed), _attribute(IFA_ADDRESS, packed)])

    def _make(self, *attributes: bytes) -> None:
        self._ask(NEWLINK, CREATE | EXCLUSIVE, _INTERFACE.pack(0, 0, 0, 0, 0), attributes)

    def _ask(self, kind: int, flags: int, body: bytes, attributes: Iterable[bytes]) -> None:
        content = body + b"".join(attributes)
        header = _HEADER.pack(_HEADER.size + len(content), kind, REQUEST | ACKNOWLEDGE | flags, 0, 0)
        self._socket.send(header + content)
        answer = self._socket.recv(1 << 16)
        _, answered, *_ = _HEADER.unpack_from(answer)
        if answered != ERROR:
            raise OSError(f"the kernel answered a message of kind {kind} with one of kind {answered}")
        (negative,) = _ERROR.unpack_from(answer, _HEADER.size)
        if negative:
            raise OSError(-negative, os.strerror(-negative))


def _named(name: str, mtu: int) -> list[bytes]:
    return [_attribute(IFNAME, name.encode() + b"\0"), _attribute(MTU, _number(mtu))]


def _number(value: int) -> bytes:
    return struct.pack("=I", value)


def _attribute(kind: int, *content: bytes) -> bytes:
    """An attribute, whose length counts its header, and not the bytes that fill it up to a multiple of four."""
    joined = b"".join(content)
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(joined), kind) + joined + b"\0" * (-len(joined) % 4)
