"""Who asks for the time: code whose timeouts guard real waits gets real time, everybody else virtual time."""

from __future__ import annotations

import enum
import os
import threading
import types

from ..interpreter.script import is_packaged

# Callers that wait for real things. Packages stand for all of their modules.
REAL_TIME_MODULES = frozenset(
    [
        "_pyio",
        "aiohttp",
        "anyio",
        "asyncio",
        "billiard",
        "botocore",
        "concurrent",
        "filelock",
        "fsspec",
        "grpc",
        "http",
        "httpcore",
        "httpx",
        "huggingface_hub",
        "joblib",
        "multiprocess",
        "multiprocessing",
        "pexpect",
        "portalocker",
        "psutil",
        "queue",
        "ray",
        "requests",
        "selectors",
        "signal",
        "socket",
        "socketserver",
        "ssl",
        "subprocess",
        "tempfile",
        "threading",
        "tornado",
        "triton",
        "urllib",
        "urllib3",
        "uvloop",
        "wandb",
        "zmq",
        "torch._dynamo",
        "torch._inductor",
        "torch.distributed",
        "torch.multiprocessing",
        "torch.utils.data",
        "torchdata",
        "trio",
    ]
)
LAST_KNOWN_MODULES = frozenset({"logging"})
"""Time stamps are not worth a wait for the other ranks."""


class Policy(enum.Enum):
    """How a calling module is served."""

    REAL = enum.auto()
    LAST_KNOWN = enum.auto()
    VIRTUAL = enum.auto()


def policy_of(module: str | None) -> Policy:
    name = module or ""
    while name:
        if name in REAL_TIME_MODULES:
            return Policy.REAL
        if name in LAST_KNOWN_MODULES:
            return Policy.LAST_KNOWN
        name = name.rpartition(".")[0]
    return Policy.VIRTUAL


_STDLIB = os.path.dirname(os.__file__)


def is_of_script(frame: types.FrameType | None) -> bool:
    """Is the code that called the standard library the user's own, and not an installed package's?"""
    while frame is not None:
        path = frame.f_code.co_filename
        if is_packaged(path):
            return False
        if not path.startswith((_STDLIB, "<frozen")):
            return True
        frame = frame.f_back
    return False


def is_background(thread: int) -> bool:
    """A daemon thread of Python's; autograd's threads and other program threads are not."""
    known = threading._active.get(thread)  # type: ignore[attr-defined]
    return known is not None and known.daemon and not isinstance(known, threading._DummyThread)
