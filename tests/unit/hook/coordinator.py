"""A coordinator for the hook's tests: takes every record, answers questions by the functions it is given.

``running(program)`` runs ``program(hook)`` as a rank, in a forked child that loads the library, and returns what the
rank said. Programs talk to the library by ctypes, as torch does by linking.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from emu.contract import records
from phantora_async.ingest.costs import LEAVING
from profiles import load_gpu


def gpu_attributes(gpu: str) -> dict[str, int]:
    """Returns the device attributes of a described GPU, as the device file has them: attr.39 and so on."""
    lines = (line.partition("=") for line in load_gpu(gpu).device_file_lines())
    return {key: int(value) for key, _, value in lines if key.startswith("attr.")}


DEVICE_FILE: dict[str, Any] = {
    "device_name": "NVIDIA Test",
    "device_count": 2,
    "memory_nbytes": 1 << 30,
    "reserved_nbytes": 64 << 20,
    "sm_count": 132,
    "cc_major": 9,
    "cc_minor": 0,
    "data_limit_nbytes": 1 << 20,
    "host_mode": "modelled",
    **gpu_attributes("h100"),
}


def device_file(folder: Path, **more: object) -> Path:
    """Writes a device file: DEVICE_FILE with ``more``, whose names have __ for a dot."""
    settings = DEVICE_FILE | {key.replace("__", "."): value for key, value in more.items()}
    path = folder / "device"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


NCCL_SIZES = 13
"""The fields of a communicator's answer that say what NCCL takes of the GPU's memory: nothing here."""
CAPACITY, ENTRY_NBYTES = 1 << 10, records.CostEntry.size()
GRID, BLOCK = (1, 1, 1), (128, 1, 1)


class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


class VanishError(Exception):
    """Raised by an answer: the coordinator is gone."""


class Coordinator(threading.Thread):
    """Serves one rank. ``cost(signature)`` is (solo_ns, contended_ns), and power and clocked if they are not 0;
    ``answer(record)`` any other reply's fields. A signature that has the word "unknown" in it is not recognised.
    """

    def __init__(self, folder: Path, cost: Callable[[str], tuple[int, ...]], answer: Callable[[Any], tuple[Any, ...]]):
        super().__init__(daemon=True)
        self.path = str(folder / "socket")
        self.cost_table = str(folder / "costs")
        Path(self.cost_table).write_bytes(
            struct.pack("<IIQ", records.VERSION, ENTRY_NBYTES, CAPACITY) + bytes(ENTRY_NBYTES * CAPACITY)
        )
        self.records: list[Any] = []
        self.signatures: list[str] = []
        self.paused = threading.Event()
        self.paused.set()
        self._cost, self._answer = cost, answer
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(self.path)
        self._server.listen()
        self.connection: socket.socket | None = None

    def run(self) -> None:
        self.connection, _ = self._server.accept()
        self._server.close()
        with self.connection, suppress(VanishError, BrokenPipeError, ConnectionResetError):
            self._serve(self.connection)  # to its end: the rank may end before it has heard an answer

    def _serve(self, connection: socket.socket) -> None:
        pending = b""
        while data := connection.recv(1 << 16):
            self.paused.wait()
            found, taken = records.decode_up(pending + data)
            pending = (pending + data)[taken:]
            for record in found:
                self.records.append(record)
                self._reply(record)

    def _reply(self, record: Any) -> None:
        if record.kind == records.COST:
            signature = record.payload.rstrip(b"\0").decode()
            self.signatures.append(signature)
            solo, contended, *drawn = self._cost(signature)
            power, clocked = drawn or (0, 0)
            known = "unknown" not in signature
            source = records.SourceKind.ROOFLINE if known else records.SourceKind.UNRECOGNISED
            leaves = signature.startswith(LEAVING)
            self.tell(records.CostOf.encode(record.qid, solo, contended, 1.0, source, power, clocked, leaves))
        elif record.kind == records.BYE:
            with suppress(BrokenPipeError):  # the rank does not wait for it, unless it has promised bytes
                self.tell(records.Stop.encode(0))  # all other ranks have said BYE, too
        elif record.kind in records.REPLY_OF:
            reply = getattr(records, records.class_name(records.NAMES[records.REPLY_OF[record.kind]]))
            answer = self._answer(record)
            if reply is records.Clock and len(answer) == 1:
                answer = (*answer, 0)  # the next read asks, too
            if reply is records.Comm:
                answer = (*answer, *([0] * NCCL_SIZES))
            self.tell(reply.encode(record.qid, *answer))

    def tell(self, message: bytes) -> None:
        assert self.connection is not None
        self.connection.sendall(message)

    def end(self) -> None:
        """Joins the thread after the rank's end. A rank that never connected leaves it waiting: it is let go."""
        if self.connection is None:
            with suppress(OSError), socket.socket(socket.AF_UNIX) as nobody:
                nobody.connect(self.path)
        self.join()

    def of(self, *kinds: int) -> list[Any]:
        return [record for record in self.records if record.kind in kinds]


