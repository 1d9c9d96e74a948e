"""Typed calls of the engine: one method for each function of ``api.c``."""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import starmap
from struct import iter_unpack
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from phantora_async.virtual_time.native import library

NEVER = 1 << 62
OUTSIDE, OPENS, UNSEEN = range(1000, 1003)
"""The kinds of rows that stand for no record: see ``engine.h``."""
ROW_NBYTES = 64
_i64, _i32, _pointer = ctypes.c_int64, ctypes.c_int32, ctypes.c_void_p
_i64s = ctypes.POINTER(_i64)
_FUNCTIONS = (
    ("begin", ctypes.CFUNCTYPE(_i64, _i64, _i64, _i32)),
    ("retract", ctypes.CFUNCTYPE(_i64, _i64)),
    ("next", ctypes.CFUNCTYPE(_i64)),
    ("complete", ctypes.CFUNCTYPE(_i64, _i64)),
    ("commit", ctypes.CFUNCTYPE(_i64, _i64)),
    ("shortest", ctypes.CFUNCTYPE(_i64, _i64)),
    ("sort", ctypes.CFUNCTYPE(_i64, _i64, _i64s)),
    ("more", ctypes.CFUNCTYPE(_i64, _i32, _i64)),
)
RAISED = -1
"""The value that a function of the network returns after an exception."""
LEAVING, TOLD, WAITS, GONE = 1, 2, 4, 8


class Why(enum.IntEnum):
    """The reasons for which the engine stops."""

    BUDGET = 0
    STARVED = 1
    DRAINED = 2
    LIMIT = 3
    RAISED = 4
    BAD = 5


def _structure(name: str, *fields: tuple[str, Any]) -> Any:
    return type(name, (ctypes.Structure,), {"_fields_": list(fields)})


def _numbers(names: str) -> list[tuple[str, Any]]:
    return [(name, _i64) for name in names.split()]


_Input = _structure(
    "Input",
    *_numbers("nhosts depth parts keeps_answers ngates npaces ndevice_paces"),
    *((name, _pointer) for name in ("ranks", "gpus", "host_paces", "device_paces", "paces")),
    *_FUNCTIONS,
)
_Program = _structure(
    "Program",
    ("rows", _pointer),
    ("nrows", _i64),
    ("comms", _pointer),
    ("places", _pointer),
    ("ncomms", _i64),
    ("creations", _pointer),
    ("ncreations", _i64),
)
_Tables = _structure("Tables", ("kernels", _pointer), ("calls", _pointer), ("members", _pointer))
_Collective = _structure("Collective", *_numbers("comm call seq exchange by_program"))
_Outputs = _structure(
    "Outputs",
    *_numbers("nleaving ntold nwaits ngone"),
    *((name, _pointer) for name in ("leaving", "told", "waits", "gone")),
)
_View = _structure(
    "View",
    *_numbers("now_ns ahead_ns begun facts_done events starved log kept most_kept rollbacks events_back"),
    *_numbers("answers_sent answered_early bad_rank"),
    *_numbers("objects held"),
    ("bad", ctypes.c_char_p),
)
_Host = _structure(
    "Host",
    *_numbers("rank state clock_ns steps counters facts_done queued last_site nmemory ndevices ntaken nnotes"),
    *_numbers("wait wait_site wait_creation nqueries nelapsed nclocks nstreams ncheckpoints"),
    *_numbers("generating_ns partial_ns"),
    *((name, _pointer) for name in ("memory", "queries", "elapsed", "clocks", "taken", "notes")),
)
_SHARES = 7
"""SHARES of engine.h."""
_Device = _structure("Device", *_numbers("number width_ns nsamples"), ("shares", _i64 * _SHARES), ("samples", _pointer))
_Stream = _structure("Stream", *_numbers("id cause_id cause_state ncollectives"), ("collectives", _i64 * 2))


class Leaving(NamedTuple):
    """An answer that is ready to be sent."""

    rank: int
    kind: int
    """The kind of the question."""
    qid: int
    value: int
    more: int


