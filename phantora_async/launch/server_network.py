"""Builds the network between isolated servers: a process that joins their net namespaces by a bridge, and ends.

The forker sends it the namespaces: the run's user namespace, the run's net namespace, a net namespace for each server.
It is a process of its own because it enters them. It imports little, since each run starts one.
"""

from __future__ import annotations

import contextlib
import os
import socket

from emu.contract import isolation, namespaces
from phantora_async.launch.netlink import Interfaces

MTU = 65_000
"""The largest MTU that a virtual link permits: the bytes are only copied between processes."""
IPV6_OFF = f"/proc/sys/net/ipv6/conf/{isolation.INTERFACE}/disable_ipv6"
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
    except Exception as error:
        answer = f"cannot join the servers' networks: {error}".encode()
    with contextlib.suppress(BrokenPipeError):  # the forker has ended
        end.send(answer)


def _build(user: int, bridge_network: int, networks: dict[int, int]) -> None:
    namespaces.join(user, namespaces.USER, "the run's user namespace")
    namespaces.join(bridge_network, namespaces.NET, "the run's net namespace")
    with Interfaces() as interfaces:
        interfaces.add_bridge(isolation.BRIDGE, MTU)
        interfaces.turn_on(isolation.BRIDGE)
        for server, network in networks.items():
            name = f"server{server}"
            interfaces.add_pair(name, MTU, isolation.INTERFACE, network)
            interfaces.turn_on(name, isolation.BRIDGE)
    for server, network in networks.items():
        namespaces.join(network, namespaces.NET, "a server's net namespace")
        if os.path.exists(IPV6_OFF):
            with open(IPV6_OFF, "w") as file:
                file.write("1")
        with Interfaces() as interfaces:
            interfaces.turn_on("lo")
            interfaces.add_address(isolation.INTERFACE, isolation.address(server), isolation.PREFIX_LENGTH)
            interfaces.turn_on(isolation.INTERFACE)
        os.close(network)
