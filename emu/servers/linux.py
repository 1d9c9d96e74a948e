"""Linux's calls for mounts and capabilities, which Python lacks."""

from __future__ import annotations

import ctypes
import os

READ_ONLY = 1
NO_SETUID = 2
NO_DEVICES = 4
NO_EXEC = 8
REMOUNT = 32
BIND = 4096
RECURSIVE = 16384
PRIVATE = 1 << 18
_KEPT_FLAGS = ((2, 2), (4, 4), (8, 8), (1024, 1024), (2048, 2048), (4096, 1 << 21))
"""Flags of a mount that stay: for each its bit in statvfs(3) and its bit in mount(2). They are nosuid, nodev, noexec,
noatime, nodiratime, relatime.
"""

_CAPABILITY_VERSION = 0x20080522
_SET_DUMPABLE = 4
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """Calls mount(2). Raises OSError."""
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    result = _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])
    _check(result, f"cannot mount {kind or source} on {target}")


def make_read_only(target: str, flags: int = 0) -> None:
    """Makes the mount at `target` read-only, with these flags, too. Its other flags may be locked, so they stay."""
    has = os.statvfs(target).f_flag
    kept = sum(mount_flag for statvfs_flag, mount_flag in _KEPT_FLAGS if has & statvfs_flag)
    mount("none", target, None, REMOUNT | BIND | READ_ONLY | kept | flags)


def drop_capabilities() -> None:
    """Takes all capabilities from the process."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    _check(_libc.capset(header, (ctypes.c_uint32 * 6)()), "cannot drop capabilities")


def system_call(number: int, *arguments: object) -> int:
    """Calls syscall(2). Returns its result: -1 if the kernel refuses it or does not have it."""
    return int(_libc.syscall(ctypes.c_long(number), *arguments))


def set_dumpable(value: bool) -> None:
    """Says whether processes of the same user may look into this one."""
    _check(_libc.prctl(_SET_DUMPABLE, ctypes.c_ulong(value), 0, 0, 0), "prctl")
