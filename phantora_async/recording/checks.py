"""Checks the numbers of a recording. They are used as indices, sizes and times without further checks, so they are
checked once, where they are read. All functions raise ValueError.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.contract import records
from emu.contract.folding import Folding
from emu.contract.records import NcclKind
from phantora_async.recording.rows import KINDS, WITH_ROW, Call, totals
from phantora_async.virtual_time import Comm
from phantora_async.virtual_time.facts import DTYPE_NBYTES

MOST_NS = 1 << 53
"""The most ns of all rows of one rank together: 104 days."""
MOST = 1 << 31
"""The bound of launches in a segment, and of a device's number: the engine has 32 bits for them."""
MOST_NBYTES = 1 << 58
"""The bound of bytes of a collective, and of a GPU's memory."""
_OPS = frozenset(int(op) for op in NcclKind)
_MOST = {
    "launches": (MOST, "launches of a segment"),
    "since_ns": (MOST_NS, "time for which work must have been complete"),
    "turns": (1 << 32, "turns of a loop"),
    "device": (MOST, "the device of a stream"),
    **dict.fromkeys(("child", "parent", "ended"), (MOST, "the number of a process")),
    **dict.fromkeys(
        ("allocated_peak", "reserved_peak", "device_peak", "taken"), (MOST_NBYTES, "bytes of a GPU's memory")
    ),
}
"""The bound of values in rows, and what they are, by the field."""


def check_folding(folding: Folding, world_size: int) -> None:
    mesh = folding.mesh
    if not mesh.axes or any(axis.size < 1 for axis in mesh.axes) or mesh.world_size != world_size:
        raise ValueError("its mesh has not as many places as there are ranks")
    if any(axis.parts and (sum(axis.parts) != axis.size or min(axis.parts) < 1) for axis in mesh.axes):
        raise ValueError("parts of an axis are not the axis")
    if any(axis.turns and not (min(axis.turns) >= 1 and sum(axis.turns) <= axis.size) for axis in mesh.axes):
        raise ValueError("parts of an axis repeat after more coordinates than it has")
    if not all(0 <= rank < world_size for rank in folding.apart) or not folding.witnesses <= folding.apart:
        raise ValueError("a rank that is not there has a process of its own")


def check_members(members: Sequence[int], world_size: int) -> None:
    if not members or len(set(members)) != len(members):
        raise ValueError("a communicator has no members, or one of them twice")
    if not all(0 <= rank < world_size for rank in members):
        raise ValueError("a communicator has a member that is no rank")


def check_comm(comm: Comm, servers: Sequence[int]) -> None:
    """Checks the communicator. `servers`: the number of GPUs of each server, in the order of ranks."""
    check_members(comm.members, sum(servers))
    most = max(servers)
    if len(comm.devices) != len(comm.members) or not all(0 <= device < most for device in comm.devices):
        raise ValueError("a communicator has not a GPU for each member")


def check_call(call: Call, world_size: int) -> None:
    if call.op not in _OPS or not 0 <= call.dtype < len(DTYPE_NBYTES):
        raise ValueError("an NCCL call has an unknown operation or type")
    if not 0 <= call.elements * DTYPE_NBYTES[call.dtype] * world_size < MOST_NBYTES:
        raise ValueError(f"an NCCL call has {call.elements} elements")
    if not 0 <= call.comm < MOST or not -1 <= call.root < world_size:
        raise ValueError("an NCCL call has an impossible communicator or root")
    if not 0 <= min(call.sender, call.receiver) <= max(call.sender, call.receiver) < world_size:
        raise ValueError("an NCCL call is between ranks that are not there")
    if call.callers not in (1, 2):
        raise ValueError(f"a message has {call.callers} callers")


def check_rows(rows: NDArray[np.void], counters: Sequence[tuple[Any, ...]]) -> None:
    """Checks the rows of a rank. `counters`: the fields of the rank's COUNTERS."""
    kinds, values = rows["kind"], rows["values"]
    if not np.isin(kinds, KINDS).all():
        raise ValueError("a row is of an unknown kind")
    if int(totals(rows).sum()) > len(counters):
        raise ValueError("a rank has more totals than are listed")
    if not all(math.isfinite(value) for one in counters for value in one):
        raise ValueError("a rank's totals are no numbers")
    times = {"host_ns": rows["host_ns"]}
    for kind in WITH_ROW:
        of_kind = values[kinds == kind]
        for column, name in enumerate(records.ENTRY_OF[kind].row[1:]):
            if name in _MOST:
                _at_most(of_kind[:, column], *_MOST[name])
            elif name.endswith("_ns"):
                times[name] = of_kind[:, column]
    for name, each in times.items():
        if each.sum(dtype=np.float64) > MOST_NS:
            raise ValueError(f"a rank's {name} exceed {MOST_NS} ns")


def _at_most(values: NDArray[np.uint64], most: int, what: str) -> None:
    if values.size and int(values.max()) >= most:
        raise ValueError(f"{what}: {int(values.max())}")
