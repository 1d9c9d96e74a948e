"""Builds the network between isolated servers: a process that joins their net namespaces by a bridge, and ends.

The forker sends it the namespaces: the run's user namespace, the run's net namespace, a net namespace for each server.
It is a process of its own because it enters them, and because the ranks' interpreter need not have `pyroute2`.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import Any

from emu.contract import isolation, namespaces

MTU = 65_000
"""The largest MTU that a virtual link permits: the bytes are only copied between processes."""
IPV6_OFF = Path(f"/proc/sys/net/ipv6/conf/{isolation.INTERFACE}/disable_ipv6")
"""The file that turns off IPv6: an interface could not use its IPv6 address before it has looked for duplicates, which
takes seconds.
"""


def main(fileno: int, servers: list[int]) -> None:
    """The main function of the process: answers `READY`, or the reason why it failed. `servers`: the numbers of those
    whose namespaces it is sent.
    """
    end = socket.socket(fileno=fileno)
    error, received = namespaces.receive(end)
    if error:
        return  # the forker has ended, or has reported why there are no namespaces
    answer = namespaces.READY
    try:
        _build(received[0], received[1], dict(zip(servers, received[2:], strict=True)))
    except ImportError as missing:
        answer = f"{missing.name} is not installed beside phantora-async".encode()
    except Exception as error:
        answer = f"cannot join the servers' networks: {error}".encode()
    with contextlib.suppress(BrokenPipeError):  # the forker has ended
        end.send(answer)


def _build(user: int, bridge_network: int, networks: dict[int, int]) -> None:
    from pyroute2 import IPRoute

    namespaces.join(user, namespaces.USER, "the run's user namespace")
    namespaces.join(bridge_network, namespaces.NET, "the run's net namespace")
    with IPRoute() as ip:
        ip.link("add", ifname=isolation.BRIDGE, kind="bridge", mtu=MTU)
        bridge = _index(ip, isolation.BRIDGE)
        ip.link("set", index=bridge, state="up")
        for server, network in networks.items():
            name = f"server{server}"
            peer = {"ifname": isolation.INTERFACE, "net_ns_fd": network, "mtu": MTU}
            ip.link("add", ifname=name, kind="veth", mtu=MTU, peer=peer)
            ip.link("set", index=_index(ip, name), master=bridge, state="up")
    for server, network in networks.items():
        namespaces.join(network, namespaces.NET, "a server's net namespace")
        if IPV6_OFF.exists():
            IPV6_OFF.write_text("1")
        with IPRoute() as ip:
            ip.link("set", index=_index(ip, "lo"), state="up")
            interface = _index(ip, isolation.INTERFACE)
            ip.addr("add", index=interface, address=isolation.address(server), prefixlen=isolation.PREFIX_LENGTH)
            ip.link("set", index=interface, state="up")
        os.close(network)


def _index(ip: Any, name: str) -> int:
    (index,) = ip.link_lookup(ifname=name)
    return int(index)
