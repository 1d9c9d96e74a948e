"""Measures the workloads: `python -m emu.hostbench MODE [--rounds N] [--only NAME,...]`, one line of JSON on stdout.

MODE is
  real       this machine's GPU, nothing of the emulator loaded
  detached   the hook library in place of CUDA, timing nothing: host time without the driver's
  count      the same, with the observers of an emulated rank: how much of each kind of work a workload is

With `--in-turns` a round begins when a line comes on stdin, and is answered by "round N": so two processes can be
timed by turns. In a round each workload runs twice: right after others, whose code fills the caches, and again. `real`
and `detached` print {"first": {part: [nanoseconds, one per round]}, "again": ...}; `count` prints {"first":
{part: {kind: units}}, "again": ...}. A part is a workload, or "workload: phase" of one that tells where its phases end.
"no_calls" names workloads that tell nothing of what calls take.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from .workload import WORKLOADS, Run, Workload, phases_told

WARM_RUNS = 5
_Seen = TypeVar("_Seen")
_Told = TypeVar("_Told")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m emu.hostbench", description=__doc__)
    parser.add_argument("mode", choices=("real", "detached", "count"))
    parser.add_argument("--hook", help="the hook library, unless real")
    parser.add_argument("--device-file", help="what it is to emulate, host_mode none or (count) modelled")
    parser.add_argument("--backend", choices=("fake", "nccl"), default="fake", help="of torch.distributed")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--in-turns", action="store_true", help="wait for a line on stdin before each round")
    parser.add_argument("--only", default="")
    parser.add_argument("--cpu-time", action="store_true", help="of all threads, where others use the machine as well")
    given = parser.parse_args()
    counter = None
    if given.mode != "real":
        counter = _Detached(given.hook, given.device_file, counting=given.mode == "count")
    with _workloads(given.only, given.backend) as chosen:
        if given.mode == "count":
            assert counter is not None
            counts = {name: counter.twice(run) for name, run in chosen.items()}
            answer: dict[str, Any] = {
                which: {_part(name, phase): units for name, both in counts.items() for phase, units in both[i].items()}
                for i, which in enumerate(("first", "again"))
            }
        else:
            clock = time.process_time_ns if given.cpu_time else time.perf_counter_ns
            answer = _time(chosen, _rounds(given.rounds + 1, in_turns=given.in_turns), clock)
            if counter is not None:
                answer["hook_call_ns"] = counter.call_ns()
    answer |= _machine()
    print(json.dumps(answer), flush=True)
    sys.stdout.flush()
    os._exit(0)  # nothing of torch's end is measured


def _machine() -> dict[str, Any]:
    import torch

    return {
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "gpu": torch.cuda.get_device_name(0),
        "failed": dict(_FAILED),
        "no_calls": [workload.name for workload in WORKLOADS if not workload.tells_of_calls],
    }


def _collections() -> dict[str, int]:
    return {f"gc{i}": stats["collections"] for i, stats in enumerate(gc.get_stats())}


_FAILED: dict[str, str] = {}
"""Workloads that this torch cannot run, and why."""


@contextlib.contextmanager
def _workloads(only: str, backend: str) -> Iterator[dict[str, Run]]:
    """Sets everything up and runs it a few times; yields the workloads."""
    import torch
    import torch.distributed as dist

    _join(backend)
    torch.manual_seed(0)
    from . import (  # noqa: F401  # they register
        collectives,
        cpu_tensors,
        device_calls,
        distributed,
        libraries,
        lists,
        programs,
        python_work,
        tensor_parallel,
        tight_loops,
        various_operators,
    )

    names = [name for name in only.split(",") if name]
    chosen: dict[str, Run] = {}
    for workload in WORKLOADS:
        if not names or workload.name in names:
            run = _prepared(workload)
            if run is not None:
                chosen[workload.name] = run
    gc.collect()
    torch.cuda.synchronize()
    yield chosen
    dist.destroy_process_group()


def _join(backend: str) -> None:
    """Joins the ranks that torchrun's variables tell of; without these, makes this process one rank of four."""
    import torch
    import torch.distributed as dist

    if "RANK" in os.environ:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group(backend)
    else:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        torch.cuda.set_device(0)
        store = FakeStore() if backend == "fake" else dist.HashStore()
        dist.init_process_group(backend, store=store, rank=0, world_size=4)


