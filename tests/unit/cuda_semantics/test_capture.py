"""Stream capture: what it forbids, with which error, and what that leaves of the capture."""

from __future__ import annotations

import ctypes
import threading

import pytest

from .harness import (
    BLOCKING,
    CAPTURED,
    D2D,
    DEFAULT,
    DISABLE_TIMING,
    EXTERNAL,
    GLOBAL,
    ILLEGAL_STATE,
    INVALID_VALUE,
    INVALIDATED,
    LEGACY,
    MERGE,
    NONBLOCKING,
    OK,
    PER_THREAD,
    RELAXED,
    THREAD_LOCAL,
    UNSUPPORTED,
)

ANSWERS = """
nothing                0/0     0/0     0/0      0/0     0/0     0/0
malloc                 900/901 900/901 0/0      900/901 900/901 0/0
free                   900/901 900/901 0/0      900/901 900/901 0/0
free null              900/901 900/901 0/0      900/901 900/901 0/0
host alloc             900/901 900/901 0/0      900/901 900/901 0/0
host free              900/901 900/901 0/0      900/901 900/901 0/0
host register          900/901 900/901 0/0      900/901 900/901 0/0
malloc async elsewhere 900/901 900/901 0/0      900/901 900/901 0/0
event query            900/901 900/901 0/0      900/901 900/901 0/0
event query never      900/901 900/901 0/0      900/901 900/901 0/0
event sync             900/901 900/901 0/0      900/901 900/901 0/0
elapsed                0/0     0/0     0/0      0/0     0/0     0/0
query other            900/901 900/901 0/0      900/901 900/901 0/0
sync other             900/901 900/901 0/0      900/901 900/901 0/0
sync device            900/901 900/901 900/901  900/901 900/901 900/901
sync captured          900/901 900/901 900/901  900/901 900/901 900/901
query captured         900/901 900/901 900/901  900/901 900/901 900/901
query legacy           900/901 900/901 0/0      906/901 906/901 906/901
sync legacy            900/901 900/901 0/0      906/901 906/901 906/901
kernel legacy          0/0     0/0     0/0      906/901 906/901 906/901
record legacy          0/0     0/0     0/0      906/901 906/901 906/901
set legacy             0/0     0/0     0/0      906/901 906/901 906/901
wait legacy            0/0     0/0     0/0      906/901 906/901 906/901
copy sync              0/0     0/0     0/0      906/901 906/901 906/901
copy sync d2d          0/0     0/0     0/0      906/901 906/901 906/901
set sync               0/0     0/0     0/0      906/901 906/901 906/901
kernel other           0/0     0/0     0/0      0/0     0/0     0/0
record other           0/0     0/0     0/0      0/0     0/0     0/0
event create           0/0     0/0     0/0      0/0     0/0     0/0
stream create          0/0     0/0     0/0      0/0     0/0     0/0
memory info            0/0     0/0     0/0      0/0     0/0     0/0
wait uncaptured        905/901 905/901 905/901  905/901 905/901 905/901
wait never             0/0     0/0     0/0      0/0     0/0     0/0
wait external          0/0     0/0     0/0      0/0     0/0     0/0
record external        0/0     0/0     0/0      0/0     0/0     0/0
copy from pageable     0/0     0/0     0/0      0/0     0/0     0/0
copy to pageable       0/0     0/0     0/0      0/0     0/0     0/0
copy between hosts     0/0     0/0     0/0      0/0     0/0     0/0
query captured event   907/901 907/901 907/901  907/901 907/901 907/901
sync captured event    907/901 907/901 907/901  907/901 907/901 907/901
elapsed captured event 907/0   907/0   907/0    907/0   907/0   907/0
destroy captured event 0/0     0/0     0/0      0/0     0/0     0/0
legacy waits captured  906/901 906/901 906/901  906/901 906/901 906/901
begin again            401/0   401/0   401/0    401/0   401/0   401/0
destroy joined stream  0/0     0/0     0/0      0/0     0/0     0/0
callback               900/901 900/901 900/901  900/901 900/901 900/901
host function          0/0     0/0     0/0      0/0     0/0     0/0
graph into captured    900/901 900/901 900/901  900/901 900/901 900/901
graph elsewhere        0/0     0/0     0/0      0/0     0/0     0/0
end on side            903/901 903/901 903/901  903/901 903/901 903/901
side unjoined          0/904   0/904   0/904    0/904   0/904   0/904
idle side unjoined     0/0     0/0     0/0      0/0     0/0     0/0
kernel when invalid    901/901 901/901 901/901  901/901 901/901 901/901
record when invalid    901/901 901/901 901/901  901/901 901/901 901/901
malloc in thread       900/901 0/0     0/0      900/901 0/0     0/0
end in thread          908/401 908/401 0/401    908/401 908/401 0/401
malloc when relaxed    0/0     0/0     0/0      0/0     0/0     0/0
"""
"""The answers of driver 580 with CUDA 13.0 on an H100 to one call during a capture, then to cudaStreamEndCapture. Three
columns for the capture's modes global, thread-local and relaxed in a non-blocking stream, then three in a blocking one.
"""


