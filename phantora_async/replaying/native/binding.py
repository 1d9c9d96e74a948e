"""Typed calls of the engine."""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from phantora_async.replaying.native import library

NEVER = 1 << 62
_i64, _i32, _pointer = ctypes.c_int64, ctypes.c_int32, ctypes.c_void_p
_BEGIN = ctypes.CFUNCTYPE(_i64, _i32, _i32, _i32, _i64, _i32, _i64, _i32)
_COMPLETE = ctypes.CFUNCTYPE(_i64, _i64)
_MORE = ctypes.CFUNCTYPE(_i64, _i32, _i64)
_RAISED = -1


class Why(enum.IntEnum):
    """Why the engine stopped."""

    DRAINED = 0
    LIMIT = 1
    STARVED = 2
    RAISED = 3
    BROKEN = 4


def _structure(name: str, *fields: tuple[str, Any]) -> Any:
    return type(name, (ctypes.Structure,), {"_fields_": list(fields)})


_Program = _structure(
    "Program",
    ("rows", _pointer),
    ("nrows", _i64),
    ("comms", _pointer),
    ("places", _pointer),
    ("ncomms", _i32),
    ("nrecordings", _i32),
    ("creations", _pointer),
    ("ncreations", _i64),
)
_Input = _structure(
    "Input",
    ("nranks", _i64),
    ("depth", _i64),
    ("limit_ns", _i64),
    ("parts", _i64),
    ("programs", _pointer),
    ("kernels", _pointer),
    ("calls", _pointer),
    ("members", _pointer),
    ("sizes", _pointer),
    ("ncreations", _i64),
    ("ngates", _i64),
    ("npaces", _i64),
    ("host_paces", _pointer),
    ("ndevice_paces", _i64),
    ("device_paces", _pointer),
    ("gpus", _pointer),
)
_Result = _structure(
    "Result",
    *((name, _i64) for name in ("now_ns", "begun", "nsteps", "executed", "bad_rank", "bad_row")),
    ("bad", ctypes.c_char_p),
)
_Rank = _structure(
    "Rank",
    *(
        (name, _i64)
        for name in ("state", "clock_ns", "steps", "counters", "nmemory", "nqueries", "nelapsed", "nclocks", "ndevices")
    ),
    *((name, _pointer) for name in ("memory", "queries", "elapsed", "clocks")),
)
_Device = _structure(
    "Device",
    *((name, _i64) for name in ("number", "used", "width_ns", "nsamples")),
    ("shares", _i64 * 6),
    ("samples", _pointer),
)
_Step = _structure(
    "Step", *((name, _i64) for name in ("rank", "number", "host_ns", "device_ns", "counters")), ("shares", _i64 * 6)
)


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """One rank's."""

    rows: NDArray[np.void]
    comms: NDArray[np.int32]
    places: NDArray[np.int32]
    recordings: int
    creations: NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """What all ranks share."""

    kernels: NDArray[np.int64]
    """Where each kernel's calls begin; one more for the end."""
    calls: NDArray[np.int32]
    """A row for each: communicator, whether it is a pair, sender, receiver."""
    members: NDArray[np.int32]
    sizes: NDArray[np.int32]
    """Of creations."""
    gates: int


class EndlessPace(Protocol):
    """Of a GPU or a host, as ``faults.pace`` has it."""

    starts: list[int]
    paces: list[int]

    def know(self, at_ns: int) -> None:
        """The lists reach beyond this instant."""

    @property
    def known_ns(self) -> int:
        """What follows is not in the lists yet."""


@dataclass(frozen=True, slots=True, eq=False)
class PaceTable:
    """What is not as fast as described."""

    paces: Sequence[EndlessPace]
    hosts: NDArray[np.int32]
    """Of each rank: its place in ``paces``, -1 for none."""
    devices: NDArray[np.int32]
    """A row for each: rank, device, its place in ``paces``."""


class Begun:
    """A collective that begins."""

    __slots__ = ("at_ns", "beside_compute", "call", "comm", "exchange", "number", "seq")

    def __init__(
        self, number: int, comm: int, call: int, seq: int, exchange: int, at_ns: int, beside_compute: int
    ) -> None:
        self.number = number
        self.comm = comm
        self.call = call
        self.seq = seq
        self.exchange = bool(exchange)
        self.at_ns = at_ns
        self.beside_compute = bool(beside_compute)


