"""The part of this machine's files that a server sees.

/tmp and /dev/shm are its own and empty. What the run needs of /tmp stays visible at its path: the working directory,
the script, the interpreter and its packages, paths in the command's arguments and in the environment. The system's and
the interpreter's folders are read-only, and so is the user's home but for what the run needs of it: the working
directory, the script's folder, those that arguments name, caches, and what the user permits. A script can leave nothing
there that a later program would execute. Everything else is this machine's.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .. import smi
from ..contract import installed, isolation
from ..contract.job import Job, RunPlace
from . import kernel_files, linux

READ_ONLY = ("/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/sbin", "/usr")
_NOT_NEEDED = ("OLDPWD", "SSH_AUTH_SOCK", "TMPDIR", "TEMP", "TMP", "XDG_RUNTIME_DIR")
"""Environment variables whose paths a server does without."""


@dataclass(frozen=True, slots=True)
class View:
    """A server's files, apart from what is private to it. All paths are real paths."""

    kept: tuple[str, ...]
    """Paths below /tmp or below a read-only folder that are the same as outside."""
    read_only: tuple[str, ...]
    runtime_dir: str
    """The runtime folder: read-only but for the folders of `isolation.ranks_folder` and `isolation.server_folder`."""
    libraries: str
    """The folder in which the dynamic linker finds our libraries. It is read-only: it may be a warm interpreter's,
    which later runs use, too.
    """
    gpu_tools: tuple[str, ...]
    """Programs of this machine that would tell of its own GPUs: servers have the emulated one in their place, for
    scripts that name it by its path.
    """
    scripts: tuple[str, ...]
    """Python scripts beside the interpreter. Servers have copies of `isolation.scripts_folder` in their places."""


def view(job: Job, libraries: str) -> View:
    """Returns what the servers of this job see. Called in the forker, whose paths are the script's."""
    own = [os.path.realpath(path) for path in (job.runtime_dir, job.run_dir)]
    cwd = os.path.realpath(os.getcwd())
    used = [cwd, job.hook, sys.executable, sys.prefix, sys.base_prefix, *sys.path, *_named(job.arguments, os.environ)]
    if not job.module:
        used.append(job.script)
    libraries = os.path.realpath(libraries)
    homes = isolation.homes(os.environ)
    _make_caches(homes)
    outputs, _ = isolation.outputs((*job.arguments, *([] if job.module else [job.script])), os.environ)
    written = [cwd, *outputs, *isolation.caches(os.environ), *job.writable]
    kept = [
        *own,
        *written,
        *filter(None, [libraries]),
        *filter(None, map(isolation.entry_of_tmp, (*used, *job.writable))),
    ]
    folders = (*READ_ONLY, sys.prefix, sys.base_prefix, os.path.dirname(os.path.dirname(job.hook)))
    read_only = {os.path.realpath(folder) for folder in folders if os.path.isdir(folder)} - {"/"}
    read_only |= {home for home in homes if home != cwd}.union(*(_hidden(home) for home in homes if home == cwd))
    shadowed = (*map(os.path.realpath, isolation.PRIVATE), *read_only)
    return View(
        kept=tuple(sorted({path for path in kept if any(isolation.is_below(path, folder) for folder in shadowed)})),
        read_only=tuple(sorted(read_only)),
        runtime_dir=own[0],
        libraries=libraries,
        gpu_tools=tuple(sorted({os.path.realpath(path) for path in filter(None, map(shutil.which, smi.PATHS))})),
        scripts=tuple(os.path.join(os.path.dirname(sys.executable), name) for name in _copied(job.runtime_dir)),
    )


def _copied(runtime_dir: str) -> list[str]:
    """Returns the names of the scripts that have copies."""
    folder = isolation.scripts_folder(runtime_dir)
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def _make_caches(homes: Iterable[str]) -> None:
    """Makes the caches that servers could not make: the first one of each home folder, and those that variables
    name.
    """
    first = [os.path.join(home, isolation.CACHES[0]) for home in homes]
    for folder in (*first, *isolation.named_caches(os.environ)):
        with contextlib.suppress(OSError):  # its disk is full, or it is not the user's
            os.makedirs(folder, 0o700, exist_ok=True)