def answers() -> dict[str, list[str]]:
    return {line[:22].strip(): line[22:].split() for line in ANSWERS.strip().splitlines()}


class Calls:
    """One call each, made while the stream ``x`` is being captured; every method answers the call's status."""

    def __init__(self, gpu):
        self.gpu, self.other, self.done, self.never = gpu, gpu.stream(), gpu.record(gpu.stream()), gpu.event()
        self.executable = gpu.graph(self.other, lambda: gpu.run(10, self.other))
        self.device, self.more = gpu.malloc(64), gpu.malloc(64)
        self.pageable, self.pageable_too = gpu.buffer(64), gpu.buffer(64)
        self.function = gpu.function(lambda: None)
        self.out = ctypes.c_void_p()
        self.x = 0

    def prepare(self, x: int) -> None:
        self.x, self.side = x, self.gpu.stream()
        self.memory, self.pinned, self.event = self.gpu.malloc(64), self.gpu.host(64), self.gpu.event(DISABLE_TIMING)

    def captured(self) -> int:
        assert self.gpu.cudaEventRecord(self.event, self.x) == OK
        return self.event

    def fork(self) -> int:
        assert self.gpu.cudaStreamWaitEvent(self.side, self.captured(), 0) == OK
        return self.side

    def invalid(self) -> int:
        assert self.gpu.cudaStreamQuery(self.x) == UNSUPPORTED
        return self.x

    def in_thread(self, call):
        found = []
        thread = threading.Thread(target=lambda: found.append(call()))
        thread.start()
        thread.join()
        return found[0]

    def relaxed(self, call):
        mode = ctypes.c_int(RELAXED)
        self.gpu.cudaThreadExchangeStreamCaptureMode(ctypes.byref(mode))
        status = call()
        self.gpu.cudaThreadExchangeStreamCaptureMode(ctypes.byref(mode))
        return status

    def register(self) -> int:
        return self.gpu.cudaHostRegister(self.pageable, 64, 0) or self.gpu.cudaHostUnregister(self.pageable)

    def ended_on_side(self) -> int:
        side = self.fork()
        status, _ = self.gpu.end(side)
        self.gpu.cudaEventRecord(self.event, side)
        self.gpu.cudaStreamWaitEvent(self.x, self.event, 0)
        return status

    def make(self, name: str) -> int:
        gpu, x, out = self.gpu, self.x, ctypes.byref(self.out)
        one, two, host = self.device, self.more, self.pageable
        calls = {
            "nothing": lambda: OK,
            "malloc": lambda: gpu.cudaMalloc(out, 64),
            "free": lambda: gpu.cudaFree(self.memory),
            "free null": lambda: gpu.cudaFree(None),
            "host alloc": lambda: gpu.cudaMallocHost(out, 64),
            "host free": lambda: gpu.cudaFreeHost(self.pinned),
            "host register": self.register,
            "malloc async elsewhere": lambda: gpu.cudaMallocAsync(out, 64, self.other),
            "event query": lambda: gpu.cudaEventQuery(self.done),
            "event query never": lambda: gpu.cudaEventQuery(self.never),
            "event sync": lambda: gpu.cudaEventSynchronize(self.done),
            "elapsed": lambda: gpu.elapsed(self.done, self.done)[0],
            "query other": lambda: gpu.cudaStreamQuery(self.other),
            "sync other": lambda: gpu.cudaStreamSynchronize(self.other),
            "sync device": gpu.cudaDeviceSynchronize,
            "sync captured": lambda: gpu.cudaStreamSynchronize(x),
            "query captured": lambda: gpu.cudaStreamQuery(x),
            "query legacy": lambda: gpu.cudaStreamQuery(LEGACY),
            "sync legacy": lambda: gpu.cudaStreamSynchronize(LEGACY),
            "kernel legacy": lambda: gpu.run(1, LEGACY),
            "record legacy": lambda: gpu.cudaEventRecord(gpu.event(), LEGACY),
            "set legacy": lambda: gpu.cudaMemsetAsync(one, 0, 4, LEGACY),
            "wait legacy": lambda: gpu.cudaStreamWaitEvent(LEGACY, self.done, 0),
            "copy sync": lambda: gpu.cudaMemcpy(one, host, 4, DEFAULT),
            "copy sync d2d": lambda: gpu.cudaMemcpy(one, two, 4, D2D),
            "set sync": lambda: gpu.cudaMemset(one, 0, 4),
            "kernel other": lambda: gpu.run(1, self.other),
            "record other": lambda: gpu.cudaEventRecord(gpu.event(), self.other),
            "event create": lambda: gpu.cudaEventDestroy(gpu.event()),
            "stream create": lambda: gpu.cudaStreamDestroy(gpu.stream()),
            "memory info": lambda: gpu.cudaMemGetInfo(out, ctypes.byref(ctypes.c_size_t())),
            "wait uncaptured": lambda: gpu.cudaStreamWaitEvent(x, self.done, 0),
            "wait never": lambda: gpu.cudaStreamWaitEvent(x, self.never, 0),
            "wait external": lambda: gpu.cudaStreamWaitEvent(x, self.done, EXTERNAL),
            "record external": lambda: gpu.cudaEventRecordWithFlags(gpu.event(), x, EXTERNAL),
            "copy from pageable": lambda: gpu.cudaMemcpyAsync(one, host, 64, DEFAULT, x),
            "copy to pageable": lambda: gpu.cudaMemcpyAsync(host, one, 64, DEFAULT, x),
            "copy between hosts": lambda: gpu.cudaMemcpyAsync(host, self.pageable_too, 64, DEFAULT, x),
            "query captured event": lambda: gpu.cudaEventQuery(self.captured()),
            "sync captured event": lambda: gpu.cudaEventSynchronize(self.captured()),
            "elapsed captured event": lambda: gpu.elapsed(self.done, self.timed())[0],
            "destroy captured event": lambda: gpu.cudaEventDestroy(self.captured()),
            "legacy waits captured": lambda: gpu.cudaStreamWaitEvent(LEGACY, self.captured(), 0),
            "begin again": lambda: gpu.cudaStreamBeginCapture(x, RELAXED),
            "destroy joined stream": lambda: gpu.cudaStreamDestroy(self.fork()),
            "callback": lambda: gpu.cudaStreamAddCallback(x, self.function, None, 0),
            "host function": lambda: gpu.cudaLaunchHostFunc(x, self.function, None),
            "graph into captured": lambda: gpu.cudaGraphLaunch(self.executable, x),
            "graph elsewhere": lambda: gpu.cudaGraphLaunch(self.executable, self.other),
            "end on side": self.ended_on_side,
            "side unjoined": lambda: gpu.run(1, self.fork()),
            "idle side unjoined": lambda: self.fork() and OK,
            "kernel when invalid": lambda: gpu.run(1, self.invalid()),
            "record when invalid": lambda: gpu.cudaEventRecord(self.event, self.invalid()),
            "malloc in thread": lambda: self.in_thread(lambda: gpu.cudaMalloc(out, 64)),
            "end in thread": lambda: self.in_thread(lambda: gpu.end(x)[0]),
            "malloc when relaxed": lambda: self.relaxed(lambda: gpu.cudaMalloc(out, 64)),
        }
        return calls[name]()

    def timed(self) -> int:
        event = self.gpu.event()
        assert self.gpu.cudaEventRecord(event, self.x) == OK
        return event