def no_answer(record: Any) -> tuple[Any, ...]:
    raise AssertionError(f"the rank asked {record}")


class Rank:
    """The library inside a rank, with the few calls that programs repeat."""

    def __init__(self, library: Path, device_file: Path) -> None:
        # Its own calls come first: another test may have loaded PyTorch, and with it NVIDIA's libraries.
        self.c = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL | os.RTLD_DEEPBIND)
        for name in ("clock_ns", "clock_read_ns", "host_clock_ns", "device_base", "device_nbytes", "unmodelled_reads"):
            getattr(self.c, f"phantora_{name}").restype = ctypes.c_uint64
        self.c.phantora_advance_ns.argtypes = self.c.phantora_host_works_ns.argtypes = [ctypes.c_uint64]
        self.c.cudaMalloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self.c.cudaMemcpyAsync.argtypes = [
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_int,
            ctypes.c_void_p,
        ]
        self.c.cudaMemcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self.c.cudaMemsetAsync.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p]
        self.c.cudaLaunchKernel.argtypes = [
            ctypes.c_void_p,
            Dim3,
            Dim3,
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_void_p,
        ]
        for name in ("cudaEventRecord", "cudaStreamWaitEvent", "cudaLaunchHostFunc", "cudaGraphLaunch"):
            getattr(self.c, name).argtypes = [
                ctypes.c_void_p,
                ctypes.c_void_p,
                *([ctypes.c_void_p] * (name in ("cudaStreamWaitEvent", "cudaLaunchHostFunc"))),
            ]
        for name in (
            "cudaStreamSynchronize",
            "cudaEventSynchronize",
            "cudaEventQuery",
            "cudaEventDestroy",
            "cudaStreamQuery",
            "cudaStreamDestroy",
            "cudaFree",
            "cudaFreeHost",
            "cudaGraphDestroy",
            "cudaGraphExecDestroy",
        ):
            getattr(self.c, name).argtypes = [ctypes.c_void_p]
        self.c.cudaEventElapsedTime.argtypes = [ctypes.c_void_p] * 3
        assert self.c.phantora_load(str(device_file).encode()) == 0
        self._names: list[bytes] = []

    def kernel(self, name: str) -> int:
        """Registers a kernel; its address is one of ours."""
        self._names.append(name.encode())
        address = id(self._names[-1])
        self.c.__getattr__("__cudaRegisterFunction")(
            None, ctypes.c_void_p(address), None, ctypes.c_char_p(self._names[-1]), -1, None, None, None, None, None
        )
        return address

    def launch(self, kernel: int, stream: int = 0, grid: tuple[int, int, int] = GRID) -> int:
        return int(self.c.cudaLaunchKernel(kernel, Dim3(*grid), Dim3(*BLOCK), None, 0, stream))

    def stream(self, flags: int = 1) -> int:
        out = ctypes.c_void_p()
        assert self.c.cudaStreamCreateWithFlags(ctypes.byref(out), flags) == 0
        return out.value or 0

    def event(self, flags: int = 0) -> int:
        out = ctypes.c_void_p()
        assert self.c.cudaEventCreateWithFlags(ctypes.byref(out), flags) == 0
        return out.value or 0

    def malloc(self, nbytes: int) -> int:
        out = ctypes.c_void_p()
        assert self.c.cudaMalloc(ctypes.byref(out), nbytes) == 0
        return out.value or 0

    def host(self, nbytes: int) -> int:
        out = ctypes.c_void_p()
        assert self.c.cudaMallocHost(ctypes.byref(out), ctypes.c_size_t(nbytes)) == 0
        return out.value or 0


def running(
    library: Path,
    folder: Path,
    program: Callable[[Rank], None],
    *,
    cost: Callable[[str], tuple[int, ...]] = lambda _: (1000, 1500),
    answer: Callable[[Any], tuple[Any, ...]] = no_answer,
    finish: bool = True,
    status: int = 0,
    watch: Callable[[Coordinator, int], None] | None = None,
    alone: bool = False,
    **device: object,
) -> Coordinator:
    """Runs the program as rank 3 of 8, or as the only one, and returns the coordinator with all that it was told."""
    file = device_file(folder, **device)
    coordinator = Coordinator(folder, cost, answer)
    coordinator.start()
    child = os.fork()
    if child == 0:
        code = 99
        try:
            rank = Rank(library, file)
            place = (0, 1, 0, 0) if alone else (3, 8, 1, 0)
            start = rank.c.phantora_start(coordinator.path.encode(), coordinator.cost_table.encode(), *place)
            assert start == 0, start
            program(rank)
            if finish:
                rank.c.phantora_finish(0, b"")
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    if watch:
        watch(coordinator, child)
    _, ended = os.waitpid(child, 0)
    coordinator.end()
    assert os.waitstatus_to_exitcode(ended) == status
    return coordinator
