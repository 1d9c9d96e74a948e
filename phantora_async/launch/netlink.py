"""Makes and configures network interfaces of Linux: the few requests of rtnetlink(7) that joining servers needs.

Only the standard library is used: the process that joins networks lives for milliseconds, most of which were imports.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from types import TracebackType

_NEW_LINK, _NEW_ADDRESS = 16, 20
_ERROR = 2
_REQUEST, _ACKNOWLEDGE, _EXCLUSIVE, _CREATE = 0x1, 0x4, 0x200, 0x400
_IFNAME, _MTU, _MASTER, _LINK_INFO, _NET_NS_FD = 3, 4, 10, 18, 28
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_ADDRESS, _LOCAL = 1, 2
_UP = 0x1
_HEADER = struct.Struct("=IHHII")
"""The header of a message: length, type, flags, sequence number, port."""
_LINK = struct.Struct("=BxHiII")
"""An interface: family, type, index, flags, mask of the flags to change."""
_ADDRESS_OF = struct.Struct("=BBBBi")
"""An address: family, length of the prefix, flags, scope, index of the interface."""
_ATTRIBUTE = struct.Struct("=HH")
_NUMBER = struct.Struct("=I")
_CODE = struct.Struct("=i")
_LONGEST_NBYTES = 1 << 16


class Netlink:
    """A socket to the kernel for the net namespace that the process is in when it is opened. All methods raise OSError,
    with the kernel's reason.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._sequence = 0

    def __enter__(self) -> Netlink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def add_bridge(self, name: str, mtu: int) -> None:
        self._add_link(name, mtu, "bridge", b"")

    def add_pair(self, name: str, mtu: int, peer: str, peer_namespace: int) -> None:
        """Adds two interfaces that are joined. `peer_namespace`: a descriptor of the peer's net namespace."""
        attributes = _text(_IFNAME, peer) + _number(_MTU, mtu) + _number(_NET_NS_FD, peer_namespace)
        self._add_link(name, mtu, "veth", _attribute(_VETH_PEER, _LINK.pack(0, 0, 0, 0, 0) + attributes))

    def set_up(self, name: str) -> None:
        self._ask(_NEW_LINK, _LINK.pack(0, 0, socket.if_nametoindex(name), _UP, _UP))

    def set_master(self, name: str, bridge: str) -> None:
        """Makes an interface a port of a bridge."""
        link = _LINK.pack(0, 0, socket.if_nametoindex(name), 0, 0)
        self._ask(_NEW_LINK, link + _number(_MASTER, socket.if_nametoindex(bridge)))

    def add_address(self, name: str, address: str, prefix_length: int) -> None:
        """Gives an interface an IPv4 address."""
        packed = socket.inet_aton(address)
        body = _ADDRESS_OF.pack(socket.AF_INET, prefix_length, 0, 0, socket.if_nametoindex(name))
        self._ask(_NEW_ADDRESS, body + _attribute(_LOCAL, packed) + _attribute(_ADDRESS, packed), _CREATE | _EXCLUSIVE)

    def _add_link(self, name: str, mtu: int, kind: str, data: bytes) -> None:
        info = _text(_INFO_KIND, kind) + (_attribute(_INFO_DATA, data) if data else b"")
        attributes = _text(_IFNAME, name) + _number(_MTU, mtu) + _attribute(_LINK_INFO, info)
        self._ask(_NEW_LINK, _LINK.pack(0, 0, 0, 0, 0) + attributes, _CREATE | _EXCLUSIVE)

    def _ask(self, kind: int, body: bytes, flags: int = 0) -> None:
        """Sends a request, and waits for the kernel's word that it was done."""
        self._sequence += 1
        length, flags = _HEADER.size + len(body), flags | _REQUEST | _ACKNOWLEDGE
        self._socket.send(_HEADER.pack(length, kind, flags, self._sequence, 0) + body)
        answer = self._socket.recv(_LONGEST_NBYTES)
        _, answered, _, sequence, _ = _HEADER.unpack_from(answer)
        if answered != _ERROR or sequence != self._sequence:
            raise OSError(errno.EPROTO, f"netlink: expected an acknowledgement, found a message of type {answered}")
        if code := -_CODE.unpack_from(answer, _HEADER.size)[0]:
            raise OSError(code, os.strerror(code))


def _attribute(kind: int, value: bytes) -> bytes:
    """An attribute, padded to a multiple of four bytes."""
    length = _ATTRIBUTE.size + len(value)
    return _ATTRIBUTE.pack(length, kind) + value + bytes(-length % 4)


def _number(kind: int, value: int) -> bytes:
    return _attribute(kind, _NUMBER.pack(value))


def _text(kind: int, value: str) -> bytes:
    return _attribute(kind, value.encode() + b"\0")