class Wait(NamedTuple):
    """The wait of a host that was passed over and has gone on."""

    rank: int
    facts_done: int
    for_ns: int
    cause: int
    """The rank whose answer has ended it; -1: none has."""
    cause_facts: int


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """All that one host does, as rows of 64 bytes."""

    rows: NDArray[np.void]
    comms: NDArray[np.int32]
    """The numbers of its communicators, by its own numbers of them."""
    places: NDArray[np.int32]
    """Its rank in each of them."""
    creations: NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """The tables that programs share."""

    kernels: NDArray[np.int64]
    """The index of each kernel's first call; one more for the end."""
    calls: NDArray[np.int32]
    """A row for each call: communicator, how many ranks call a pair (0: it is none), sender, receiver."""
    members: NDArray[np.int32]
    """The number of members that call, by communicator."""


class EndlessPace(Protocol):
    """The pace of a GPU or a host, as ``faults.pace`` has it."""

    starts: list[int]
    paces: list[int]

    def know(self, at_ns: int) -> None:
        """Extends the lists beyond this instant."""

    @property
    def known_ns(self) -> int:
        """The instant up to which the lists are complete."""

    @property
    def frame(self) -> tuple[int, int, int]:
        """The origin of instants, and from when until when it is dead."""


@dataclass(frozen=True, slots=True, eq=False)
class PaceTable:
    """The paces of GPUs and hosts that are not as fast as described."""

    paces: Sequence[EndlessPace]
    hosts: NDArray[np.int32]
    """The index of each host in ``paces``, -1 for none."""
    devices: NDArray[np.int32]
    """A row for each device with a pace: host, device, its index in ``paces``."""


class Network(Protocol):
    """The functions of the network that the engine calls. Collectives have numbers."""

    def begin(self, number: int, at_ns: int, beside_compute: int) -> int: ...

    def retract(self, number: int) -> int: ...

    def next(self) -> int: ...

    def complete(self, at_ns: int) -> Iterable[int]: ...

    def commit(self, at_ns: int) -> int: ...

    def shortest(self, number: int) -> int: ...

    def sort(self, numbers: list[int]) -> list[int]: ...


_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "new": (_pointer, (_pointer,)),
    "free": (None, (_pointer,)),
    "pace": (None, (_pointer, _i32, _pointer, _pointer, _i64, _i64)),
    "limit": (None, (_pointer, _i64)),
    "limit_memory": (None, (_pointer, _i64s, _i64)),
    "listen": (None, (_pointer, _i64)),
    "collective": (_i64, (_pointer, _i64, _i32, _i32)),
    "creation": (_i64, (_pointer, _i32)),
    "feed": (None, (_pointer, _i64, ctypes.c_char_p, _i64, _pointer)),
    "tables": (None, (_pointer, _pointer)),
    "program": (None, (_pointer, _i64, _pointer)),
    "done": (None, (_pointer, _i64)),
    "revised": (None, (_pointer, _i64, _i64, _i64)),
    "collective_view": (None, (_pointer, _i64, _pointer)),
    "weigh": (None, (_pointer, _i64, _i32)),
    "run": (_i64, (_pointer, _i64, _i64)),
    "pass_over": (None, (_pointer, _i64s, _i64)),
    "stop_speculation": (None, (_pointer,)),
    "has_ended": (_i64, (_pointer, _i64)),
    "begin_again": (None, (_pointer, _i64)),
    "prepare_restart": (None, (_pointer,)),
    "end": (None, (_pointer, _i64)),
    "restart": (_i64, (_pointer, _i64, _i64s, _i64, _i64, _i64)),
    "outputs": (None, (_pointer, _pointer)),
    "taken": (None, (_pointer, _i64)),
    "view": (None, (_pointer, _pointer)),
    "now": (_i64, (_pointer,)),
    "facts_done": (_i64, (_pointer,)),
    "answers_sent": (_i64, (_pointer,)),
    "queued": (_i64, (_pointer, _i64)),
    "held": (_i64, (_pointer,)),
    "host": (None, (_pointer, _i64, _pointer)),
    "state": (_i64, (_pointer, _i64)),
    "in_state": (_i64, (_pointer, _i64)),
    "clock": (_i64, (_pointer, _i64)),
    "steps": (_i64, (_pointer, _i64)),
    "checkpoints": (None, (_pointer, _i64, _i64s)),
    "devices": (None, (_pointer, _i64, _i64, _pointer)),
    "shares": (None, (_pointer, _i64, _i64, _i64s)),
    "awaited": (_i64, (_pointer, _i64, _pointer)),
    "arrived": (_i64, (_pointer, _i64, _i64s)),
    "asking": (_i64, (_pointer, _i64, _i64s)),
    "undone": (_i64, (_pointer, _i64, ctypes.POINTER(ctypes.c_uint64), _i64)),
}


