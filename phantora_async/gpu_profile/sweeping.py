"""Measures the standard grid, a batch of pieces at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from phantora_async.gpu_profile.bench import Bench, Json
from phantora_async.gpu_profile.signatures import AT_ONCE, BenchWork, NotMeasured, SignatureBench
from phantora_async.gpu_profile.sweep import Piece
from profiles import Measured
from profiles.signature import Kernel, parse
from profiles.timings.keys import key_of
from profiles.timings.trace import works

_MARK = "gpubench "
"""The mark that emu/gpubench/timing.py puts before the number of an execution."""


class Sweep:
    def __init__(self, bench: Bench, signatures: SignatureBench) -> None:
        self._bench = bench
        self._signatures = signatures

    def measure(
        self, pieces: Sequence[Piece], known: Collection[str]
    ) -> Iterator[tuple[list[Piece], list[Measured], list[str]]]:
        """Measures batch by batch. Yields the batch's pieces, the times, and the reasons why others have none. `known`:
        keys (keys.key_of) of work that need not be measured again.
        """
        for first in range(0, len(pieces), AT_ONCE):
            batch = pieces[first : first + AT_ONCE]
            found, reasons = self._works(batch)
            new = {key_of(parse(work.signature)): work for work in found}
            chosen = [work for key, work in new.items() if key not in known]
            times: list[Measured] = []
            for signature, measured in self._signatures.time(chosen):
                if isinstance(measured, NotMeasured):
                    reasons.append(f"{signature[:160]}: {measured.reason}")
                else:
                    times.append(measured)
            yield list(batch), times, reasons

    def _works(self, batch: Sequence[Piece]) -> tuple[list[BenchWork], list[str]]:
        found: list[BenchWork] = []
        reasons: list[str] = []
        calls = []
        for piece in batch:
            if piece.call is not None:
                calls.append(piece.call)
                continue
            work = self._signatures.work_of(piece.signature)
            if isinstance(work, NotMeasured):
                reasons.append(f"{piece.signature[:160]}: {work.reason}")
            else:
                found.append(work)
        if calls:
            answer = self._bench.ask({"do": "try", "works": [{"call": call} for call in calls]})
            if "error" in answer:
                return found, [*reasons, f"{len(calls)} operators: {answer['error']}"]
            reasons += [f"{calls[int(at)]['op']}: {why}" for at, why in answer["errors"].items()]
            for number, events in by_execution(answer["events"]).items():
                for signature in kernels_in(events):
                    found.append(BenchWork(signature, {"call": calls[number]}))
        return found, reasons


def kernels_in(events: Sequence[Json]) -> list[str]:
    """The signatures of PyTorch's kernels that were launched, each once."""
    signatures = dict.fromkeys(work.signature for work in works(list(events)))
    return [one for one in signatures if isinstance(parse(one), Kernel)]


def by_execution(events: Sequence[Json]) -> dict[int, list[Json]]:
    """The events of each execution: what was called meanwhile, and what that ran on the GPU."""
    marks = {
        int(event["name"].removeprefix(_MARK)): (event["ts"], event["ts"] + event["dur"])
        for event in events
        if event.get("cat") == "user_annotation" and str(event["name"]).startswith(_MARK)
    }
    found: dict[int, list[Json]] = {}
    for number, (start, end) in marks.items():
        inside = [
            event
            for event in events
            if event.get("cat") in ("cpu_op", "cuda_runtime", "cuda_driver") and start <= event["ts"] <= end
        ]
        launched = {event["args"]["correlation"] for event in inside if "correlation" in event.get("args", {})}
        inside += [
            event
            for event in events
            if event.get("cat") in ("kernel", "gpu_memset", "gpu_memcpy")
            and event["args"].get("correlation") in launched
        ]
        found[number] = inside
    return found
