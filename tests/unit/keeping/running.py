"""A keeper for tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from emu.keeping import keeper
from emu.keeping.client import Client


@contextmanager
def running_keeper(runtime_dir: Path) -> Iterator[Client]:
    """A keeper's process, and a client that does not yet ask it."""
    runtime_dir.mkdir(exist_ok=True)
    listener = keeper.listen(str(runtime_dir))
    pid = os.fork()
    if pid == 0:
        try:
            keeper.serve(listener, str(runtime_dir))
        finally:
            os._exit(1)
    listener.close()
    try:
        yield Client(str(runtime_dir))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
