"""Measures times of single signatures by executing their work again on this machine's GPU."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from phantora_async.gpu_profile.bench import Bench, Json, about, is_broken
from profiles import Gpu, Measured, gpu_names, load_gpu
from profiles.kernel_names.kernel_name import read_name
from profiles.signature import (
    Copy,
    Grouped,
    Kernel,
    Library,
    Memset,
    Scaled,
    Sequences,
    Signature,
    Strided,
    Triton,
    parse,
)

WRITTEN, COLD = "written", "cold"
"""States of the L2 cache (emu/gpubench/timing.py): it holds the first operand, just written; it holds nothing of the
operands.
"""
BESIDE = "beside"
CHANNELS = 24
"""The number of SMs that NCCL's kernels hold."""
CHANNEL_SHARE = 0.15
"""The share of the memory's bandwidth that NCCL's kernels use."""
AT_ONCE = 12
"""The pieces of work in one profiler session."""
TRIED_AT_ONCE = 12
FIND_LIMIT_S = 30.0
"""The seconds for which the call that launches a kernel is searched: operators on lists of tensors take seconds for
each try.
"""


@dataclass(frozen=True, slots=True)
class NotMeasured:
    reason: str


@dataclass(frozen=True, slots=True)
class BenchWork:
    """A piece of work to execute for a signature."""

    signature: str
    request: Json
    """The request that emu.gpubench takes."""


class SignatureBench:
    """Measures signatures on the local GPU."""

    def __init__(self, bench: Bench) -> None:
        """Asks the bench for its GPU. Raises EnvironmentUnusable without a GPU."""
        self._bench = bench
        self.about = about(bench)
        self.gpu = described(self.about["gpu"])
        self._places: dict[tuple[str, str], int] = {}
        """The number of the candidate that launched a kernel, by operator and kernel name: for other sizes it is likely
        the same one.
        """

    def measure(self, signatures: Sequence[str]) -> Iterator[tuple[str, Measured | NotMeasured]]:
        """Yields each signature with its time, or the reason why there is none, as soon as that is known."""
        waiting: list[BenchWork] = []
        for signature in signatures:
            found = self.work_of(signature)
            if isinstance(found, NotMeasured):
                yield signature, found
                continue
            waiting.append(found)
            if len(waiting) == AT_ONCE:
                yield from self.time(waiting)
                waiting = []
        if waiting:
            yield from self.time(waiting)

    def work_of(self, signature: str) -> BenchWork | NotMeasured:
        what = parse(signature)
        if isinstance(what, (Strided, Scaled, Triton, Library)):
            return NotMeasured(_NEVER[type(what)])
        if isinstance(what, Kernel):
            return self._find(signature, what)
        return BenchWork(signature, {"kind": signature.partition(";")[0], "fields": dataclasses.asdict(what)})

    def _find(self, signature: str, what: Kernel) -> BenchWork | NotMeasured:
        """Finds the call that launches this kernel with this grid."""
        if not what.op:
            return NotMeasured("no operator is known that launches it")
        name = read_name(what.name)
        request = {
            "do": "find",
            "op": what.op,
            "sizes": what.sizes,
            "name": name.text,
            "grid": what.grid,
        }
        place = self._places.get((what.op, name.function))
        waiting = [(0, TRIED_AT_ONCE)] if place is None else [(0, TRIED_AT_ONCE), (place, 1)]
        tried, reason, until_s = 0, "", time.monotonic() + FIND_LIMIT_S
        while waiting and time.monotonic() < until_s:
            start, count = waiting.pop()
            answer = self._bench.ask(request | {"from": start, "count": count})
            if "error" in answer and count > 1 and is_broken(answer):
                # One of them has ended the process: which one is found by trying them one by one.
                waiting += [(start + count, count), *((start + at, 1) for at in reversed(range(count)))]
                continue
            if "error" in answer and count > 1:
                return NotMeasured(answer["error"])
            for number, one in enumerate(answer.get("tried", ())):
                if any(_same(what, kernel) for kernel in one.get("kernels", ())):
                    self._places[what.op, name.function] = start + number
                    return BenchWork(signature, {"call": one["call"]})
                tried += 1
                reason = reason or one.get("error", "")
            if count > 1 and answer["more"]:
                waiting.append((start + count, count))
        return NotMeasured(f"none of {tried} calls of {what.op} launches it" + (f" ({reason})" if reason else ""))

    def time(self, works: Sequence[BenchWork]) -> Iterator[tuple[str, Measured | NotMeasured]]:
        for state in (WRITTEN, COLD):
            alike = [work for work in works if state_of(parse(work.signature)) == state]
            for work, times in zip(alike, self.times(alike, (state, BESIDE)) if alike else (), strict=True):
                yield work.signature, times if isinstance(times, NotMeasured) else _measured(work.signature, times)

    def times(self, works: Sequence[BenchWork], states: Sequence[str]) -> list[dict[str, list[float]] | NotMeasured]:
        """Measures each work. Returns the ns of each execution, by state."""
        asked = {"do": "time", "works": [work.request for work in works], "states": list(states)}
        answer = self._bench.ask(asked | {"beside": self._beside()})
        if "error" in answer and len(works) > 1:
            # One of them has ended the process.
            return [found for work in works for found in self.times([work], states)]
        if "error" in answer:
            return [NotMeasured(answer["error"])]
        return [self._durations(work, times, states) for work, times in zip(works, answer["times"], strict=True)]

    def _beside(self) -> Json:
        bandwidth = self.gpu.memory.bandwidth_gb_per_s if self.gpu else 2000.0
        return {"blocks": CHANNELS, "gb_per_s": CHANNEL_SHARE * bandwidth}

    def _durations(self, work: BenchWork, times: Json, states: Sequence[str]) -> dict[str, list[float]] | NotMeasured:
        if "error" in times:
            return NotMeasured(times["error"])
        what = parse(work.signature)
        found: dict[str, list[float]] = {}
        for state in states:
            ns = [one for kernels in times.get(state, ()) for one in self._of_execution(what, kernels)]
            if ns:
                found[state] = ns
        if not any(state != BESIDE for state in found):
            return NotMeasured("its kernels were not seen while it was timed")
        return found

    def _of_execution(self, what: Signature, kernels: Sequence[Json]) -> list[float]:
        """The ns that count as the signature's. The kernels of one library call are one time, with the gaps between
        them.
        """
        if isinstance(what, (Kernel, Grouped)):
            return [kernel["us"] * 1e3 for kernel in kernels if _same(what, kernel)]
        cat = {Copy: "gpu_memcpy", Memset: "gpu_memset"}.get(type(what))
        own = [kernel for kernel in kernels if (kernel["cat"] == cat if cat else "at::native" not in kernel["name"])]
        if not own:
            return []
        gap_ns = self.gpu.achieved.launch_gap_ns if self.gpu else 0
        return [sum(kernel["us"] for kernel in own) * 1e3 + gap_ns * (len(own) - 1)]


