"""Network interfaces are made by messages to the kernel, here in net namespaces of a process of their own."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BEGIN = """
import fcntl, json, os, socket, struct, sys
sys.path.append(sys.argv[1])
from emu.contract import namespaces
from phantora_async.launch.netlink import Interfaces

def ask(request, name, form, at=16):  # netdevice(7)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        answer = fcntl.ioctl(end, request, struct.pack("16s24x", name.encode()))
    return struct.unpack_from(form, answer, at)

def mtu(name):
    return ask(0x8921, name, "i")[0]

def is_on(name):
    return bool(ask(0x8913, name, "H")[0] & 1)

try:
    namespaces.unshare(namespaces.USER | namespaces.NET, "a net namespace")
except OSError as error:
    print(json.dumps({"unusable": str(error)}))
    sys.exit()
here = namespaces.own("net")
"""


def result_of(program: str) -> dict[str, Any]:
    command = [sys.executable, "-IS", "-c", BEGIN + program, str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    if "unusable" in result:
        pytest.skip(result["unusable"])
    return result


def test_two_namespaces_are_joined_by_a_virtual_link() -> None:
    result = result_of("""
namespaces.unshare(namespaces.NET, "another net namespace")
there = namespaces.own("net")
namespaces.join(here, namespaces.NET, "the first one")
with Interfaces() as interfaces:
    interfaces.add_bridge("bridge", 9000)
    interfaces.turn_on("bridge")
    interfaces.add_pair("port", 9000, "card", there)
    interfaces.turn_on("port", "bridge")
first = {name: [mtu(name), is_on(name)] for name in ("bridge", "port")}
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:  # SIOCBRDELIF: the port is one of the bridge
    fcntl.ioctl(end, 0x89A3, struct.pack("16si20x", b"bridge", socket.if_nametoindex("port")))
namespaces.join(there, namespaces.NET, "the second one")
off = is_on("card")
with Interfaces() as interfaces:
    interfaces.add_address("card", "10.77.0.200", 16)
    interfaces.turn_on("card")
address = socket.inet_ntoa(ask(0x8915, "card", "4s", 20)[0])
mask = socket.inet_ntoa(ask(0x891B, "card", "4s", 20)[0])
print(json.dumps({"first": first, "card": [mtu("card"), off, is_on("card")], "address": [address, mask]}))
""")
    assert result == {
        "first": {"bridge": [9000, True], "port": [9000, True]},
        "card": [9000, False, True],
        "address": ["10.77.0.200", "255.255.0.0"],
    }


def test_what_the_kernel_refuses_is_an_error_of_its_kind() -> None:
    result = result_of("""
with Interfaces() as interfaces:
    interfaces.add_bridge("bridge", 1500)
    interfaces.add_address("bridge", "10.77.0.1", 16)
    found = []
    for attempt in (
        lambda: interfaces.add_bridge("bridge", 1500),
        lambda: interfaces.add_bridge("a name that is too long", 1500),
        lambda: interfaces.add_address("bridge", "10.77.0.1", 16),
    ):
        try:
            attempt()
        except OSError as error:
            found.append(error.errno)
    print(json.dumps({"found": found}))
""")
    assert result == {"found": [errno.EEXIST, errno.ERANGE, errno.EEXIST]}
