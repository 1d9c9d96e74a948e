"""A keeper for tests."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from emu.keeping import keeper
from emu.keeping.client import Client


@contextmanager
def running_keeper(runtime_dir: Path, most_files: int = 0) -> Iterator[Client]:
    """A keeper's process, and a client that does not yet ask it. `most_files`: that it may have open; 0: as this."""
    runtime_dir.mkdir(exist_ok=True)
    listener = keeper.listen(str(runtime_dir))
    pid = os.fork()
    if pid == 0:
        try:
            if most_files:
                resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
                os.closerange(3, listener.fileno())
                os.closerange(listener.fileno() + 1, 1024)
            keeper.serve(listener, str(runtime_dir))
        finally:
            os._exit(1)
    listener.close()
    try:
        yield Client(str(runtime_dir))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
