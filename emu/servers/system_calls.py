"""Sockets that no namespace separates are closed to an isolated server: a filter of system calls refuses them.

A net namespace separates the internet's sockets, and those of local processes. Others, such as AF_VSOCK, lead from a
virtual machine to its host whatever the namespace. io_uring could make sockets past the filter, so it is not there.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from typing import NamedTuple

from . import linux

FAMILIES = (0, 1, 2, 10, 16, 17, 38)
"""The families of sockets that stay: unspecified, local, IPv4, IPv6, netlink, packets, and the kernel's
cryptography.
"""
_SET_FILTER, _ALLOW_SPECULATION = 1, 4
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _AND, _RETURN = 0x20, 0x15, 0x54, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_X32 = 0x40000000
"""x86-64's calls with pointers of 32 bits have this bit in their number."""


class _Machine(NamedTuple):
    """Numbers of Linux on a kind of processor."""

    architecture: int
    seccomp: int
    socket: int
    io_uring_setup: int
    other: int
    """The architecture of programs of 32 bits."""
    other_socket: int
    other_many: int
    """socketcall(2), which hides its arguments; 0: there is none."""


_MACHINES = {
    "x86_64": _Machine(0xC000003E, 317, 41, 425, 0x40000003, 359, 102),
    "aarch64": _Machine(0xC00000B7, 277, 198, 425, 0x40000028, 281, 102),
}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def close_other_sockets() -> None:
    """Sets the filter for this process, which may administer its user namespace, and for all that it starts. Where the
    kernel has no such filters everything stays open, as on an unknown processor.
    """
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return
    code = _filter(machine)
    buffer = ctypes.create_string_buffer(code)
    program = _Program(len(code) // 8, ctypes.cast(buffer, ctypes.c_void_p).value)
    # Without the flag older kernels would slow all code of the process down.
    linux.system_call(machine.seccomp, _SET_FILTER, _ALLOW_SPECULATION, ctypes.byref(program))


def _filter(machine: _Machine) -> bytes:
    """Returns instructions of classic BPF. Jumps are counted from the next instruction."""
    refused = [_ERRNO | errno.EAFNOSUPPORT, _ERRNO | errno.ENOSYS]
    check = [(_LOAD, 0, 0, _FIRST_ARGUMENT_AT)]
    check += [(_EQUAL, len(FAMILIES) - 1 - at + 1, 0, family) for at, family in enumerate(FAMILIES)]
    check += [(_RETURN, 0, 0, refused[0]), (_RETURN, 0, 0, _ALLOW)]
    # Native calls, six instructions for those of 32 bits, then the family, which both come to.
    native = [
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AND, 0, 0, ~_X32 & 0xFFFFFFFF),
        (_EQUAL, 0, 1, machine.io_uring_setup),
        (_RETURN, 0, 0, refused[1]),
        (_EQUAL, 1 + 6, 0, machine.socket),
        (_RETURN, 0, 0, _ALLOW),
    ]
    other = [
        (_LOAD, 0, 0, _NUMBER_AT),
        (_EQUAL, 1, 0, machine.io_uring_setup),
        (_EQUAL, 0, 1, machine.other_many),
        (_RETURN, 0, 0, refused[1]),
        (_EQUAL, 1, 0, machine.other_socket),
        (_RETURN, 0, 0, _ALLOW),
    ]
    start = [(_LOAD, 0, 0, _ARCHITECTURE_AT), (_EQUAL, 0, len(native), machine.architecture)]
    return b"".join(struct.pack("HBBI", *one) for one in (*start, *native, *other, *check))


def protect_memory() -> None:
    """Keeps processes of the same user, such as a server's ranks, from reading or writing this process's memory, and
    from taking its descriptors.
    """
    linux.set_dumpable(False)


def share_memory() -> None:
    """Lets debuggers and /proc look into a process that a server has forked, as into any other."""
    if os.getpid() != 1:
        linux.set_dumpable(True)
