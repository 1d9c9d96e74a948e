"""The modelled host: what a rank's Python and driver calls cost, as few constants.

A rank's host time is op_ns per ATen op or autograd node, python_op_ns more for each op that a tensor subclass handles
in Python, and call_ns per API call of each kind. docs/costs.md says how the constants were found and how far real
jobs are from them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from profiles.descriptions.catalog import find
from profiles.descriptions.fields import read_toml

# ph_call_kind of the hook, in its order.
CALL_KINDS = ("query", "launch", "memcpy", "event", "sync", "alloc", "library", "nccl")
HOST_FUNCTION_NS = 27_000
"""On an H100 with driver 580, each of 20 empty host functions between empty kernels; a single one took up to 190 us."""


@dataclass(frozen=True, slots=True)
class HostModel:
    name: str
    op_ns: int
    """One ATen op or autograd node, nested ones too: one NVTX range."""
    python_op_ns: int
    """More for an op that Python handles (DTensor): the NVTX ranges named PythonSubclass."""
    call_ns: dict[str, int]
    """One API call, by CALL_KINDS."""
    host_function_ns: int
    """What a host function (cudaLaunchHostFunc) takes of its stream besides its own time, which is not modelled."""
    queue_depth: int
    """Launches that the host may be ahead of the GPU before a launch blocks."""
    scale: float
    """Mode `measured`: real host's CPU time over this machine's, for the same work."""
    path: Path


def load_host(name_or_path: str | os.PathLike[str]) -> HostModel:
    """Reads a shipped host model by name or a user's file by path. Raises UnknownProfile or ProfileError."""
    path = find("host", name_or_path)
    top = read_toml(path)
    calls = top.table("call_ns")
    host = HostModel(
        name=path.stem,
        op_ns=top.integer("op_ns"),
        python_op_ns=top.integer("python_op_ns", 0),
        call_ns={kind: calls.integer(kind) for kind in CALL_KINDS},
        host_function_ns=top.integer("host_function_ns", HOST_FUNCTION_NS),
        queue_depth=top.integer("queue_depth", least=1),
        scale=top.number("scale"),
        path=path,
    )
    top.done()
    return host
