# Printed by `python -m emu.contract.records_stub`; do not edit.
# ruff: noqa
# fmt: off
from enum import IntEnum
from typing import Any, Final, NamedTuple

from .records_definition import Entry, RecordError as RecordError

MAX_NBYTES: Final[int]
VERSION: Final[int]
NAMES: Final[dict[int, str]]
REPLY_OF: Final[dict[int, int]]

WORDS: Final[dict[int, tuple[str, ...]]]
ENTRY_OF: Final[dict[int, Entry]]
def class_name(name: str) -> str: ...
def marked(mark: str) -> frozenset[int]: ...
def naming(what: str) -> dict[int, tuple[str, ...]]: ...
def answer(question: int, qid: int, *values: int) -> bytes: ...
def process_asking(answer: bytes) -> int: ...
def nbytes_of(beginning: bytes | bytearray) -> int: ...
Up = Hello | Bye | Warning | Memory | MemoryHeld | GpuMemory | ModuleMemory | Counters | LaunchCounts | Routing | DataSize | Batch | Response | KvBlocks | Training | Generation | StatedValue | Loop | Decided | Kept | Usage | Loader | Marker | Site | StepsDone | Flushed | StallClock | UnusedGpu | GpuUsed | Alone | Logged | Module | ModuleCounts | Checkpoint | Trace | TraceName | StreamCreate | StreamDestroy | Segment | SegmentContent | HistoryWork | HistoryList | History | Looked | AttributeRead | EventRecord | RecordingDrop | StreamWait | HostWait | HostAdvance | NcclLaunch | NcclData | NcclSources | Connect | CommDestroy | CommInit | CommSplit | ClockRead | Elapsed | Query | SourcesOf | Cost
def decode_up(data: bytes) -> tuple[list[Up], int]: ...
Down = Stop | Flush | AtRest | Stalled | Traced | TracedWork | Data | Comm | Clock | ElapsedNs | Done | Sources | CostOf
def decode_down(data: bytes) -> tuple[list[Down], int]: ...
HELLO: Final = 1
BYE: Final = 2
WARNING: Final = 3
MEMORY: Final = 4
MEMORY_HELD: Final = 26
GPU_MEMORY: Final = 46
MODULE_MEMORY: Final = 49
COUNTERS: Final = 5
LAUNCH_COUNTS: Final = 8
ROUTING: Final = 9
DATA_SIZE: Final = 40
BATCH: Final = 50
RESPONSE: Final = 52
KV_BLOCKS: Final = 53
TRAINING: Final = 54
GENERATION: Final = 51
STATED_VALUE: Final = 10
LOOP: Final = 11
DECIDED: Final = 31
KEPT: Final = 15
USAGE: Final = 24
LOADER: Final = 27
MARKER: Final = 6
SITE: Final = 7
STEPS_DONE: Final = 12
STOP: Final = 103
FLUSH: Final = 107
FLUSHED: Final = 42
AT_REST: Final = 108
STALLED: Final = 106
STALL_CLOCK: Final = 41
UNUSED_GPU: Final = 28
GPU_USED: Final = 45
ALONE: Final = 44
LOGGED: Final = 29
MODULE: Final = 47
MODULE_COUNTS: Final = 48
CHECKPOINT: Final = 30
TRACE: Final = 13
TRACE_NAME: Final = 14
TRACED: Final = 104
TRACED_WORK: Final = 105
STREAM_CREATE: Final = 16
STREAM_DESTROY: Final = 17
SEGMENT: Final = 18
SEGMENT_CONTENT: Final = 25
HISTORY_WORK: Final = 36
HISTORY_LIST: Final = 37
HISTORY: Final = 38
LOOKED: Final = 39
ATTRIBUTE_READ: Final = 43
EVENT_RECORD: Final = 19
RECORDING_DROP: Final = 20
STREAM_WAIT: Final = 21
HOST_WAIT: Final = 22
HOST_ADVANCE: Final = 23
NCCL_LAUNCH: Final = 32
DATA: Final = 96
NCCL_DATA: Final = 34
NCCL_SOURCES: Final = 35
CONNECT: Final = 55
COMM_DESTROY: Final = 33
COMM_INIT: Final = 64
COMM_SPLIT: Final = 65
COMM: Final = 97
CLOCK_READ: Final = 66
CLOCK: Final = 98
ELAPSED: Final = 67
ELAPSED_NS: Final = 99
QUERY: Final = 68
DONE: Final = 100
SOURCES_OF: Final = 70
SOURCES: Final = 102
COST: Final = 69
COST_OF: Final = 101

