"""Files by which programs control the kernel: a server, also root's, reads them and changes nothing.

/proc is the server's own, of its pid namespace; only the entries of its processes can be written. /sys is that of its
net namespace. /dev has the devices that every program needs. Control groups are this machine's, read-only.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from ..contract import isolation
from . import linux

_GROUPS = "/sys/fs/cgroup"
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_GROUP_NAMESPACES = Path("/proc/sys/user/max_cgroup_namespaces")
_CONTROL = frozenset(
    {
        "binder",
        "binfmt_misc",
        "bpf",
        "cgroup",
        "cgroup2",
        "configfs",
        "debugfs",
        "devtmpfs",
        "efivarfs",
        "fusectl",
        "nfsd",
        "proc",
        "pstore",
        "resctrl",
        "rpc_pipefs",
        "securityfs",
        "selinuxfs",
        "smackfs",
        "sysfs",
        "tracefs",
    }
)
"""Names of file systems that have such files, wherever they are mounted."""


def mount_devices() -> None:
    """Mounts a /dev of the server's own, with an empty /dev/shm. Raises OSError."""
    links = {entry.name: os.readlink(entry) for entry in os.scandir("/dev") if entry.is_symlink()}
    kept = {
        name: os.open(f"/dev/{name}", os.O_PATH | os.O_CLOEXEC) for name in _DEVICES if os.path.exists(f"/dev/{name}")
    }
    try:
        linux.mount("tmpfs", "/dev", "tmpfs", linux.NO_SETUID, "mode=755")
        for name, descriptor in kept.items():
            os.close(os.open(f"/dev/{name}", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC))
            linux.mount(f"/proc/self/fd/{descriptor}", f"/dev/{name}", None, linux.BIND)
            linux.make_read_only(f"/dev/{name}")  # its mode and owner: it can be written to
    finally:
        for descriptor in kept.values():
            os.close(descriptor)
    for name, target in links.items():
        os.symlink(target, f"/dev/{name}")
    os.mkdir("/dev/shm")
    os.mkdir("/dev/pts")
    linux.mount("devpts", "/dev/pts", "devpts", linux.NO_SETUID | linux.NO_EXEC, "newinstance,ptmxmode=0666,mode=620")
    os.symlink("pts/ptmx", "/dev/ptmx")


def mount_sys() -> None:
    """Mounts /sys, which shows the interfaces of the net namespace in which it was mounted. Where a container hides
    parts of /sys the kernel does not permit another mount of it; then it shows this machine's.
    """
    with contextlib.suppress(OSError):
        groups = os.open(_GROUPS, os.O_PATH | os.O_CLOEXEC)
        try:
            linux.mount("sysfs", "/sys", "sysfs", linux.NO_SETUID | linux.NO_DEVICES | linux.NO_EXEC | linux.READ_ONLY)
            linux.mount(f"/proc/self/fd/{groups}", _GROUPS, None, linux.BIND | linux.RECURSIVE)
        finally:
            os.close(groups)


def mount_proc() -> None:
    """Mounts the server's own /proc. Called in the first process of a new pid namespace. Raises OSError."""
    linux.mount("proc", "/proc", "proc", linux.NO_SETUID | linux.NO_DEVICES | linux.NO_EXEC)


def make_read_only() -> None:
    """Makes these files read-only, after all other mounts. Raises OSError."""
    # A process with a cgroup namespace of its own could mount the control groups anew.
    with contextlib.suppress(FileNotFoundError):
        _GROUP_NAMESPACES.write_text("0")
    for path in _writable_in_proc():
        linux.mount(path, path, None, linux.BIND | linux.RECURSIVE)
        linux.make_read_only(path)
    for path, kind in _mounts():
        if path == "/proc" or isolation.is_below(path, "/dev"):
            continue  # the server's own
        if kind in _CONTROL or any(isolation.is_below(path, folder) for folder in ("/proc", "/sys")):
            try:
                linux.make_read_only(path, linux.NO_DEVICES if kind == "devtmpfs" else 0)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ENOENT, errno.ENOTDIR):  # another mount hides it
                    raise


def _writable_in_proc() -> Iterator[str]:
    """Yields the writable files, and the folders, of /proc that belong to no process."""
    for entry in sorted(os.scandir("/proc"), key=lambda entry: entry.name):
        if entry.name.isdigit() or entry.is_symlink():
            continue
        if entry.is_dir() or entry.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
            yield entry.path


def _mounts() -> list[tuple[str, str]]:
    """Returns for each mount where it is, and the kind of its file system."""
    found = []
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        before, _, after = line.partition(b" - ")
        path = before.split()[4].decode("unicode_escape").encode("latin-1")  # a space is \040
        found.append((os.fsdecode(path), after.split()[0].decode()))
    return found
