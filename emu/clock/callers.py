"""Decides which time a caller gets: real time if its timeouts guard real waits, virtual time otherwise."""

from __future__ import annotations

import enum
import types

from ..interpreter.code_owner import Owner, owner_of

REAL_TIME_MODULES = frozenset(
    (
        # threads, processes and sockets, in the standard library
        "concurrent",
        "http",
        "multiprocessing",
        "socketserver",
        "subprocess",
        "threading",
        "urllib",
        # other machines
        "aiohttp",
        "botocore",
        "fsspec",
        "grpc",
        "httpcore",
        "httpx",
        "huggingface_hub",
        "requests",
        "tornado",
        "trio",
        "urllib3",
        "wandb",
        "zmq",
        # other processes and their locks
        "billiard",
        "filelock",
        "joblib",
        "multiprocess",
        "pexpect",
        "portalocker",
        "psutil",
        "ray",
        # compiling, rendezvous and data loading of PyTorch's
        "torch._dynamo",
        "torch._inductor",
        "torch.distributed",
        "torch.multiprocessing",
        "torchdata",
        "triton",
    )
)
"""Modules that wait for sockets, files, processes or threads, and ask the time to do so. A package stands for all of
its modules.

In virtual time such a wait would go wrong: `time.sleep` between two looks takes no real time, so the timeout is over
before anything can have happened. A module belongs here only if it calls functions of `time` itself, since the caller
decides which time it gets: `socket` and `selectors`, which wait in C, do not. A test looks at all that are installed.
"""
WAIT_MODULES = frozenset({"asyncio", "queue"})
"""Modules of the standard library that compute what is left of a timeout before they wait: real time, but for the main
thread, on which virtual time passes when such a wait ends by its timeout.
"""
LAST_KNOWN_MODULES = frozenset({"logging"})
"""Modules whose time stamps need no exact time, so that a log line does not make the rank wait for the other ranks."""
PROGRESS_MODULES = frozenset({"datasets", "rich", "tqdm"})
"""Modules that show how fast a loop gets on, and look at the clock in each turn. Turns that use no GPU, such as over
files of a data set, need not wait for ranks that wait for a lock of this one.
"""


class TimeSource(enum.Enum):
    """The source of the time that a caller gets."""

    REAL = enum.auto()
    """The machine's clock."""
    WAITS = enum.auto()
    """The machine's clock; on the main thread one that stands still between waits (`wait_clock`)."""
    LAST_KNOWN = enum.auto()
    """The virtual time that this process has learned last; nobody is asked."""
    PROGRESS = enum.auto()
    """The virtual time that this process has learned last, unless the rank has called something since."""
    VIRTUAL = enum.auto()
    """The coordinator: virtual time now."""


def time_source_of(module: str | None) -> TimeSource:
    """Returns the source for the calling module's full name; None if it has none."""
    name = module or ""
    while name:
        if name in REAL_TIME_MODULES:
            return TimeSource.REAL
        if name in WAIT_MODULES:
            return TimeSource.WAITS
        if name in LAST_KNOWN_MODULES:
            return TimeSource.LAST_KNOWN
        if name in PROGRESS_MODULES:
            return TimeSource.PROGRESS
        name = name.rpartition(".")[0]
    return TimeSource.VIRTUAL


def is_called_by_user(frame: types.FrameType | None) -> bool:
    """Tells whether the user's own code, and not an installed package's, called the standard library's function of this
    frame.
    """
    while frame is not None:
        owner = owner_of(frame.f_code.co_filename)
        if owner in (Owner.USER, Owner.GENERATED):
            return True
        if owner is Owner.PACKAGE:
            return False
        frame = frame.f_back
    return False