_NEVER: dict[type[Signature], str] = {
    Strided: "a call with operands laid out like its own is not looked for; `profile SCRIPT` measures it",
    Scaled: "a call that scales to and from the same sizes is not looked for; `profile SCRIPT` measures it",
    Sequences: "a call with sequences as long as its own is not looked for; `profile SCRIPT` measures it",
    Triton: "a kernel that Triton compiled cannot be started without its arguments",
    Library: "its arguments are not known",
}


def state_of(what: Signature) -> str:
    """The state of the cache in which the work takes as long as in training: docs/costs.md."""
    late = isinstance(what, Copy) or (isinstance(what, Kernel) and "reduce_kernel" in what.name)
    return COLD if late else WRITTEN


def _measured(signature: str, times: dict[str, list[float]]) -> Measured:
    state = next(one for one in times if one != BESIDE)
    solo_ns = max(1, round(median(times[state])))
    beside = times.get(BESIDE)
    contended_ns = max(solo_ns, round(median(beside))) if beside else None
    return Measured(signature, solo_ns, contended_ns, len(times[state]), 0)


def _same(what: Kernel | Grouped, kernel: Json) -> bool:
    """Returns true if the kernel is this function with this grid and block."""
    if kernel["cat"] != "kernel" or tuple(kernel["grid"]) != what.grid or tuple(kernel["block"]) != what.block:
        return False
    return read_name(kernel["name"]).function == read_name(what.name).function


def described(device_name: str) -> Gpu | None:
    """The description of the GPU with this device name; None if there is none."""
    for name in gpu_names():
        gpu = load_gpu(name)
        if gpu.device_name == device_name:
            return gpu
    return None
