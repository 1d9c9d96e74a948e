"""The kernel does what is asked of it by netlink: interfaces are there, joined, up, and have their addresses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from emu.contract import namespaces

PROGRAM = """\
import errno, os, socket, sys
from emu.contract import namespaces
from phantora_async.launch.netlink import Netlink

try:
    namespaces.unshare(namespaces.USER | namespaces.NET, "namespaces")
except OSError as error:
    sys.exit(f"no namespaces: {error}")
outer = namespaces.own("net")
namespaces.unshare(namespaces.NET, "a net namespace")
inner = namespaces.own("net")
namespaces.join(outer, namespaces.NET, "the outer one")
with Netlink() as kernel:
    kernel.add_bridge("bridge", 9000)
    kernel.add_pair("left", 9000, "right", inner)
    kernel.set_master("left", "bridge")
    kernel.set_up("bridge")
    kernel.set_up("left")
    try:
        kernel.add_bridge("bridge", 9000)
    except OSError as error:
        print("refused", errno.errorcode[error.errno])
    print("outer", sorted(name for _, name in socket.if_nameindex()))
namespaces.join(inner, namespaces.NET, "the inner one")
with Netlink() as kernel:
    kernel.set_up("lo")
    kernel.add_address("right", "10.77.0.1", 16)
    kernel.set_up("right")
    print("inner", sorted(name for _, name in socket.if_nameindex()))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
    probe.connect(("10.77.3.4", 9))  # no packet is sent: the kernel chooses the address by its routes
    print("from", probe.getsockname()[0])
with socket.socket() as listener, socket.socket() as other:
    listener.bind(("10.77.0.1", 0))
    listener.listen()
    other.connect(listener.getsockname())
    print("connected", other.getpeername()[0])
"""


def test_interfaces_are_made_joined_and_given_addresses() -> None:
    root = Path(namespaces.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=root, capture_output=True, text=True, check=False, timeout=60
    )
    if "no namespaces" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "refused EEXIST",
        "outer ['bridge', 'left', 'lo']",
        "inner ['lo', 'right']",
        "from 10.77.0.1",
        "connected 10.77.0.1",
    ]


def test_the_process_that_joins_networks_imports_the_standard_library_alone() -> None:
    root = Path(namespaces.__file__).parents[2]
    program = f"import sys; sys.path.append({str(root)!r}); import phantora_async.launch.server_network"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