def _hidden(home: str) -> set[str]:
    """Returns, where the home folder itself is the working directory, the files in it that programs read when they
    start.
    """
    with os.scandir(home) as entries:
        return {
            entry.path
            for entry in entries
            if entry.name.startswith(".")
            and entry.name not in isolation.CACHES
            and (entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False))
        }


def write_shared_files(job: RunPlace, network: str) -> None:
    """Writes the files that all servers read, in the runtime folder."""
    with open(f"{job.runtime_dir}/hosts", "w") as file:
        file.write(isolation.hosts_file(len(job.servers), network))


def enter(seen: View, server: int, own_network: bool) -> None:
    """Gives the server its files. Called in the server, the first process of a new pid namespace, in a new mount
    namespace. Raises OSError.
    """
    cwd, hostname = os.getcwd(), isolation.host_name(server)
    linux.mount("none", "/", None, linux.RECURSIVE | linux.PRIVATE)
    kept = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in seen.kept}
    try:
        kernel_files.mount_devices()
        for folder in isolation.PRIVATE:
            linux.mount("tmpfs", folder, "tmpfs", linux.NO_SETUID | linux.NO_DEVICES, "mode=1777")
        for path in sorted({*kept, *seen.read_only}):  # a folder comes before what is in it, whose rule holds there
            if path in kept:
                _make_mount_point(path, kept[path])
                linux.mount(f"/proc/self/fd/{kept[path]}", path, None, linux.BIND | linux.RECURSIVE)
            elif os.path.exists(path):  # else it is of a folder for temporary files, and not needed
                linux.mount(path, path, None, linux.BIND | linux.RECURSIVE)
                linux.make_read_only(path)
        _identify(seen.runtime_dir, hostname)
        _protect(seen.runtime_dir, server)
        linux.mount(seen.libraries, seen.libraries, None, linux.BIND)
        linux.make_read_only(seen.libraries)
        for path in filter(os.path.exists, seen.gpu_tools):
            linux.mount(str(installed.PYTHON_STUB), path, None, linux.BIND)
            linux.make_read_only(path)
        for path in seen.scripts:
            copy = os.path.join(isolation.scripts_folder(seen.runtime_dir), os.path.basename(path))
            linux.mount(copy, path, None, linux.BIND)
            linux.make_read_only(path)
    finally:
        for descriptor in kept.values():
            os.close(descriptor)
    if own_network:
        kernel_files.mount_sys()
    kernel_files.mount_proc()
    kernel_files.make_read_only()
    os.chdir(cwd)


def _named(arguments: Iterable[str], environment: Mapping[str, str]) -> list[str]:
    """Returns the paths that the command line and the environment name."""
    values = (value for name, value in environment.items() if name not in _NOT_NEEDED)
    return isolation.paths([*arguments, *(part for value in values for part in value.split(":"))])


def _identify(runtime_dir: str, hostname: str) -> None:
    """Mounts the files with the server's name and with the names of all servers in place of those in /etc."""
    os_file = f"{runtime_dir}/{hostname}"
    with open(os_file, "w") as file:
        file.write(f"{hostname}\n")
    for source, target in ((f"{runtime_dir}/hosts", "/etc/hosts"), (os_file, "/etc/hostname")):
        if os.path.exists(target):
            linux.mount(source, target, None, linux.BIND)
            linux.make_read_only(target)


def _protect(runtime_dir: str, server: int) -> None:
    """Makes the runtime folder read-only but for the ranks' and the server's folders: ranks read what the run's other
    processes write there, such as costs and the names of servers.
    """
    writable = (isolation.ranks_folder(runtime_dir), isolation.server_folder(runtime_dir, server))
    linux.mount(runtime_dir, runtime_dir, None, linux.BIND | linux.RECURSIVE)
    for folder in writable:
        linux.mount(folder, folder, None, linux.BIND)
    linux.make_read_only(runtime_dir)


def _make_mount_point(path: str, descriptor: int) -> None:
    if os.path.lexists(path):
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.isdir(f"/proc/self/fd/{descriptor}"):
        os.mkdir(path)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC))
