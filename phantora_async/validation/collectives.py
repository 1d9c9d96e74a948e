"""Compares NCCL's measured kernels with their plans: Hopper's, on one server with NVSwitch, without NVLink
multicast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netsim.collectives import load_params
from netsim.tools import nccl_accuracy
from netsim.tools.nccl_accuracy import Measurement, Pair
from phantora_async.validation.truth import CollectiveTruth

GENERATION = "hopper"


def compare(measured: Sequence[CollectiveTruth]) -> list[Pair]:
    """The measured collectives that can be planned, each with its plan's time in us. The time of the events around a
    call is subtracted.
    """
    rows = [
        Measurement(one.op, one.world, one.nbytes, one.us - nccl_accuracy.EVENTS_US, (), 1)
        for one in measured
        if one.op in nccl_accuracy.OPS and one.world > 1 and one.us > nccl_accuracy.EVENTS_US
    ]
    return nccl_accuracy.compare(rows, load_params(GENERATION))


def text(pairs: Sequence[Pair]) -> str:
    """The median and worst error by operation, GPUs and size."""
    return nccl_accuracy.table(f"NCCL, {len(pairs)} measured kernels", pairs, nccl_accuracy.by_op)


def document(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    return [
        {"op": row.op, "world": row.world, "nbytes": row.nbytes, "real_us": row.us, "simulated_us": us}
        for row, us in pairs
    ]