@pytest.mark.parametrize("name", answers())
def test_a_call_during_a_capture_answers_as_the_driver_does(simulate, name):
    def program(gpu):
        calls, found = Calls(gpu), []
        for flags in (NONBLOCKING, BLOCKING):
            for mode in (GLOBAL, THREAD_LOCAL, RELAXED):
                x = gpu.stream(flags)
                calls.prepare(x)
                assert gpu.cudaStreamBeginCapture(x, mode) == OK
                assert gpu.run(1, x) == OK
                status = calls.make(name)
                ended, graph = gpu.end(x)
                assert bool(graph) == (ended == OK)
                found.append(f"{status}/{ended}")
                capturing = ctypes.c_int()
                assert gpu.cudaStreamIsCapturing(x, ctypes.byref(capturing)) == OK
                assert capturing.value == 0
                assert gpu.cudaDeviceSynchronize() == OK
        return found

    assert simulate(program) == answers()[name]


def test_two_captures_that_an_event_would_join_are_both_lost(simulate):
    def program(gpu):
        x, y, event = gpu.stream(), gpu.stream(), gpu.event(DISABLE_TIMING)
        gpu.cudaStreamBeginCapture(x, RELAXED)
        gpu.cudaStreamBeginCapture(y, RELAXED)
        gpu.cudaEventRecord(event, y)
        return gpu.cudaStreamWaitEvent(x, event, 0), gpu.end(x), gpu.end(y)

    assert simulate(program) == (MERGE, (INVALIDATED, 0), (INVALIDATED, 0))