def _prepared(workload: Workload) -> Run | None:
    try:
        run = workload.make()
        for _ in range(WARM_RUNS):
            run()
    except (RuntimeError, AttributeError, ImportError, TypeError, ValueError, AssertionError) as error:
        _FAILED[workload.name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        return None
    return run


def _rounds(count: int, *, in_turns: bool) -> Iterator[int]:
    for turn in range(count):
        if in_turns:
            sys.stdin.readline()
        yield turn
        if in_turns:
            print(f"round {turn}", flush=True)


def _time(chosen: dict[str, Run], rounds: Iterable[int], clock: Callable[[], int]) -> dict[str, Any]:
    """Returns the nanoseconds of each part of a run after other workloads and of one right after it, one figure a round
    but for the first. Workloads take turns; the GPU is idle when a part begins.
    """
    import torch

    def now() -> tuple[float, float]:
        """Returns the end of what was before, and the begin of what is next."""
        end = clock()
        torch.cuda.synchronize()
        return end, clock()

    times: dict[str, dict[str, list[float]]] = {"first": {}, "again": {}}
    for turn in rounds:
        for name, run in chosen.items():
            for of in times.values():
                parts = _by_phase(run, now, lambda begin, end: end[0] - begin[1])
                for phase, took in parts.items() if turn else ():
                    of.setdefault(_part(name, phase), []).append(took)
    return dict(times)


WHOLE = ""
"""Name of the phase of a workload that has no phases."""


def _part(workload: str, phase: str) -> str:
    return f"{workload}: {phase}" if phase else workload


def _by_phase(run: Run, observe: Callable[[], _Seen], between: Callable[[_Seen, _Seen], _Told]) -> dict[str, _Told]:
    """Returns what was observed during each phase. What follows the last phase is left out."""
    found: dict[str, _Told] = {}
    seen = [observe()]

    def told(phase: str) -> None:
        now = observe()
        found[phase] = between(seen[0], now)
        seen[0] = now

    with phases_told(told):
        run()
        if not found:
            told(WHOLE)
    return found


class _Detached:
    """The hook library without a coordinator."""

    def __init__(self, hook: str, device_file: str, *, counting: bool) -> None:
        os.environ["PHANTORA_DETACHED"] = "1" if counting else "timed"
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
        from ..interpreter.hook_library import Hook

        self._hook = Hook(hook)
        self._hook.load(device_file)
        if counting:
            from ..interpreter import call_sites, frame_counter, tensor_work
            from ..interpreter.nvtx_ranges import NvtxRanges

            call_sites.note_backward_passes(self._hook)
            frame_counter.install(self._hook)
            ranges = NvtxRanges(self._hook)
            ranges.install()
            ranges.start()
            tensor_work.find(self._hook)

    def twice(self, run: Run) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
        """Runs twice, and returns what each run took, by phase: after other programs, which have emptied the caches,
        and right after that.
        """
        self._hook.host_grows_old()
        return self._counted(run), self._counted(run)

    def _counted(self, run: Run) -> dict[str, dict[str, float]]:
        def between(before: dict[str, int], after: dict[str, int]) -> dict[str, float]:
            return {kind: float(after[kind] - before[kind]) for kind in after if after[kind] != before[kind]}

        return _by_phase(run, lambda: self._hook.host_counts() | _collections(), between)

    def call_ns(self) -> float:
        """Returns the nanoseconds that a call of the library takes that does nothing, without ctypes' share."""
        library = ctypes.CDLL(None)
        nothing, call = library.getpid, library.cudaGetLastError
        best: list[float] = []
        for function in (nothing, call):
            samples = []
            for _ in range(5):
                begin = time.perf_counter_ns()
                for _ in range(10_000):
                    function()
                samples.append((time.perf_counter_ns() - begin) / 10_000)
            best.append(min(samples))
        return max(0.0, best[1] - best[0])


if __name__ == "__main__":
    main()