class Engine:
    """``run``, then the results. `begin` and `complete` return the instant of the next completion; `complete` also
    which collectives are complete.
    """

    def __init__(
        self,
        programs: Sequence[Program],
        tables: Tables,
        depth: int,
        limit_ns: int,
        parts: int,
        begin: Callable[[Begun], int],
        complete: Callable[[int], tuple[Sequence[int], int]],
        paces: PaceTable,
        gpus: NDArray[np.int32],
    ) -> None:
        """`gpus`: of each rank the number of its own GPU on its server; -1: not known."""
        self._lib = library()
        self._kept: list[Any] = [list(programs), tables, gpus]
        self._error: BaseException | None = None
        self._begin, self._complete = begin, complete
        self._paces = paces
        self._callbacks = _BEGIN(self._on_begin), _COMPLETE(self._on_complete), _MORE(self._on_more)
        made = (_Program * len(programs))(*(self._program(one) for one in programs))
        given = _Input(
            len(programs),
            depth,
            limit_ns,
            parts,
            ctypes.addressof(made),
            tables.kernels.ctypes.data,
            tables.calls.ctypes.data,
            tables.members.ctypes.data,
            tables.sizes.ctypes.data,
            len(tables.sizes),
            tables.gates,
            len(paces.paces),
            paces.hosts.ctypes.data,
            len(paces.devices),
            paces.devices.ctypes.data,
            gpus.ctypes.data,
        )
        self._kept += [made, given]
        self._lib.rp_new.restype = _pointer
        self._engine = _pointer(self._lib.rp_new(ctypes.byref(given), *self._callbacks))
        for number in range(len(paces.paces)):
            self._tell_pace(number)

    def _program(self, one: Program) -> Any:
        return _Program(
            one.rows.ctypes.data,
            len(one.rows),
            one.comms.ctypes.data,
            one.places.ctypes.data,
            len(one.comms),
            one.recordings,
            one.creations.ctypes.data,
            len(one.creations),
        )

    def __del__(self) -> None:
        if getattr(self, "_engine", None):
            self._lib.rp_free(self._engine)

    def _on_begin(self, *arguments: int) -> int:
        try:
            return self._begin(Begun(*arguments))
        except BaseException as error:
            self._error = error
            return _RAISED

    def _on_complete(self, at_ns: int) -> int:
        try:
            done, next_ns = self._complete(at_ns)
            for number in done:
                self._lib.rp_done(self._engine, number)
        except BaseException as error:
            self._error = error
            return _RAISED
        return next_ns

    def _on_more(self, number: int, at_ns: int) -> int:
        try:
            self._paces.paces[number].know(at_ns)
            self._tell_pace(number)
        except BaseException as error:
            self._error = error
            return _RAISED
        return 0

    def _tell_pace(self, number: int) -> None:
        """The engine copies it."""
        pace = self._paces.paces[number]
        starts, paces = np.array(pace.starts, np.int64), np.array(pace.paces, np.int64)
        self._lib.rp_pace(
            self._engine,
            number,
            _pointer(starts.ctypes.data),
            _pointer(paces.ctypes.data),
            _i64(len(starts)),
            _i64(pace.known_ns),
        )

    def run(self) -> Why:
        """To the end. Raises what `begin` or `complete` has raised."""
        why = Why(self._lib.rp_run(self._engine))
        if self._error is not None:
            raise self._error
        return why

    def result(self) -> Any:
        found = _Result()
        self._lib.rp_result(self._engine, ctypes.byref(found))
        return found

    def rank(self, rank: int) -> Any:
        found = _Rank()
        self._lib.rp_rank(self._engine, _i64(rank), ctypes.byref(found))
        return found

    def devices(self, rank: int, count: int) -> list[Any]:
        found = (_Device * count)()
        if count:
            self._lib.rp_devices(self._engine, _i64(rank), found)
        return list(found)

    def steps(self, count: int) -> list[Any]:
        """In the order in which they ended."""
        found = [_Step() for _ in range(count)]
        for place, one in enumerate(found):
            self._lib.rp_step(self._engine, _i64(place), ctypes.byref(one))
        return found


def int64s(at: int | None, count: int) -> NDArray[np.int64]:
    """A copy of so many numbers of the engine's."""
    if not at or not count:
        return np.empty(0, np.int64)
    return np.frombuffer(ctypes.string_at(at, 8 * count), np.int64)


def bytes_at(at: int | None, count: int) -> bytes:
    return ctypes.string_at(at, count) if at and count else b""
