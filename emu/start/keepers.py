"""Processes beside the servers that keep what ranks share: weights and shardings, and what is given to the device.

They are forked from the forker, run no program of the user's, and end with the forker.
"""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Callable
from pathlib import Path

from ..contract.definitions.thread_names import KEEPER, PAGES, STORE
from ..contract.job import Job, RunPlace
from ..interpreter.hook_library import Hook
from ..interpreter.hook_library.sources import STORE_SOCKET
from ..keeping import keeper
from ..keeping.client import folder_of
from ..unread import server as pages
from . import processes


def start(job: Job, hook: Hook) -> None:
    """Starts the processes that keep weights and what is given to the device. Called in the forker, while it has a
    single thread. Raises BlockingIOError if it may not fork.
    """
    os.makedirs(folder_of(job.runtime_dir), exist_ok=True)
    if job.share_weights:
        listener = keeper.listen(job.runtime_dir)
        _fork(KEEPER, listener, lambda: keeper.serve(listener, job.runtime_dir))
    one_machine = job.folding is not None or len(job.hosted) == len(job.servers)
    if one_machine:  # else what a rank refers to would be another machine's
        folder = folder_of(job.runtime_dir)
        other = _listen(os.path.join(folder, STORE_SOCKET))
        _fork(STORE, other, lambda: hook.serve_store(other.fileno(), folder))
        hook.open_store(folder)


def start_pages(job: RunPlace, hook: Hook) -> int:
    """Starts the process that fills pages. Called after `start`, when values can be computed, while the forker has a
    single thread. Returns the process's id: ranks cannot go on without it; 0 if there is none. Raises BlockingIOError.
    """
    folder = folder_of(job.runtime_dir)
    if not os.path.exists(os.path.join(folder, STORE_SOCKET)):
        return 0
    listener = _listen(os.path.join(folder, pages.SOCKET))
    pid = _fork(PAGES, listener, lambda: pages.serve(listener, hook))
    hook.open_host_pages(folder)
    return pid


def _listen(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(socket.SOMAXCONN)
    return listener


def _fork(name: str, listener: socket.socket, serve: Callable[[], None]) -> int:
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        try:
            processes.die_with_parent(parent)
            Path("/proc/self/comm").write_text(name)
            processes.close_others({0, 1, 2, listener.fileno()})
            keeper.raise_open_files()
            serve()
        except BaseException:
            traceback.print_exc()  # ranks then keep to themselves what they compute
        finally:
            os._exit(1)
    listener.close()
    return pid
