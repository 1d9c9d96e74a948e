"""One rank end to end: a program that calls CUDA, the real hook library, a real socket, real virtual time.

``simulate(program)`` runs ``program(gpu)`` in a forked child and returns what it returns. Nothing costs host time
unless the program says so (``gpu.work(ns)``) or the device file does, a kernel takes as long as its launch says, a copy
or set one nanosecond a byte: so every instant can be computed by hand.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import socket
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from emu.contract import records
from phantora_async.ingest.costs import Costs, CostTable
from phantora_async.ingest.fact_builder import FactBuilder
from phantora_async.virtual_time import Timeline
from profiles.models.power import NOTHING
from tests.unit.hook.coordinator import Dim3, Rank, device_file
from tests.unit.virtual_time.scripted import FixedNetwork

H2H, H2D, D2H, D2D, DEFAULT = range(5)
BLOCKING, NONBLOCKING = 0, 1
LEGACY, PER_THREAD = 1, 2
DISABLE_TIMING = 2
EXTERNAL = 1
GLOBAL, THREAD_LOCAL, RELAXED = range(3)
OK, INVALID_VALUE, INVALID_HANDLE, ILLEGAL_STATE, NOT_READY = 0, 1, 400, 401, 600
UNSUPPORTED, INVALIDATED, MERGE, UNMATCHED, UNJOINED, ISOLATION, IMPLICIT, CAPTURED, WRONG_THREAD = range(900, 909)
FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_NUMBER = (int, type(None))


class _MadeUpCosts:
    """A cost model in which a kernel is named by its duration, and copies and sets take a nanosecond a byte."""

    def cost(self, signature: str) -> Any:
        kind, *rest = signature.split(";")
        solo_ns = int(rest[1] if kind == "copy" else rest[0])
        return SimpleNamespace(
            solo_ns=solo_ns, contended_ns=solo_ns, flops=0.0, source=records.SourceKind.ROOFLINE, draw=NOTHING
        )


class _Simulation(threading.Thread):
    """The coordinator of one rank: every record goes through the fact builder into the timeline, every answer back."""

    def __init__(self, folder: Path, queue_depth: int) -> None:
        super().__init__(daemon=True)
        self.path, self.cost_table = str(folder / "socket"), folder / "costs"
        self.failure: BaseException | None = None
        self._fact_builder = FactBuilder(1, Costs(_MadeUpCosts(), CostTable(self.cost_table, 1 << 10)))
        self._timeline = Timeline(1, FixedNetwork(), queue_depth)
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(self.path)
        self._server.listen()

    def run(self) -> None:
        connection, _ = self._server.accept()
        self._server.close()
        with connection:
            try:
                self._serve(connection)
            except BaseException as failure:
                self.failure = failure

    def _serve(self, connection: socket.socket) -> None:
        pending = b""
        while data := connection.recv(1 << 16):
            found, taken = records.decode_up(pending + data)
            pending = (pending + data)[taken:]
            self._timeline.feed(0, self._fact_builder.take(0, found))
            self._timeline.run(1 << 30)
            answers = [*self._fact_builder.take_answers(), *self._timeline.take_answers()]
            if answers:
                connection.sendall(b"".join(answer for _, answer in answers))


class Gpu(Rank):
    """A rank's CUDA. Calls by name answer their status: ``gpu.cudaStreamQuery(stream)``."""

    def __init__(self, library: Path, device_file: Path) -> None:
        super().__init__(library, device_file)
        self._kernels: dict[int, int] = {}
        self._functions: list[Any] = []
        self._start = 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("cu") and not name.startswith("__cuda"):
            raise AttributeError(name)
        function = self.c[name]

        def call(*arguments: Any) -> int:
            # Handles and sizes are 64 bits wide, which also suits every narrower integer in a register.
            return int(function(*(ctypes.c_void_p(a) if isinstance(a, _NUMBER) else a for a in arguments)))

        return call

    def now(self) -> int:
        """Returns the virtual time since ``begin``, in ns."""
        return int(self.c.phantora_clock_ns()) - self._start

    def work(self, for_ns: int) -> None:
        """Keeps the host busy."""
        self.c.phantora_advance_ns(for_ns)

    def run(self, for_ns: int, stream: int = 0, call: str = "cudaLaunchKernel") -> int:
        """Launches a kernel of that duration."""
        if for_ns not in self._kernels:
            self._kernels[for_ns] = self.kernel(str(for_ns))
        return int(getattr(self, call)(self._kernels[for_ns], Dim3(1, 1, 1), Dim3(128, 1, 1), None, 0, stream))

    def record(self, stream: int = 0, flags: int = 0) -> int:
        """Makes a new event and records it."""
        event = self.event(flags)
        assert self.cudaEventRecord(event, stream) == OK
        return event

    def at(self, event: int) -> int:
        """Returns when a recorded event was complete, in ns of virtual time; waits for it if it is not yet."""
        assert self.cudaEventSynchronize(event) == OK
        ms = ctypes.c_float()
        assert self.cudaEventElapsedTime(ctypes.byref(ms), self._zero, event) == OK
        return round(ms.value * 1e6)

    def elapsed(self, start: int, end: int) -> tuple[int, float]:
        """Calls cudaEventElapsedTime: returns (status, ns)."""
        ms = ctypes.c_float(-1.0)
        status = self.cudaEventElapsedTime(ctypes.byref(ms), start, end)
        return status, round(ms.value * 1e6)

    def takes(self, call: Callable[[], int]) -> int:
        """Returns the host time that a successful call takes, waiting included, in ns."""
        before = self.now()
        assert call() == OK
        return self.now() - before

    def begin(self) -> None:
        """Makes the present instant 0: nothing is under way."""
        assert self.cudaSetDevice(0) == OK
        stream = self.stream(NONBLOCKING)
        self._zero = self.record(stream)
        self._start = int(self.c.phantora_clock_ns())

    def function(self, body: Callable[[], None]) -> Any:
        """Makes a host function for cudaLaunchHostFunc."""
        made = FUNCTION(lambda _: body())
        self._functions.append(made)
        return made

    def graph(self, stream: int, fill: Callable[[], object], mode: int = GLOBAL) -> int:
        """Captures what `fill` gives to the stream, and returns the graph, instantiated."""
        assert self.cudaStreamBeginCapture(stream, mode) == OK
        fill()
        status, graph = self.end(stream)
        assert status == OK
        executable = ctypes.c_void_p()
        assert self.cudaGraphInstantiate(ctypes.byref(executable), graph, 0) == OK
        return executable.value or 0

    def end(self, stream: int) -> tuple[int, int]:
        """Calls cudaStreamEndCapture: returns (status, graph)."""
        graph = ctypes.c_void_p()
        status = self.cudaStreamEndCapture(stream, ctypes.byref(graph))
        return status, graph.value or 0

    def buffer(self, nbytes: int) -> int:
        """Makes a buffer in pageable host memory."""
        memory = ctypes.create_string_buffer(nbytes)
        self._functions.append(memory)
        return ctypes.addressof(memory)


def simulate(
    library: Path, folder: Path, program: Callable[[Gpu], Any], *, queue_depth: int = 1024, **device: object
) -> Any:
    """Runs the program from instant 0 as the only rank of a server with two GPUs; returns what it returned.

    `device`: lines of the device file (``host_ns__launch=5``). What the program raises, and what the simulation does,
    fails the test.
    """
    file = device_file(folder, **device)
    simulation = _Simulation(folder, queue_depth)
    simulation.start()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 99
        try:
            gpu = Gpu(library, file)
            start = gpu.c.phantora_start(simulation.path.encode(), str(simulation.cost_table).encode(), 0, 1, 0, 0)
            assert start == 0, start
            gpu.begin()
            with os.fdopen(write, "wb") as out:
                pickle.dump(program(gpu), out)
            gpu.c.phantora_finish(0, b"")
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as told:
        answer = told.read()
    _, ended = os.waitpid(child, 0)
    simulation.join()
    if simulation.failure is not None:
        raise simulation.failure
    assert os.waitstatus_to_exitcode(ended) == 0, "the program failed; its traceback is in what the test printed"
    return pickle.loads(answer)
