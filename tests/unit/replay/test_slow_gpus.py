"""Prices of a GPU that works at a share of its speed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from emu.contract import records
from emu.contract.records import HistoryKind
from phantora_async.ingest.costs import Priced as PricedSignature
from phantora_async.recording.history import ENTRY, Dictionary, HostWork
from phantora_async.recording.recording import Stream
from phantora_async.recording.rows import ROW
from phantora_async.replaying.pricing import Machine, Pricing
from profiles import Cost, Source, load_gpu, load_host


def test_a_slow_gpu_takes_longer_between_kernels_too() -> None:
    """As one that a fault slows: at a quarter of its speed all work of its streams takes four times as long."""
    gpu, host = load_gpu("h200"), load_host("xeon-h200")
    costs = {1: PricedSignature("kernel", Cost(1000, 3000, 0.0, Source.ROOFLINE))}
    launch = SimpleNamespace(key=1, stream=7, what=HistoryKind.QUEUED, work=0)
    rows = np.zeros(1, ROW)
    rows["kind"], rows["stream"] = records.SEGMENT, 7
    rows["values"][0, 1:3] = 2000, 6000
    history = np.zeros(1, ENTRY)
    history["kind"] = records.SEGMENT
    stream = Stream(rows, ())
    recording: Any = SimpleNamespace(
        setup=SimpleNamespace(host=host, host_mode="modelled"),
        costs=costs,
        dictionary=Dictionary({0: HostWork(0, 0, ())}, {0: [launch, launch]}),  # type: ignore[list-item]
        stream=lambda rank: stream,
        history=lambda rank: history,
    )
    pricing = Pricing(recording, Machine(gpu, host, "modelled", costs, {1: 0.25}))
    solo_ns, contended_ns = (int(one) for one in pricing.priced(0).stream.rows["values"][0, 1:3])
    gap_ns = gpu.achieved.launch_gap_ns
    assert gap_ns > 0
    assert (solo_ns, contended_ns) == (2 * (1000 + gap_ns), 2 * (3000 + gap_ns))
    slow = pricing.priced(1).stream.rows["values"][0]
    assert (int(slow[1]), int(slow[2])) == (4 * solo_ns, 4 * contended_ns)