def test_an_event_of_a_capture_that_has_ended_stands_for_nothing(simulate):
    def program(gpu):
        x, event, done, other = gpu.stream(), gpu.event(), gpu.record(), gpu.stream()
        gpu.cudaStreamBeginCapture(x, GLOBAL)
        gpu.cudaEventRecord(event, x)
        ended = gpu.end(x)[0]
        answers = [
            gpu.cudaEventQuery(event),
            gpu.cudaEventSynchronize(event),
            gpu.elapsed(done, event)[0],
            gpu.cudaStreamWaitEvent(other, event, 0),
        ]
        gpu.cudaEventRecord(event, other)
        return ended, answers, gpu.cudaEventQuery(event)

    assert simulate(program) == (OK, [INVALID_VALUE] * 4, OK)


def test_where_a_capture_can_begin_and_end(simulate):
    def program(gpu):
        x = gpu.stream()
        return (
            gpu.end(x)[0],
            gpu.cudaStreamBeginCapture(LEGACY, GLOBAL),
            gpu.cudaStreamBeginCapture(x, 5),
            gpu.cudaStreamBeginCapture(PER_THREAD, GLOBAL),
            gpu.end(PER_THREAD)[0],
        )

    assert simulate(program) == (ILLEGAL_STATE, UNSUPPORTED, INVALID_VALUE, OK, OK)


def test_a_captured_event_passes_membership_on_and_ending_takes_it_back(simulate):
    def program(gpu):
        x, side, event = gpu.stream(), gpu.stream(), gpu.event(DISABLE_TIMING)
        status, found = ctypes.c_int(), []

        def look():
            gpu.cudaStreamIsCapturing(side, ctypes.byref(status))
            found.append(status.value)

        gpu.cudaStreamBeginCapture(x, GLOBAL)
        look()
        gpu.cudaEventRecord(event, x)
        gpu.cudaStreamWaitEvent(side, event, 0)
        look()
        query = gpu.cudaEventQuery(event)
        look()
        gpu.end(x)
        look()
        return found, query

    none, active, invalidated = 0, 1, 2
    assert simulate(program) == ([none, active, invalidated, none], CAPTURED)
