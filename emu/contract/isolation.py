"""Levels of isolation, and the names and addresses of servers: how far emulated servers are apart from each other and
from this machine.
"""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Iterable, Mapping

LEVELS = ("auto", "full", "none")
"""full: a server is a process in its own user, mount, uts, pid, ipc and net namespaces. none: servers are plain
processes that share this machine's. auto: full where the kernel permits it, else none.
"""
NETWORKS = ("private", "host")
"""private: a server has its own network, and reaches the other servers of its run only. host: this machine's."""
PRIVATE = ("/tmp", "/dev/shm")
"""The folders of which an isolated server has its own. The part of /tmp that the run needs is shared, see
`emu.servers`.
"""
CACHES = (".cache", ".triton", ".nv", ".keras")
"""Folders of a home folder that hold only what can be made again; among them is phantora-async's own cache. They, and
what CACHE_VARIABLES name, stay writable for isolated servers, which only read the rest of the home folder.
"""
CACHE_VARIABLES = (
    "CUDA_CACHE_PATH",
    "HF_DATASETS_CACHE",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_MODULES_CACHE",
    "MODELSCOPE_CACHE",
    "MPLCONFIGDIR",
    "NUMBA_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR",
    "TORCH_HOME",
    "TRANSFORMERS_CACHE",
    "TRITON_CACHE_DIR",
    "TRITON_HOME",
    "VLLM_CACHE_ROOT",
    "WANDB_CACHE_DIR",
    "WANDB_DATA_DIR",
    "WANDB_DIR",
    "XDG_CACHE_HOME",
)
BRIDGE = "phantora0"
"""Joins the servers of a run, in the run's own net namespace."""
INTERFACE = "eth0"
"""A server's network interface."""
PREFIX_LENGTH = 16
MAX_SERVERS = 65_000
"""The most servers of a run: its subnet has no more addresses."""
LOOPBACK = "127.0.0.1"


def host_name(server: int) -> str:
    """Returns an isolated server's name, such as `node000`."""
    return f"node{server:03}"


def ranks_folder(runtime_dir: str) -> str:
    """Returns the folder in the runtime folder that ranks of all servers may write. They only read the rest of it."""
    return os.path.join(runtime_dir, "ranks")


def scripts_folder(runtime_dir: str) -> str:
    """Returns the folder of the copies of scripts that isolated servers have in the originals' places."""
    return f"{runtime_dir}/scripts"


def server_folder(runtime_dir: str, server: int) -> str:
    """Returns the folder in the runtime folder that only this server writes."""
    return os.path.join(runtime_dir, f"server{server}")


def address(server: int) -> str:
    """An isolated server's address in the run's own network, 10.77.0.0/16."""
    high, low = divmod(server + 1, 256)
    return f"10.77.{high}.{low}"


def hosts_file(servers: int, network: str) -> str:
    """Returns the servers' /etc/hosts. With this machine's network, all of them are this machine.

    A socket that serves IPv4 and IPv6 shows IPv4 addresses in the form of IPv6. These have names of their own: without
    them a name server would be asked, and with the servers' names the servers would seem to have two addresses.
    """
    lines = [
        f"{LOOPBACK}\tlocalhost",
        f"::ffff:{LOOPBACK}\tlocalhost.ipv4",
        "::1\tlocalhost ip6-localhost ip6-loopback",
    ]
    for server in range(servers):
        at = address(server) if network == "private" else LOOPBACK
        lines.append(f"{at}\t{host_name(server)}")
        lines.append(f"::ffff:{at}\t{host_name(server)}.ipv4")
    return "\n".join(lines) + "\n"


def paths(texts: Iterable[str]) -> list[str]:
    """Yields the paths that texts consist of or end with: `/a` of `/a` and of `--option=/a`."""
    return [path for text in texts if (path := text.rpartition("=")[2]).startswith("/")]


def entry_of_tmp(path: str) -> str | None:
    """Returns the entry of /tmp that holds `path`; None if `path` is elsewhere, or there is no such entry."""
    real, tmp = os.path.realpath(path), os.path.realpath(PRIVATE[0])
    if real == tmp or not is_below(real, tmp):
        return None
    entry = os.path.join(tmp, os.path.relpath(real, tmp).partition("/")[0])
    return entry if os.path.exists(entry) else None


def private_paths(arguments: Iterable[str]) -> list[str]:
    """Returns paths that arguments of a command name, where files would be private to each server."""
    private = [os.path.realpath(folder) for folder in PRIVATE]
    found = [os.path.realpath(path) for path in paths(arguments)]
    return [path for path in found if any(is_below(path, folder) for folder in private) and entry_of_tmp(path) is None]


def homes(environment: Mapping[str, str]) -> list[str]:
    """Returns the real paths of the user's home folder: that of $HOME, and that of the system's list of users."""
    named = [environment.get("HOME", "")]
    with contextlib.suppress(KeyError):  # a user of a container that has no name
        named.append(pwd.getpwuid(os.getuid()).pw_dir)
    found = {os.path.realpath(folder) for folder in named if folder.startswith("/") and os.path.isdir(folder)}
    return sorted(found - {"/"})


def named_caches(environment: Mapping[str, str]) -> list[str]:
    """Returns the caches that environment variables name."""
    return [environment[name] for name in CACHE_VARIABLES if environment.get(name, "").startswith("/")]


def caches(environment: Mapping[str, str]) -> list[str]:
    """Returns the real paths of caches below home folders that exist."""
    named = named_caches(environment) + [os.path.join(home, name) for home in homes(environment) for name in CACHES]
    return [path for path in map(os.path.realpath, named) if os.path.isdir(path)]


def outputs(arguments: Iterable[str], environment: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Returns folders below a home folder that arguments of a command name, themselves or by something in them, which
    exists or does not yet; and paths that nobody can make, because only the home folder itself could hold them. What
    begins with a dot there, such as ~/.ssh, is not named for being written.
    """
    folders, impossible = [], []
    for text in arguments:
        named = os.path.expanduser(text.rpartition("=")[2])
        if not named.startswith(("/", "../")):
            continue
        path = os.path.realpath(named)
        for home in homes(environment):
            if path == home or not is_below(path, home) or os.path.relpath(path, home).startswith("."):
                continue
            folder = path
            while not os.path.isdir(folder):
                folder = os.path.dirname(folder)
            if folder != home:
                folders.append(folder)
            elif not os.path.exists(path):
                impossible.append(path)
    return folders, impossible


def is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