@cache
def _calls() -> dict[str, Any]:
    loaded = library()
    calls = {}
    for name, (result, arguments) in _SIGNATURES.items():
        call = calls[name] = loaded[f"vt_{name}"]
        call.restype, call.argtypes = result, arguments
    return calls


def _array(values: Sequence[int]) -> Any:
    return (_i64 * max(len(values), 1))(*values)


class Engine:
    """The engine. Hosts are numbered from 0. An exception of a function of the network is raised by the call that led
    to it.
    """

    def __init__(
        self,
        ranks: Sequence[int],
        gpus: Sequence[int],
        depth: int,
        parts: int,
        network: Network,
        paces: PaceTable,
        *,
        keeps_answers: bool = False,
        gates: int = 0,
    ) -> None:
        """`ranks`: the rank of each host. `gpus`: the number of its own GPU on its server; -1: not known.
        `keeps_answers`: answers are kept, because nobody takes them: see ``answers``.
        """
        self._calls = _calls()
        self._network = network
        self._paces = paces.paces
        self._error: BaseException | None = None
        self._functions = [made(getattr(self, f"_on_{name}")) for name, made in _FUNCTIONS]
        self._kept: list[Any] = []
        """Objects to which the engine points."""
        self._outputs_found = _Outputs()
        """What has left, each time that it is asked for."""
        self._outputs_place = ctypes.byref(self._outputs_found)
        frames = np.array([pace.frame for pace in paces.paces], np.int64).reshape(-1, 3)
        own, numbers = np.array(ranks, np.int64), np.array(gpus, np.int32)
        given = _Input(
            len(ranks),
            depth,
            parts,
            keeps_answers,
            gates,
            len(paces.paces),
            len(paces.devices),
            own.ctypes.data,
            numbers.ctypes.data,
            paces.hosts.ctypes.data,
            paces.devices.ctypes.data,
            frames.ctypes.data,
            *self._functions,
        )
        self._it = _pointer(self._calls["new"](ctypes.byref(given)))
        for number in range(len(paces.paces)):
            self._tell_pace(number)

    def __del__(self) -> None:
        if getattr(self, "_it", None):
            self._calls["free"](self._it)

    def _call(self, name: str, *arguments: Any) -> Any:
        found = self._calls[name](self._it, *arguments)
        if self._error is not None:
            raise self._error
        return found

    # ---- functions of the network ----------------------------------------------------------------------------------

    def _on_begin(self, number: int, at_ns: int, beside_compute: int) -> int:
        try:
            return self._network.begin(number, at_ns, beside_compute)
        except BaseException as error:
            return self._fail(error)

    def _on_retract(self, number: int) -> int:
        try:
            return self._network.retract(number)
        except BaseException as error:
            return self._fail(error)

    def _on_next(self) -> int:
        try:
            return self._network.next()
        except BaseException as error:
            return self._fail(error)

    def _on_complete(self, at_ns: int) -> int:
        try:
            for number in self._network.complete(at_ns):
                self._calls["done"](self._it, number)
        except BaseException as error:
            return self._fail(error)
        return 0

    def _on_commit(self, at_ns: int) -> int:
        try:
            return self._network.commit(at_ns)
        except BaseException as error:
            return self._fail(error)

    def _on_shortest(self, number: int) -> int:
        try:
            return self._network.shortest(number)
        except BaseException as error:
            return self._fail(error)

    def _on_sort(self, count: int, numbers: Any) -> int:
        try:
            for place, number in enumerate(self._network.sort(numbers[:count])):
                numbers[place] = number
        except BaseException as error:
            return self._fail(error)
        return 0

    def _on_more(self, number: int, at_ns: int) -> int:
        try:
            self._paces[number].know(at_ns)
            self._tell_pace(number)
        except BaseException as error:
            return self._fail(error)
        return 0

    def _fail(self, error: BaseException) -> int:
        if self._error is None:
            self._error = error
        return RAISED

    def _tell_pace(self, number: int) -> None:
        """Tells the engine a pace, which it copies."""
        pace = self._paces[number]
        starts, paces = np.array(pace.starts, np.int64), np.array(pace.paces, np.int64)
        self._calls["pace"](self._it, number, starts.ctypes.data, paces.ctypes.data, len(starts), pace.known_ns)

    def revised(self, number: int, before_ns: int, after_ns: int) -> None:
        """Reports that a completion has moved, for ``Network.begin`` and ``retract``."""
        self._calls["revised"](self._it, number, before_ns, after_ns)

    # ---- what ranks say --------------------------------------------------------------------------------------------

    def collective(self, comm: int, needed: int, weight: int) -> int:
        """Makes a collective and returns its number."""
        found: int = self._calls["collective"](self._it, comm, needed, weight)
        return found

    def called(self, number: int) -> Any:
        """The call of a program behind a collective: comm, call, seq, exchange."""
        found = _Collective()
        self._calls["collective_view"](self._it, number, ctypes.byref(found))
        return found

    def weigh(self, number: int, weight: int) -> None:
        """Sets the number of collectives for which this one stands."""
        self._calls["weigh"](self._it, number, weight)

    def creation(self, size: int) -> int:
        """Makes a creation of a communicator and returns its number."""
        found: int = self._calls["creation"](self._it, size)
        return found

    def feed(self, host: int, rows: bytes, called: Sequence[int]) -> None:
        """Appends rows of one host. `called`: the numbers of collectives, to which NCCL_LAUNCH rows refer by index."""
        self._calls["feed"](self._it, host, rows, len(rows) // ROW_NBYTES, _array(called) if called else None)

    def play(self, programs: Sequence[Program], tables: Tables) -> None:
        """Gives the engine all that the hosts do."""
        made = (_Program * len(programs))(
            *(
                _Program(
                    one.rows.ctypes.data,
                    len(one.rows),
                    one.comms.ctypes.data,
                    one.places.ctypes.data,
                    len(one.comms),
                    one.creations.ctypes.data,
                    len(one.creations),
                )
                for one in programs
            )
        )
        shared = _Tables(tables.kernels.ctypes.data, tables.calls.ctypes.data, tables.members.ctypes.data)
        self._kept += [list(programs), tables, made]
        self._calls["tables"](self._it, ctypes.byref(shared))
        for host in range(len(programs)):
            self._calls["program"](self._it, host, ctypes.byref(made[host]))

    # ---- running ---------------------------------------------------------------------------------------------------

    def limit(self, at_ns: int) -> None:
        self._calls["limit"](self._it, at_ns)

    def limit_memory(self, most: Sequence[int], last_step: int) -> None:
        self._calls["limit_memory"](self._it, _array(most), last_step)

    def listen(self, host: int) -> None:
        self._calls["listen"](self._it, host)

    def run(self, budget: int, ahead: bool) -> Why:
        return Why(self._call("run", budget, ahead))

    def pass_over(self, hosts: Sequence[int]) -> None:
        self._call("pass_over", _array(hosts), len(hosts))

    def has_ended(self, host: int) -> bool:
        return bool(self._call("has_ended", host))

    def begin_again(self, host: int) -> None:
        self._call("begin_again", host)

    def prepare_restart(self) -> None:
        self._call("prepare_restart")

    def end(self, host: int) -> None:
        self._call("end", host)

    def restart(self, failed: int, again: Sequence[int], steps: int, not_before_ns: int) -> int:
        at_ns: int = self._call("restart", failed, _array(again), len(again), steps, not_before_ns)
        return at_ns

    # ---- what has left ---------------------------------------------------------------------------------------------

    def _outputs(self) -> Any:
        self._calls["outputs"](self._it, self._outputs_place)
        return self._outputs_found

    def take_leaving(self) -> list[Leaving]:
        found = self._outputs()
        if not found.nleaving:
            return []
        taken = list(starmap(Leaving, iter_unpack("<qqQqq", bytes_at(found.leaving, 40 * found.nleaving))))
        self._calls["taken"](self._it, LEAVING)
        return taken

    def take_told(self) -> list[tuple[int, ...]]:
        """The events since the last call as (kind, host, instant, ten values)."""
        found = self._outputs()
        if not found.ntold:
            return []
        taken = list(iter_unpack("<13q", bytes_at(found.told, 104 * found.ntold)))
        self._calls["taken"](self._it, TOLD)
        return taken

    def take_gone(self) -> list[int]:
        """The numbers of collectives that no longer exist."""
        found = self._outputs()
        if not found.ngone:
            return []
        taken: list[int] = int64s(found.gone, found.ngone).tolist()
        self._calls["taken"](self._it, GONE)
        return taken

    def take_waits(self) -> list[Wait]:
        found = self._outputs()
        if not found.nwaits:
            return []
        taken = [Wait(*one) for one in int64s(found.waits, 5 * found.nwaits).reshape(-1, 5).tolist()]
        self._calls["taken"](self._it, WAITS)
        return taken

    # ---- looking at it ---------------------------------------------------------------------------------------------

    def view(self) -> Any:
        found = _View()
        self._call("view", ctypes.byref(found))
        return found

    def now_ns(self) -> int:
        now_ns: int = self._call("now")
        return now_ns

    def facts_done(self) -> int:
        found: int = self._calls["facts_done"](self._it)
        return found

    def answers_sent(self) -> int:
        found: int = self._calls["answers_sent"](self._it)
        return found

    def queued(self, host: int) -> int:
        found: int = self._calls["queued"](self._it, host)
        return found

    def state(self, host: int) -> int:
        found: int = self._calls["state"](self._it, host)
        return found

    def in_state(self, state: int) -> int:
        """The number of hosts in this state."""
        found: int = self._calls["in_state"](self._it, state)
        return found

    def clock_ns(self, host: int) -> int:
        found: int = self._calls["clock"](self._it, host)
        return found

    def steps(self, host: int) -> int:
        found: int = self._calls["steps"](self._it, host)
        return found

    def held(self) -> int:
        """The number of objects that grow if nobody forgets them."""
        found: int = self._calls["held"](self._it)
        return found

    def host(self, host: int) -> Any:
        found = _Host()
        self._calls["host"](self._it, host, ctypes.byref(found))
        return found

    def checkpoints(self, host: int) -> list[int]:
        """The instants of the host's checkpoints."""
        count = self.host(host).ncheckpoints
        found = _array([0] * count)
        self._calls["checkpoints"](self._it, host, found)
        return list(found[:count])

    def devices(self, host: int, now_ns: int) -> list[Any]:
        """The devices that were given work."""
        count = self.host(host).ndevices
        found = (_Device * count)()
        if count:
            self._calls["devices"](self._it, host, now_ns, ctypes.byref(found))
        return list(found)

    def shares(self, host: int, now_ns: int) -> list[int]:
        found = _array([0] * _SHARES)
        self._calls["shares"](self._it, host, now_ns, found)
        return list(found)

    def awaited(self, host: int) -> list[Any]:
        """The streams that the host waits for."""
        found = (_Stream * max(self.host(host).nstreams, 1))()
        count = self._calls["awaited"](self._it, host, ctypes.byref(found))
        return list(found[:count])

    def arrived(self, number: int, most: int) -> list[int] | None:
        """The ranks of hosts whose streams have reached the collective; None: it has begun, or is complete."""
        found = _array([0] * most)
        count = self._calls["arrived"](self._it, number, found)
        return None if count < 0 else list(found[:count])

    def asking(self, creation: int, most: int) -> list[int]:
        """The ranks of hosts that wait for others to ask for the communicator."""
        found = _array([0] * most)
        return list(found[: self._calls["asking"](self._it, creation, found)])

    def undone(self, host: int) -> list[int]:
        """The recordings that are not complete."""
        count = self._calls["undone"](self._it, host, None, 0)
        found = (ctypes.c_uint64 * max(count, 1))()
        self._calls["undone"](self._it, host, found, count)
        return sorted(found[:count])


def int64s(at: int | None, count: int) -> NDArray[np.int64]:
    """A copy of so many numbers of the engine's."""
    if not at or not count:
        return np.empty(0, np.int64)
    return np.frombuffer(ctypes.string_at(at, 8 * count), np.int64)


def bytes_at(at: int | None, count: int) -> bytes:
    return ctypes.string_at(at, count) if at and count else b""
