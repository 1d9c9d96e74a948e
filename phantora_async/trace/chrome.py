"""Writes Chrome JSON in the conventions of Kineto, PyTorch's own profiler: one file for each rank.

The file is complete JSON after every write, so that a run which ends early, however it ends, leaves a readable one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from netsim.collectives import Plan
from phantora_async.run_spec import RunSpec
from phantora_async.trace import names
from phantora_async.trace.spans import Call, Kernel, MemoryUse, Nccl, Op, Span, Step, StreamWait, Sync
from phantora_async.trace.writing import Context, StreamedFile
from profiles import KERNEL, activity

_TAIL = b"\n]}\n"
_CUDART_ID, _DRIVER_ID = 211, 307
"""The values of cbid for cudaLaunchKernel and cuLaunchKernel: readers want a number."""
_GPU_SORTED_AFTER = 5_000_000
_BLOCK_THREADS_PER_WARP = 32


class ChromeFile:
    """The trace of one rank. ``add`` spans in any order, ``close``. Raises OSError if the file cannot be written."""

    def __init__(self, path: Path, rank: int, spec: RunSpec, context: Context) -> None:
        self._rank = rank
        self._context = context
        self._pid = context.pid(rank)
        self._sms = spec.gpu.sm_count
        self._file = StreamedFile(path, _TAIL)
        self._threads: set[int] = set()
        self._streams: set[tuple[int, int]] = set()
        self._activities: dict[int, dict[str, Any]] = {}
        """The description that all launches with the same cost share, by the key of the cost."""
        self._first = True
        self._file.write(self._header(spec))
        self._process(self._pid, "CPU", self._pid)
        self._file.flush()

    def _header(self, spec: RunSpec) -> bytes:
        gpu = spec.gpu
        limits = gpu.limits
        device = {
            "name": gpu.device_name,
            "totalGlobalMem": gpu.memory.total_nbytes,
            "computeMajor": gpu.cc_major,
            "computeMinor": gpu.cc_minor,
            "maxThreadsPerBlock": 1024,
            "maxThreadsPerMultiprocessor": limits.threads_per_sm,
            "regsPerBlock": 65536,
            "warpSize": _BLOCK_THREADS_PER_WARP,
            "sharedMemPerBlock": 49152,
            "numSms": gpu.sm_count,
            "regsPerMultiprocessor": 65536,
            "sharedMemPerBlockOptin": limits.shared_nbytes_per_block_optin,
            "sharedMemPerMultiprocessor": limits.shared_nbytes_per_sm,
        }
        gpus = spec.servers[spec.server_of[self._rank]]
        world = {"backend": "nccl", "rank": self._rank, "world_size": spec.world_size}
        parts = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": number, **device} for number in range(gpus)],
            "record_shapes": 1,
            "distributedInfo": world,
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": 0,
            "emulated_by": "phantora-async",
        }
        lines = [f"{orjson.dumps(name).decode()}: {_spaced(value)}" for name, value in parts.items()]
        return ("{\n" + ",\n".join(lines) + ',\n"traceEvents": [\n').encode()

    def close(self) -> None:
        self._file.close()

    # ---- spans -----------------------------------------------------------------------------------------------------

    def add(self, span: Span) -> None:
        match span:
            case Kernel():
                self._kernel(span)
            case Nccl():
                self._nccl(span)
            case Call():
                self._call(span)
            case Sync():
                self._sync(span)
            case Op():
                self._op(span)
            case Step():
                self._on_thread(self._pid, span, "user_annotation", f"ProfilerStep#{span.number}", {})
            case MemoryUse():
                self._memory(span)
            case StreamWait():
                pass  # readers would take it for a kernel

    def _kernel(self, span: Kernel) -> None:
        known = self._activities.get(span.key)
        if known is None:
            known = self._activities[span.key] = self._describe(span.key)
        where = {"device": span.device, "context": 1, "stream": span.stream, "correlation": span.correlation}
        arguments = {"External id": span.external, **where, **known["args"]}
        if known["nbytes"]:
            arguments["memory bandwidth (GB/s)"] = known["nbytes"] / max(span.end_ns - span.start_ns, 1)
        self._on_stream(span, known["cat"], known["name"], arguments)

    def _describe(self, key: int) -> dict[str, Any]:
        priced = self._context.costs.priced(key)
        what = activity(priced.signature)
        arguments: dict[str, Any] = {"queued": 0} if what.kind == KERNEL else {"bytes": what.nbytes}
        if what.grid is not None and what.block is not None:
            blocks = what.grid[0] * what.grid[1] * what.grid[2]
            warps = -(-what.block[0] * what.block[1] * what.block[2] // _BLOCK_THREADS_PER_WARP)
            arguments |= {
                "shared memory": what.shared_nbytes,
                "blocks per SM": blocks / self._sms,
                "warps per SM": blocks * warps / self._sms,
                "grid": what.grid,
                "block": what.block,
            }
        cost = priced.cost
        if what.kind == KERNEL:
            arguments |= {"signature": priced.signature, "flops": cost.flops, "bound": cost.bound}
        arguments["cost source"] = cost.source.name.lower()
        return {"cat": what.kind, "name": what.name, "args": arguments, "nbytes": what.nbytes}

    def _nccl(self, span: Nccl) -> None:
        where = {"device": span.device, "context": 1, "stream": span.stream, "correlation": span.correlation}
        arguments: dict[str, Any] = {"External id": span.external, "queued": 0, **where}
        name = "ncclDevKernel_Generic"
        if span.moved:
            moved = span.moved[0]
            plan = self._context.plan(moved.collective)
            name = names.kernel_name(moved.collective, plan)
            arguments |= describe_collective(self._rank, span, plan)
        self._on_stream(span, KERNEL, name, arguments)

    def _call(self, span: Call) -> None:
        driver = names.is_driver(span.name)
        arguments: dict[str, Any] = {
            "External id": span.external,
            "cbid": _DRIVER_ID if driver else _CUDART_ID,
            "correlation": span.correlation,
        }
        known = names.KNOWN_NAMES.get(span.name)
        if known is not None:
            arguments["call"] = span.name
        category = "cuda_driver" if driver else "cuda_runtime"
        self._on_thread(span.thread, span, category, known or span.name, arguments)

    def _sync(self, span: Sync) -> None:
        kind = names.SYNC_NAMES[span.kind]
        arguments: dict[str, Any] = {"cuda_sync_kind": kind}
        if span.recording:
            arguments |= {
                "wait_on_stream": span.recorded_on,
                "wait_on_cuda_event_record_corr_id": span.recorded_by,
                "wait_on_cuda_event_id": span.recording,
            }
        arguments |= {"stream": span.stream, "correlation": span.correlation, "device": span.device, "context": 1}
        self._on_gpu(span.device, span.stream)
        self._complete(span.device, span.stream, span, "cuda_sync", kind, arguments)

    def _op(self, span: Op) -> None:
        annotation = not span.sizes and not span.name.startswith("autograd::engine::evaluate_function")
        arguments = {"External id": span.external, "Record function id": 0}
        if span.sizes:
            arguments["Input Dims"] = Raw(span.sizes)  # type: ignore[assignment]
        self._on_thread(span.thread, span, "user_annotation" if annotation else "cpu_op", span.name, arguments)

    def _memory(self, span: MemoryUse) -> None:
        self._event(
            {
                "ph": "i",
                "s": "t",
                "cat": "cpu_instant_event",
                "name": "[memory]",
                "pid": self._pid,
                "tid": self._pid,
                "ts": _us(span.at_ns),
                "args": {
                    "Total Allocated": span.allocated,
                    "Total Reserved": span.reserved,
                    "Device Type": 1,
                    "Device Id": span.device,
                },
            }
        )

    # ---- events ----------------------------------------------------------------------------------------------------

    def _on_gpu(self, device: int, stream: int) -> None:
        """Declares the GPU and the stream (-1: none) of the event that follows."""
        if (device, stream) not in self._streams:
            if all(other != device for other, _ in self._streams):
                self._process(device, f"GPU {device}", _GPU_SORTED_AFTER + device)
            self._streams.add((device, stream))
            self._thread(device, stream, f"stream {stream} ")

    def _on_stream(self, span: Kernel | Nccl, category: str, name: str, arguments: dict[str, Any]) -> None:
        self._on_gpu(span.device, span.stream)
        self._complete(span.device, span.stream, span, category, name, arguments)
        if span.correlation:
            self._flow("f", span.device, span.stream, span.start_ns, span.correlation)

    def _on_thread(self, thread: int, span: Call | Op | Step, category: str, name: str, arguments: Any) -> None:
        if thread not in self._threads:
            self._threads.add(thread)
            self._thread(self._pid, thread, f"thread {thread} ({'main' if thread == self._pid else 'python3'})")
        self._complete(self._pid, thread, span, category, name, arguments)
        if isinstance(span, Call):
            self._flow("s", self._pid, thread, span.start_ns, span.correlation)

    def _complete(self, pid: int, tid: int, span: Any, category: str, name: str, arguments: dict[str, Any]) -> None:
        times = {"ts": _us(span.start_ns), "dur": _us(span.end_ns - span.start_ns)}
        self._event({"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, **times, "args": arguments})

    def _flow(self, phase: str, pid: int, tid: int, at_ns: int, number: int) -> None:
        """Writes one end of an arrow from an API call to what it launched."""
        end = {"bp": "e"} if phase == "f" else {}
        event = {"ph": phase, "id": number, "pid": pid, "tid": tid, "ts": _us(at_ns), "cat": "ac2g", "name": "ac2g"}
        self._event(event | end)

    def _process(self, pid: int, label: str, order: int) -> None:
        for name, arguments in (
            ("process_name", {"name": "python3"}),
            ("process_labels", {"labels": label}),
            ("process_sort_index", {"sort_index": order}),
        ):
            self._event({"name": name, "ph": "M", "ts": 0, "pid": pid, "tid": 0, "args": arguments})

    def _thread(self, pid: int, tid: int, label: str) -> None:
        for name, arguments in (("thread_name", {"name": label}), ("thread_sort_index", {"sort_index": tid})):
            self._event({"name": name, "ph": "M", "ts": 0, "pid": pid, "tid": tid, "args": arguments})

    def _event(self, event: dict[str, Any]) -> None:
        separator = b"" if self._first else b",\n"
        self._first = False
        self._file.write(separator + orjson.dumps(event, default=_raw))


class Raw:
    """A JSON text that is written as it is."""

    def __init__(self, text: str) -> None:
        self.text = text


def _raw(value: Any) -> Any:
    try:
        return orjson.loads(value.text)
    except (orjson.JSONDecodeError, AttributeError):
        return getattr(value, "text", "")


def _us(ns: int) -> float:
    return ns / 1000


def _spaced(value: Any) -> str:
    """JSON on one line, with the space behind colons that readers search for."""
    import json

    return json.dumps(value)


def describe_collective(rank: int, span: Nccl, plan: Plan) -> dict[str, Any]:
    """The arguments of an NCCL kernel: those of Kineto, then those that only a simulation knows."""
    moved = span.moved[0]
    collective = moved.collective
    given, got = names.elements(collective)
    moving_ns = moved.done_ns - moved.begun_ns
    nbytes = max(given, got) * collective.nbytes // max(collective.count, 1)
    return {
        "grid": [plan.channels, 1, 1],
        "Collective name": names.collective_name(collective),
        "In msg nelems": given,
        "Out msg nelems": got,
        "Group size": len(collective.comm.members),
        "dtype": names.dtype_name(collective),
        "In split size": "[]",
        "Out split size": "[]",
        "Process Group Name": str(collective.comm.id),
        "Process Group Description": collective.comm.label,
        "Process Group Ranks": str(list(collective.comm.members)),
        "bytes": nbytes,
        "algorithm": plan.algorithm,
        "protocol": plan.protocol,
        "channels": plan.channels,
        "waited (us)": _us(moved.begun_ns - span.start_ns),
        "waited for rank": moved.last_rank if moved.begun_ns > span.start_ns else rank,
        "bus bandwidth (GB/s)": names.bus_gb_per_s(collective, moving_ns),
        "collectives in the kernel": len(span.moved),
    }
