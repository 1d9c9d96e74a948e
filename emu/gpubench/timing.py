"""Executes prepared work under torch.profiler and tells what ran on the GPU, execution by execution.

Times are wanted at the GPU's full clock, so bursts are short: the GPU rests as long as it was busy, before its power
limit lowers the clock.
"""

from __future__ import annotations

import json
import tempfile
import time
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from .operators import Prepared
from .resident import Resident
from .tensors import DEVICE, Json, touch

EXECUTIONS = 10
BURST_MS = 10.0
"""The GPU rests after so much work: it takes some 30 ms of heavy work until its clock falls."""
LONGEST_MS = 400.0
"""All executions in one state take no longer than this, if three can be had."""
STATES = ("cold", "written", "hot", "beside")
"""The contents of the L2 cache when the work starts: nothing of it (`cold`); the first operand, which was just written
(`written`); all that an execution before it left (`hot`). `beside` is `written` while a kernel holds SMs and bandwidth
as NCCL's channels do.
"""
_DEVICE_EVENTS = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCHES = ("cuda_runtime", "cuda_driver")
_MARK = "gpubench "


class Recording:
    """A profiler session in which each execution has a label."""

    def __init__(self, *, shapes: bool = False) -> None:
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        self._profiler = torch.profiler.profile(activities=activities, record_shapes=shapes)

    def __enter__(self) -> Recording:
        torch.cuda.synchronize()
        self._profiler.start()
        return self

    def __exit__(self, *_: object) -> None:
        torch.cuda.synchronize()
        self._profiler.stop()

    def run(self, label: str, prepared: Prepared) -> None:
        with torch.profiler.record_function(_MARK + label), torch.no_grad():
            prepared.run()

    def events(self) -> list[Json]:
        with tempfile.TemporaryDirectory(prefix="phantora-gpubench-") as folder:
            path = Path(folder, "trace.json")
            self._profiler.export_chrome_trace(str(path))
            found: list[Json] = json.loads(path.read_text())["traceEvents"]
        return found


def by_label(events: Sequence[Json]) -> dict[str, list[Json]]:
    """Returns the kernels that each execution ran on the GPU, in order of time: the fields that tell about a kernel."""
    marks = sorted(
        (event["ts"], event["ts"] + event["dur"], event["name"].removeprefix(_MARK))
        for event in events
        if event.get("cat") == "user_annotation" and str(event["name"]).startswith(_MARK)
    )
    starts = [start for start, _, _ in marks]
    found: dict[str, list[Json]] = {label: [] for _, _, label in marks}
    label_of: dict[int, str] = {}
    for event in events:
        if event.get("cat") in _LAUNCHES and "correlation" in event.get("args", {}):
            # Autograd launches from threads of its own, but within the execution's time.
            at = bisect_right(starts, event["ts"]) - 1
            if at >= 0 and event["ts"] <= marks[at][1]:
                label_of[event["args"]["correlation"]] = marks[at][2]
    for event in sorted((one for one in events if one.get("cat") in _DEVICE_EVENTS), key=lambda one: one["ts"]):
        label = label_of.get(event["args"].get("correlation", -1))
        if label is not None:
            found[label].append(_told(event))
    return found


def _told(event: Json) -> Json:
    args = event["args"]
    told = {"cat": event["cat"], "name": event["name"], "ts": event["ts"], "us": event["dur"]}
    for name in ("grid", "block", "bytes"):
        if name in args:
            told[name] = args[name]
    return told


class Timer:
    def __init__(self) -> None:
        properties = torch.cuda.get_device_properties(0)
        nbytes = 2 * int(getattr(properties, "L2_cache_size", 0) or 64 << 20)
        self._flushed = torch.randn(nbytes // 4, device=DEVICE)
        self._sum = torch.zeros(1, device=DEVICE)

    def flush(self) -> None:
        """Reads more than the L2 cache holds, so that nothing else is in it, and nothing has to be written back."""
        torch.sum(self._flushed, dim=0, keepdim=True, out=self._sum)

    def measure(
        self, recording: Recording, label: str, prepared: Prepared, states: Sequence[str], resident: Resident | None
    ) -> None:
        """Executes the work in each state, after a warm-up. Labels are `label state number`."""
        took_ms = _warm(prepared)
        executions = EXECUTIONS if took_ms * EXECUTIONS < LONGEST_MS else 3
        for state in states:
            busy_ms = 0.0
            if state == "beside":
                if resident is None:
                    continue
                resident.start()
            for number in range(executions):
                if state != "hot":
                    self.flush()
                if state in ("written", "beside") and prepared.first is not None:
                    touch(prepared.first)
                recording.run(f"{label} {state} {number}", prepared)
                busy_ms += took_ms
                if busy_ms > BURST_MS:
                    torch.cuda.current_stream().synchronize()
                    time.sleep(busy_ms / 1e3)
                    busy_ms = 0.0
            torch.cuda.current_stream().synchronize()
            if state == "beside" and resident is not None:
                resident.stop()


def _warm(prepared: Prepared) -> float:
    """Returns the time of a second execution, in milliseconds."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.no_grad():
        prepared.run()
        torch.cuda.synchronize()
        begin.record()
        prepared.run()
        end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end))


def about() -> dict[str, Any]:
    """Describes the machine that was measured, in texts: a table's origin."""
    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": properties.name,
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "cudnn": str(torch.backends.cudnn.version()),
    }