class Hello(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    version: int
    rank: int
    world_size: int
    server: int
    local_rank: int
    pid: int
    process: int
    pad: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, version: int, rank: int, world_size: int, server: int, local_rank: int, pid: int, process: int, pad: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Bye(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    exit_code: int
    pad: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, exit_code: int, pad: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Warning(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    code: int
    count: int  # type: ignore[assignment]
    payload: bytes
    @staticmethod
    def encode(host_ns: int, code: int, count: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Memory(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    device: int
    gpu: int
    allocated_peak: int
    reserved_peak: int
    device_peak: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, device: int, gpu: int, allocated_peak: int, reserved_peak: int, device_peak: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class MemoryHeld(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    device: int
    entries: int
    allocated: int
    reserved: int
    missing: int
    missing_allocated: int
    missing_reserved: int
    failures: int
    missing_site: int
    allocations: int
    least: int
    growth: int
    growth_steps: int
    growth_site: int
    points: int
    growth_equal: int
    expandable: int
    child: int
    parent: int
    gpu: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, device: int, entries: int, allocated: int, reserved: int, missing: int, missing_allocated: int, missing_reserved: int, failures: int, missing_site: int, allocations: int, least: int, growth: int, growth_steps: int, growth_site: int, points: int, growth_equal: int, expandable: int, child: int, parent: int, gpu: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class GpuMemory(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    gpu: int
    child: int
    parent: int
    ended: int
    taken: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, gpu: int, child: int, parent: int, ended: int, taken: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class MemoryHolder(NamedTuple):
    nbytes: int
    blocks: int
    held_as: int
    site: int
    pad: int
    @staticmethod
    def encode(nbytes: int, blocks: int, held_as: int, site: int, pad: int) -> bytes: ...  # noqa: E501
    @staticmethod
    def size() -> int: ...
    @classmethod
    def decode_all(cls, data: bytes, start: int, count: int) -> list[MemoryHolder]: ...

class ModuleMemory(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    device: int
    entries: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, device: int, entries: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class ModuleHeld(NamedTuple):
    nbytes: int
    blocks: int
    held_as: int
    module: int
    pad: int
    @staticmethod
    def encode(nbytes: int, blocks: int, held_as: int, module: int, pad: int) -> bytes: ...  # noqa: E501
    @staticmethod
    def size() -> int: ...
    @classmethod
    def decode_all(cls, data: bytes, start: int, count: int) -> list[ModuleHeld]: ...

class MemoryPoint(NamedTuple):
    most: int
    parameters: int
    gradients: int
    optimizer_state: int
    activations: int
    temporaries: int
    @staticmethod
    def encode(most: int, parameters: int, gradients: int, optimizer_state: int, activations: int, temporaries: int) -> bytes: ...  # noqa: E501
    @staticmethod
    def size() -> int: ...
    @classmethod
    def decode_all(cls, data: bytes, start: int, count: int) -> list[MemoryPoint]: ...

class Counters(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    launches: int
    flops: float
    host_work_ns: int
    api_calls: int
    ops: int
    unmodelled_reads: int
    refused_calls: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, launches: int, flops: float, host_work_ns: int, api_calls: int, ops: int, unmodelled_reads: int, refused_calls: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class LaunchCounts(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    entries: int
    pad: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, entries: int, pad: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class LaunchCount(NamedTuple):
    key: int
    launches: int
    slowed_ns: int
    at_site: int
    @staticmethod
    def encode(key: int, launches: int, slowed_ns: int, at_site: int) -> bytes: ...  # noqa: E501
    @staticmethod
    def size() -> int: ...
    @classmethod
    def decode_all(cls, data: bytes, start: int, count: int) -> list[LaunchCount]: ...

class Routing(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    calls: int
    layer: int
    chosen: int
    candidates: int
    pad: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, calls: int, layer: int, chosen: int, candidates: int, pad: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class DataSize(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    calls: int
    most: int
    chosen: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, calls: int, most: int, chosen: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Batch(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    responses: int
    pad: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, responses: int, pad: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Response(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    event: int
    response: int
    tokens: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, event: int, response: int, tokens: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class KvBlocks(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    used: int
    blocks: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, used: int, blocks: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Training(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Generation(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    batches: int
    responses: int
    ended: int
    tokens: int
    longest: int
    places: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, batches: int, responses: int, ended: int, tokens: int, longest: int, places: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class StatedValue(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    number: int
    pad: int
    reads: int
    computed: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, number: int, pad: int, reads: int, computed: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Loop(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    turns: int
    line: int
    stated: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, turns: int, line: int, stated: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Decided(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    reads: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, reads: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Kept(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    peak: int
    budget: int
    refused: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, peak: int, budget: int, refused: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Usage(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    user_ns: int
    system_ns: int
    reader_ns: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, user_ns: int, system_ns: int, reader_ns: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Loader(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    number: int
    workers: int
    prefetch: int
    waits: int
    batches: int
    measured: int
    cpu_ns: int
    latency_ns: int
    waited_ns: int
    step_batches: int
    step_waited_ns: int
    per_step: int
    pad: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, number: int, workers: int, prefetch: int, waits: int, batches: int, measured: int, cpu_ns: int, latency_ns: int, waited_ns: int, step_batches: int, step_waited_ns: int, per_step: int, pad: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Marker(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    marker: int
    pad: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, marker: int, pad: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Site(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    number: int
    line: int
    via_line: int
    caller_line: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, number: int, line: int, via_line: int, caller_line: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class StepsDone(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Stop(NamedTuple):
    kind: int
    site: int
    nbytes: int
    qid: int
    payload: bytes
    @staticmethod
    def encode(qid: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Flush(NamedTuple):
    kind: int
    site: int
    nbytes: int
    qid: int
    payload: bytes
    @staticmethod
    def encode(qid: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Flushed(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class AtRest(NamedTuple):
    kind: int
    site: int
    nbytes: int
    qid: int
    payload: bytes
    @staticmethod
    def encode(qid: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Stalled(NamedTuple):
    kind: int
    site: int
    nbytes: int
    qid: int
    at_ns: int
    entries: int
    pad: int
    payload: bytes
    @staticmethod
    def encode(qid: int, at_ns: int, entries: int, pad: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class StallClock(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    at_ns: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, at_ns: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class UnusedGpu(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class GpuUsed(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    gpu: int
    pad: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, gpu: int, pad: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Alone(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Logged(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    log_nbytes: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, log_nbytes: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Module(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    number: int
    pad: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, number: int, pad: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class ModuleCounts(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    entries: int
    step: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, entries: int, step: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class ModuleCount(NamedTuple):
    key: int
    launches: int
    slowed_ns: int
    module: int
    backward: int
    @staticmethod
    def encode(key: int, launches: int, slowed_ns: int, module: int, backward: int) -> bytes: ...  # noqa: E501
    @staticmethod
    def size() -> int: ...
    @classmethod
    def decode_all(cls, data: bytes, start: int, count: int) -> list[ModuleCount]: ...

class Checkpoint(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    offset: int
    written: int
    uncomputed: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, offset: int, written: int, uncomputed: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Trace(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    entries: int
    profiled: int
    first: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, entries: int, profiled: int, first: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class TraceEntry(NamedTuple):
    what: int
    thread: int
    at_ns: int
    key: int
    value: int
    number: int
    correlation: int
    @staticmethod
    def encode(what: int, thread: int, at_ns: int, key: int, value: int, number: int, correlation: int) -> bytes: ...  # noqa: E501
    @staticmethod
    def size() -> int: ...
    @classmethod
    def decode_all(cls, data: bytes, start: int, count: int) -> list[TraceEntry]: ...

class TraceName(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    key: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, key: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Traced(NamedTuple):
    kind: int
    site: int
    nbytes: int
    qid: int
    entries: int
    pad: int
    payload: bytes
    @staticmethod
    def encode(qid: int, entries: int, pad: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class TracedEntry(NamedTuple):
    number: int
    start_ns: int
    end_ns: int
    key: int
    device: int
    stream: int
    @staticmethod
    def encode(number: int, start_ns: int, end_ns: int, key: int, device: int, stream: int) -> bytes: ...  # noqa: E501
    @staticmethod
    def size() -> int: ...
    @classmethod
    def decode_all(cls, data: bytes, start: int, count: int) -> list[TracedEntry]: ...

class TracedWork(NamedTuple):
    kind: int
    site: int
    nbytes: int
    qid: int
    key: int
    moved_nbytes: int
    work: int
    shared_nbytes: int
    grid_x: int
    grid_y: int
    grid_z: int
    block_x: int
    block_y: int
    block_z: int
    payload: bytes
    @staticmethod
    def encode(qid: int, key: int, moved_nbytes: int, work: int, shared_nbytes: int, grid_x: int, grid_y: int, grid_z: int, block_x: int, block_y: int, block_z: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class StreamCreate(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    stream: int
    device: int
    priority: int
    pad: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, stream: int, device: int, priority: int, pad: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class StreamDestroy(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    stream: int
    pad: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, stream: int, pad: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Segment(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    stream: int
    launches: int
    solo_ns: int
    contended_ns: int
    tail_ns: int
    tail_work_ns: int
    content: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, stream: int, launches: int, solo_ns: int, contended_ns: int, tail_ns: int, tail_work_ns: int, content: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class SegmentContent(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    content: int
    entries: int
    pad: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, content: int, entries: int, pad: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class SegmentCost(NamedTuple):
    key: int
    launches: int
    @staticmethod
    def encode(key: int, launches: int) -> bytes: ...  # noqa: E501
    @staticmethod
    def size() -> int: ...
    @classmethod
    def decode_all(cls, data: bytes, start: int, count: int) -> list[SegmentCost]: ...

class HistoryWork(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    work: int
    modelled_ns: int
    rest_ns: int
    entries: int
    pad: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, work: int, modelled_ns: int, rest_ns: int, entries: int, pad: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class WorkCount(NamedTuple):
    kind: int
    pad: int
    units: int
    @staticmethod
    def encode(kind: int, pad: int, units: int) -> bytes: ...  # noqa: E501
    @staticmethod
    def size() -> int: ...
    @classmethod
    def decode_all(cls, data: bytes, start: int, count: int) -> list[WorkCount]: ...

class HistoryList(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    number: int
    entries: int
    pad: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, number: int, entries: int, pad: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class HistoryLaunch(NamedTuple):
    key: int
    work: int
    stream: int
    what: int
    @staticmethod
    def encode(key: int, work: int, stream: int, what: int) -> bytes: ...  # noqa: E501
    @staticmethod
    def size() -> int: ...
    @classmethod
    def decode_all(cls, data: bytes, start: int, count: int) -> list[HistoryLaunch]: ...

class History(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    entries: int
    pad: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, entries: int, pad: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class HistoryEntry(NamedTuple):
    launches: int
    work: int
    kind: int
    inside: int
    @staticmethod
    def encode(launches: int, work: int, kind: int, inside: int) -> bytes: ...  # noqa: E501
    @staticmethod
    def size() -> int: ...
    @classmethod
    def decode_all(cls, data: bytes, start: int, count: int) -> list[HistoryEntry]: ...

class Looked(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    device: int
    at_site: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, device: int, at_site: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class AttributeRead(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    at_site: int
    pad: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, at_site: int, pad: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class EventRecord(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    stream: int
    pad: int
    recording: int
    drop: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, stream: int, pad: int, recording: int, drop: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class RecordingDrop(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    recording: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, recording: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class StreamWait(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    stream: int
    pad: int
    recording: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, stream: int, pad: int, recording: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class HostWait(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    scope: int
    stream: int
    recording: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, scope: int, stream: int, recording: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class HostAdvance(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class NcclLaunch(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    stream: int
    nops: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, stream: int, nops: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class NcclOp(NamedTuple):
    comm: int
    seq: int
    op: int
    dtype: int
    redop: int
    peer: int
    count: int  # type: ignore[assignment]
    token: int
    data_nbytes: int
    scale: float
    @staticmethod
    def encode(comm: int, seq: int, op: int, dtype: int, redop: int, peer: int, count: int, token: int, data_nbytes: int, scale: float) -> bytes: ...  # noqa: E501
    @staticmethod
    def size() -> int: ...
    @classmethod
    def decode_all(cls, data: bytes, start: int, count: int) -> list[NcclOp]: ...

class Data(NamedTuple):
    kind: int
    site: int
    nbytes: int
    qid: int
    token: int
    assumed: int
    payload: bytes
    @staticmethod
    def encode(qid: int, token: int, assumed: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class NcclData(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    comm: int
    seq: int
    op: int
    peer: int
    assumed: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, comm: int, seq: int, op: int, peer: int, assumed: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class NcclSources(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    comm: int
    seq: int
    key_low: int
    key_high: int
    op: int
    root: int
    place: int
    entry: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, comm: int, seq: int, key_low: int, key_high: int, op: int, root: int, place: int, entry: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class SourceTable(NamedTuple):
    key_low: int
    key_high: int
    entry: int
    pad: int
    @staticmethod
    def encode(key_low: int, key_high: int, entry: int, pad: int) -> bytes: ...  # noqa: E501
    @staticmethod
    def size() -> int: ...
    @classmethod
    def decode_all(cls, data: bytes, start: int, count: int) -> list[SourceTable]: ...

class Connect(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    comm: int
    npeers: int
    waits: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, comm: int, npeers: int, waits: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class ConnectPeer(NamedTuple):
    peer: int
    ends: int
    @staticmethod
    def encode(peer: int, ends: int) -> bytes: ...  # noqa: E501
    @staticmethod
    def size() -> int: ...
    @classmethod
    def decode_all(cls, data: bytes, start: int, count: int) -> list[ConnectPeer]: ...

class CommDestroy(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    comm: int
    aborted: int
    pad: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, comm: int, aborted: int, pad: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class CommInit(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    qid: int
    nranks: int
    rank: int
    device: int
    pad: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, qid: int, nranks: int, rank: int, device: int, pad: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class CommSplit(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    qid: int
    parent: int
    color: int
    key: int
    seq: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, qid: int, parent: int, color: int, key: int, seq: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Comm(NamedTuple):
    kind: int
    site: int
    nbytes: int
    qid: int
    comm: int
    rank: int
    nranks: int
    made_nbytes: int
    ring_nbytes: int
    tree_nbytes: int
    multicast_nbytes: int
    send_nbytes: int
    receive_nbytes: int
    net_send_nbytes: int
    net_receive_nbytes: int
    tree_sizes: int
    multicast_sizes: int
    gather_sizes: int
    first_near: int
    near: int
    payload: bytes
    @staticmethod
    def encode(qid: int, comm: int, rank: int, nranks: int, made_nbytes: int, ring_nbytes: int, tree_nbytes: int, multicast_nbytes: int, send_nbytes: int, receive_nbytes: int, net_send_nbytes: int, net_receive_nbytes: int, tree_sizes: int, multicast_sizes: int, gather_sizes: int, first_near: int, near: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class ClockRead(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    qid: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, qid: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Clock(NamedTuple):
    kind: int
    site: int
    nbytes: int
    qid: int
    now_ns: int
    room: int
    payload: bytes
    @staticmethod
    def encode(qid: int, now_ns: int, room: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Elapsed(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    qid: int
    start_recording: int
    end_recording: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, qid: int, start_recording: int, end_recording: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class ElapsedNs(NamedTuple):
    kind: int
    site: int
    nbytes: int
    qid: int
    elapsed_ns: int
    ready: int
    pad: int
    payload: bytes
    @staticmethod
    def encode(qid: int, elapsed_ns: int, ready: int, pad: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Query(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    qid: int
    recording: int
    since_ns: int
    scope: int
    stream: int
    turns: int
    pad: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, qid: int, recording: int, since_ns: int, scope: int, stream: int, turns: int, pad: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Done(NamedTuple):
    kind: int
    site: int
    nbytes: int
    qid: int
    done: int
    turns: int
    payload: bytes
    @staticmethod
    def encode(qid: int, done: int, turns: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class SourcesOf(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    qid: int
    comm: int
    seq: int
    op: int
    root: int
    place: int
    pad: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, qid: int, comm: int, seq: int, op: int, root: int, place: int, pad: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Sources(NamedTuple):
    kind: int
    site: int
    nbytes: int
    qid: int
    tables: int
    pad: int
    payload: bytes
    @staticmethod
    def encode(qid: int, tables: int, pad: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class Cost(NamedTuple):
    kind: int
    site: int
    nbytes: int
    host_ns: int
    qid: int
    key: int
    payload: bytes
    @staticmethod
    def encode(host_ns: int, qid: int, key: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class CostOf(NamedTuple):
    kind: int
    site: int
    nbytes: int
    qid: int
    solo_ns: int
    contended_ns: int
    flops: float
    source: int
    power: int
    clocked: int
    leaves: int
    payload: bytes
    @staticmethod
    def encode(qid: int, solo_ns: int, contended_ns: int, flops: float, source: int, power: int, clocked: int, leaves: int, *, payload: bytes = ..., site: int = ...) -> bytes: ...  # noqa: E501

class CostHeader(NamedTuple):
    version: int
    entry_nbytes: int
    capacity: int
    @staticmethod
    def encode(version: int, entry_nbytes: int, capacity: int) -> bytes: ...  # noqa: E501
    @staticmethod
    def size() -> int: ...
    @classmethod
    def decode_all(cls, data: bytes, start: int, count: int) -> list[CostHeader]: ...

class CostEntry(NamedTuple):
    key: int
    solo_ns: int
    contended_ns: int
    flops: float
    source: int
    power: int
    clocked: int
    leaves: int
    @staticmethod
    def encode(key: int, solo_ns: int, contended_ns: int, flops: float, source: int, power: int, clocked: int, leaves: int) -> bytes: ...  # noqa: E501
    @staticmethod
    def size() -> int: ...
    @classmethod
    def decode_all(cls, data: bytes, start: int, count: int) -> list[CostEntry]: ...

class ExitKind(IntEnum):
    INTERNAL = 70
    DISCONNECTED = 76

class HeldKind(IntEnum):
    PARAMETERS = 1
    GRADIENTS = 2
    OPTIMIZER_STATE = 3
    ACTIVATIONS = 4
    TEMPORARIES = 5

class ResponseEventKind(IntEnum):
    ARRIVED = 1
    FIRST = 2
    ENDED = 3
    DROPPED = 4

class MarkerKind(IntEnum):
    STEP = 1
    NAMED = 2

class OutsideKind(IntEnum):
    OPTIMIZER = 65535

class TraceKind(IntEnum):
    LAUNCH = 1
    CALL = 2
    RANGE = 3
    RANGE_END = 4
    NCCL = 5
    MEMORY = 6
    STREAM_WAIT = 7
    EVENT_SYNC = 8
    STREAM_SYNC = 9
    DEVICE_SYNC = 10

class TracedKind(IntEnum):
    KERNEL = 1
    COPY = 2
    FILL = 3

class DeviceKind(IntEnum):
    APART = 65536

class HistoryKind(IntEnum):
    NODE = 0
    QUEUED = 1
    HOST_COPY = 2

class ScopeKind(IntEnum):
    STREAM = 1
    EVENT = 2
    DEVICE = 3

class NcclKind(IntEnum):
    ALL_REDUCE = 1
    ALL_GATHER = 2
    REDUCE_SCATTER = 3
    BROADCAST = 4
    REDUCE = 5
    ALL_TO_ALL = 6
    SEND = 7
    RECV = 8
    GATHER = 9
    SCATTER = 10

class RedopKind(IntEnum):
    PREMULSUM = 5

class MessageKind(IntEnum):
    OF_GATHER = 256
    OF_SCATTER = 512

class EndKind(IntEnum):
    SENDS = 1
    RECEIVES = 2

class LoopKind(IntEnum):
    FREE = 8

class SourceKind(IntEnum):
    MEASURED = 1
    INTERPOLATED = 2
    ROOFLINE = 3
    UNRECOGNISED = 4
