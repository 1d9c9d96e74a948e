"""The hook library's C functions, called from Python.

Torch sees emulated GPUs because this library's symbols come before CUDA's: it must be loaded into the global scope
before torch is imported.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from ..contract.records_definition import VERSION

_RUN = ctypes.CFUNCTYPE(None, ctypes.c_uint64)
_STEP = ctypes.CFUNCTYPE(None)
_COMPUTE = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.POINTER(ctypes.c_int64), ctypes.c_int)
_JOIN = ctypes.CFUNCTYPE(None, ctypes.c_int)
_u32, _u64, _int, _str = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p
_i64 = ctypes.c_int64
_ranges, _dims = ctypes.POINTER(_u64), ctypes.POINTER(_i64)

_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "abi_version": (_int, ()),
    "load": (_int, (_str,)),
    "number_process": (None, (_u32,)),
    "keep_in_step": (None, ()),
    "join_later": (None, (_u32, _JOIN)),
    "start": (_int, (_str, _str, _u32, _u32, _u32, _u32)),
    "finish": (None, (_int, _str)),
    "flush": (None, ()),
    "clock_ns": (_u64, ()),
    "advance_ns": (None, (_u64,)),
    "host_clock_ns": (_u64, ()),
    "activity": (_u64, ()),
    "memory": (None, (_u32, _u64, _u64)),
    "memory_grew": (_int, ()),
    "memory_step": (_int, ()),
    "memory_held": (None, (_u32, _ranges, _int)),
    "memory_tell": (None, (_int,)),
    "at_step": (None, (_STEP,)),
    "at_stop": (None, (_STEP,)),
    "steps_done": (None, ()),
    "device_base": (_u64, ()),
    "device_nbytes": (_u64, ()),
    "data_wait": (None, (_u64, _u64)),
    "data_state": (_int, (_u64, _u64)),
    "data_in_use": (_int, (_u64, _u64)),
    "data_any": (_int, (_u64, _u64)),
    "data_strided_state": (_int, (_u64, _i64, _int, _dims, _dims)),
    "data_strided_mark": (None, (_int, _u64, _i64, _int, _dims, _dims)),
    "data_mark_known": (None, (_u64, _u64)),
    "data_overwrite": (None, (_ranges, _int)),
    "data_strided_overwrite": (None, (_u64, _i64, _int, _dims, _dims)),
    "data_allow": (None, (_u64,)),
    "data_unknown": (_u64, (_u64, _u64)),
    "kept": (None, ()),
    "data_read_state": (_int, (_u64, _u64)),
    "data_pending": (_int, (_u64, _u64)),
    "data_runs": (_u64, (_i64, _int, _dims, _dims)),
    "data_move": (None, (_u64, _u64, _u64)),
    "take": (_u64, (_u64, _i64, _int, _dims, _dims)),
    "taken_drop": (None, (_u64,)),
    "taken_depth": (_int, (_u64,)),
    "taken_read": (_int, (_u64, _u64)),
    "refer": (_int, (_u64, _u64, _i64, _int, _dims, _dims)),
    "refer_source": (_int, (_str, _u64, _int, _u64, _i64, _int, _dims, _dims)),
    "source_compute": (None, (_RUN,)),
    "source_recipes": (None, (_RUN,)),
    "recipe_given": (None, (_str, _u64)),
    "recipe": (_u64, (ctypes.c_void_p, _u64)),
    "taken_table": (_u64, (_u64, ctypes.POINTER(ctypes.c_void_p))),
    "table_drop": (None, (ctypes.c_void_p,)),
    "take_table": (_u64, (_str, _u64)),
    "source_given": (None, (_u64, _u64)),
    "sources_dropped": (_u64, (_ranges, _u64)),
    "store_open": (None, (_str,)),
    "store_descriptor": (_int, ()),
    "store_move": (None, (_int,)),
    "data_writer": (_str, (_u64,)),
    "stated_value": (None, (_u32, _u64, _u64)),
    "loop": (None, (_u64, _u32, _int, _str)),
    "philox": (None, (_u64, _u64, _u64, _u64, ctypes.c_void_p)),
    "data_action": (None, (_ranges, _int, _ranges, _int, _RUN, _u64)),
    "overwrite_on": (None, (_u64, _ranges, _int)),
    "capture_action": (_int, (_u64, _ranges, _int, _ranges, _int, _RUN, _u64)),
    "sites": (_int, (ctypes.POINTER(ctypes.c_int32), _str, _str, _str)),
    "backward": (None, ()),
    "uncounted": (_u64, (_int,)),
    "is_uncounted": (_int, ()),
    "close_segments": (None, ()),
    "frame_rule": (_int, (_str, _str, _int)),
    "count_frames": (_int, (ctypes.POINTER(ctypes.c_int32),)),
    "frames_on": (None, (_int,)),
    "python_work": (None, (_u64, _u64)),
    "ranges_next": (None, (_int,)),
    "ranges_beside": (_u64, ()),
    "ranges_end": (None, (_u64,)),
    "profiler_begins": (None, (_u64,)),
    "profiler_section": (None, (_u64,)),
    "profiler_ended": (None, ()),
    "measures_host": (_int, ()),
    "own_work": (None, (_u32, _u32, _u32)),
    "host_counts": (_int, (ctypes.POINTER(_u64), _int)),
    "host_kind": (_str, (_int,)),
    "line": (None, (_str, _int)),
    "warn_once": (None, (_str, _str)),
    "kernel_program": (None, (ctypes.c_void_p, _str, _str, _str, _u32, _str)),
    "compute_programs": (None, (_COMPUTE, _STEP)),
    "groups": (None, (_ranges,)),
    "name_host": (None, (_u64, _u64, _u64, _u64)),
    "routing": (None, (_u64, _u32, _u32, _ranges, _u32, _str)),
}


def _begin() -> None:
    return None


class HookError(RuntimeError):
    """The hook library does not load, has another version, rejects its configuration or finds no coordinator."""


class Hook:
    """The loaded library. Calls into it release Python's lock; its callbacks take it."""

    def __init__(self, path: str) -> None:
        """Loads `path` into the global scope. Raises HookError."""
        try:
            library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise HookError(f"the hook library does not load: {error}") from error
        functions: dict[str, Any] = {}
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, f"phantora_{name}", None)
            if function is None:
                raise HookError(f"{path} has no phantora_{name}")
            function.restype, function.argtypes = result, arguments
            functions[name] = function
        ours, theirs = VERSION, functions["abi_version"]()
        if ours != theirs:
            raise HookError(f"{path} has version {theirs}, but this package needs version {ours}")
        self._library = library
        self._functions = functions
        self._learn_cudnn_version, self._learn_cuda_version = library.cudnnGetVersion, library.cudaRuntimeGetVersion
        self._callbacks: list[Any] = []  # ctypes' thunks must outlive the library's use of them
        self._at_step: list[Callable[[], None]] = []
        # The simple ones are the C functions themselves.
        self.clock_ns: Callable[[], int] = functions["clock_ns"]
        self.host_clock_ns: Callable[[], int] = functions["host_clock_ns"]
        self.activity: Callable[[], int] = functions["activity"]
        self.advance_ns: Callable[[int], None] = functions["advance_ns"]
        self.data_wait: Callable[[int, int], None] = functions["data_wait"]
        self.data_state: Callable[[int, int], int] = functions["data_state"]
        self.data_any: Callable[[int, int], int] = functions["data_any"]
        self.data_in_use: Callable[[int, int], int] = functions["data_in_use"]
        self.data_strided_state: Callable[[int, int, int, Any, Any], int] = functions["data_strided_state"]
        self.data_strided_mark: Callable[[int, int, int, int, Any, Any], None] = functions["data_strided_mark"]
        self.strided_overwrite: Callable[[int, int, int, Any, Any], None] = functions["data_strided_overwrite"]
        self.data_mark_known: Callable[[int, int], None] = functions["data_mark_known"]
        self.data_unknown: Callable[[int, int], int] = functions["data_unknown"]
        self.data_read_state: Callable[[int, int], int] = functions["data_read_state"]
        self.report_kept: Callable[[], None] = functions["kept"]
        self.data_pending: Callable[[int, int], int] = functions["data_pending"]
        self.data_runs: Callable[[int, int, Any, Any], int] = functions["data_runs"]
        self.data_move: Callable[[int, int, int], None] = functions["data_move"]
        self.take: Callable[[int, int, int, Any, Any], int] = functions["take"]
        self.take_table: Callable[[bytes, int], int] = functions["take_table"]
        self.taken_drop: Callable[[int], None] = functions["taken_drop"]
        self.taken_depth: Callable[[int], int] = functions["taken_depth"]
        self.taken_read: Callable[[int, int], int] = functions["taken_read"]
        self.refer: Callable[[int, int, int, int, Any, Any], int] = functions["refer"]
        self.refer_source: Callable[[bytes | None, int, int, int, int, int, Any, Any], int] = functions["refer_source"]
        self.give_source: Callable[[int, int], None] = functions["source_given"]
        self._dropped = (_u64 * 256)()
        self.allow_copies: Callable[[int], None] = functions["data_allow"]
        self.philox: Callable[[int, int, int, int, int], None] = functions["philox"]
        self.uncounted: Callable[[int], int] = functions["uncounted"]
        self.is_uncounted: Callable[[], int] = functions["is_uncounted"]
        self.python_work: Callable[[int, int], None] = functions["python_work"]
        self.close_segments: Callable[[], None] = functions["close_segments"]
        self.memory: Callable[[int, int, int], None] = functions["memory"]
        self.backward: Callable[[], None] = functions["backward"]
        self.ranges_next: Callable[[int], None] = functions["ranges_next"]
        self.ranges_beside: Callable[[], int] = functions["ranges_beside"]
        self.ranges_end: Callable[[int], None] = functions["ranges_end"]
        self.profiler_begins: Callable[[int], None] = functions["profiler_begins"]
        self.profiler_section: Callable[[int], None] = functions["profiler_section"]
        self.profiler_ended: Callable[[], None] = functions["profiler_ended"]

    def load(self, device_file: str) -> None:
        """In the forker, before torch is imported: reads the emulated device's properties, one `key=value` a line.
        Raises HookError.
        """
        if self._functions["load"](device_file.encode()) != 0:
            raise HookError(f"the hook library rejects {device_file}")

    def open_store(self, folder: str) -> None:
        """In the forker: all ranks keep what their programs give to the device in one file of this folder."""
        self._functions["store_open"](folder.encode())

    def compute_sources(self, run: Callable[[int], None], tell: Callable[[int], None]) -> None:
        """From now on `run(number)` is called where a source of that number is read: on any thread, within the read. It
        calls `give_source(address, nbytes)` with the source's bytes, or does not if it has none. Number 0 is one that
        another rank has told: see `recipe`. `tell(number)` calls `give_recipe`, or does not. Neither must raise.
        """
        for name, function in (("source_compute", run), ("source_recipes", tell)):
            thunk = _RUN(function)
            self._callbacks.append(thunk)
            self._functions[name](thunk)

    def give_recipe(self, text: bytes) -> None:
        """How other ranks can compute the source."""
        self._functions["recipe_given"](text, len(text))

    def recipe(self) -> bytes:
        """What another rank has told of the source that is read."""
        nbytes = self._functions["recipe"](None, 0)
        text = ctypes.create_string_buffer(nbytes + 1)
        self._functions["recipe"](text, nbytes)
        return text.raw[:nbytes]

    def taken_table(self, handle: int) -> bytes:
        """What was taken, as any rank can read it: `take_table`."""
        table = ctypes.c_void_p()
        nbytes = self._functions["taken_table"](handle, ctypes.byref(table))
        text = ctypes.string_at(table, nbytes) if nbytes else b""
        self._functions["table_drop"](table)
        return text

    def dropped_sources(self) -> list[int]:
        """Numbers of sources that nothing refers to any more, each once."""
        n = self._functions["sources_dropped"](self._dropped, len(self._dropped))
        return self._dropped[:n]

    def store_descriptor(self) -> int:
        """Of the file of `open_store`; -1 if there is none."""
        return int(self._functions["store_descriptor"]())

    def move_store(self, descriptor: int) -> None:
        """The file has this descriptor from now on."""
        self._functions["store_move"](descriptor)

    def learn_versions(self) -> None:
        """In the forker, once torch is imported: asks for the versions of CUDA and of cuDNN, which loads a library that
        ranks share.
        """
        self._learn_cuda_version(ctypes.byref(ctypes.c_int()))
        self._learn_cudnn_version()

    def start(
        self,
        socket_path: str,
        cost_table: str,
        *,
        rank: int,
        world_size: int,
        server: int,
        local_rank: int,
        process: int = 0,
    ) -> None:
        """In the rank: connects to the coordinator. `process` tells a rank's processes apart. Raises HookError."""
        if process:
            self._functions["number_process"](process)
        if self._functions["start"](socket_path.encode(), cost_table.encode(), rank, world_size, server, local_rank):
            raise HookError(f"rank {rank} cannot reach the coordinator at {socket_path}")

    def keep_in_step(self) -> None:
        """In the rank: where it waits for its GPU, it goes on when virtual time is there."""
        self._functions["keep_in_step"]()

    def join_later(self, server: int, join: Callable[[int], None]) -> None:
        """In a process of a server that is not a rank yet: calls `join(device)` when it first uses a GPU."""
        thunk = _JOIN(join)
        self._callbacks.append(thunk)
        self._functions["join_later"](server, thunk)

    def finish(self, exit_code: int, last_words: str = "") -> None:
        """In the rank: sends its last records and disconnects. `last_words`: the exception that ended it, if any."""
        self._functions["finish"](exit_code, last_words.encode(errors="replace"))

    def flush(self) -> None:
        """In the rank: sends what has gathered."""
        self._functions["flush"]()

    def warn_once(self, name: str, text: str) -> None:
        """Shows the user `text`, on stderr and in the report; later calls with the same `name` do nothing."""
        self._functions["warn_once"](name.encode(errors="replace"), text.encode(errors="replace"))

    def routing(self, calls: int, layer: int, chosen: int, loads: Sequence[int], text: str) -> None:
        """Sends a ROUTING record."""
        self._functions["routing"](
            calls, layer, chosen, (_u64 * len(loads))(*loads), len(loads), text.encode(errors="replace")
        )

    def groups(self, sizes: Sequence[int] | None) -> None:
        """What this thread launches belongs to a product of such groups (emu/hook/kernels/groups.h); None: no more."""
        self._functions["groups"](None if sizes is None else (_u64 * len(sizes))(*sizes))

    def kernel_program(
        self, function: int, program: str, parameter_widths: str, written: str, computed: int, nbytes: str
    ) -> None:
        """What the kernel behind the handle `function` does, see emu/hook/kernels/program.c."""
        self._functions["kernel_program"](
            function, program.encode(), parameter_widths.encode(), written.encode(), computed, nbytes.encode()
        )

    def compute_programs(self, compute: Callable[[int, list[int]], None], store: Callable[[], None]) -> None:
        """From now on a launch of a program with a number calls `compute(number, values)`, then what the kernel stores
        to becomes unknown, then it calls `store()`. `values`: the grid, then the parameters. Neither may raise.
        """
        thunks = _COMPUTE(lambda number, values, n: compute(number, values[:n])), _STEP(store)
        self._callbacks += thunks
        self._functions["compute_programs"](*thunks)

    def device_range(self) -> tuple[int, int]:
        """Address and bytes of the range that all device memory comes from; the host can read and write it."""
        return self._functions["device_base"](), self._functions["device_nbytes"]()

    def name_host(self, address: int, nbytes: int, name: bytes) -> None:
        """Ranks that have not written to ranges of equal names have equal bytes there. `name`: 16 bytes; zeros take the
        name away.
        """
        low, high = int.from_bytes(name[:8], "little"), int.from_bytes(name[8:], "little")
        self._functions["name_host"](address, nbytes, low, high)

    def overwrite(self, ranges: Sequence[int]) -> None:
        """A launch that is not executed writes to the ranges (address, bytes, address, bytes ...): they are unknown."""
        self._functions["data_overwrite"]((_u64 * len(ranges))(*ranges), len(ranges) // 2)

    def overwrite_on(self, stream: int, ranges: Sequence[int]) -> None:
        """The same for a launch on the stream: if it is being captured, again at each launch of the graph."""
        self._functions["overwrite_on"](stream, (_u64 * len(ranges))(*ranges), len(ranges) // 2)

    def memory_grew(self) -> bool:
        """Has memory reached a new peak since `memory_tell`, or has an allocation failed?"""
        return bool(self._functions["memory_grew"]())

    def memory_step(self) -> bool:
        """A step ends. Returns `memory_grew`."""
        return bool(self._functions["memory_step"]())

    def memory_held(self, held_as: int, addresses: Sequence[int]) -> None:
        """Storages of tensors begin there. `held_as`: a HeldKind, or 0."""
        self._functions["memory_held"](held_as, (_u64 * len(addresses))(*addresses), len(addresses))

    def memory_tell(self, step_ends: bool) -> None:
        """Sends MEMORY_HELD records."""
        self._functions["memory_tell"](step_ends)

    def at_step(self, run: Callable[[], None]) -> None:
        """From now on `run` is called at the end of every step of this rank, after what was given before. It must not
        raise.
        """
        self._at_step.append(run)
        if len(self._at_step) == 1:
            thunk = _STEP(self._step_ends)
            self._callbacks.append(thunk)
            self._functions["at_step"](thunk)

    def _step_ends(self) -> None:
        for run in self._at_step:
            run()

    def at_stop(self, run: Callable[[], None]) -> None:
        """In the rank: `run` is to end this process. It is called on a thread of its own when the coordinator ends the
        run before the script ends.
        """
        thunk = _STEP(run)
        self._callbacks.append(thunk)
        self._functions["at_stop"](thunk)

    def steps_done(self) -> None:
        """In the rank: the script has done the steps of `--steps`. Does not return."""
        self._functions["steps_done"]()

    def action(self, run: Callable[[int], None]) -> Callable[[Sequence[int], Sequence[int], int], None]:
        """Returns `submit(reads, writes, arg)`, which calls `run(arg)`: at once, or later and from any thread if bytes
        of one of the ranges have yet to arrive from other ranks.

        `reads` and `writes` are flat: address, bytes, address, bytes ... `run` must not raise.
        """
        thunk = _RUN(run)
        self._callbacks.append(thunk)
        data_action = self._functions["data_action"]

        def submit(reads: Sequence[int], writes: Sequence[int], arg: int) -> None:
            data_action(
                (_u64 * len(reads))(*reads),
                len(reads) // 2,
                (_u64 * len(writes))(*writes),
                len(writes) // 2,
                thunk,
                arg,
            )

        return submit

    def capture_action(self, run: Callable[[int], None]) -> Callable[[int, Sequence[int], Sequence[int], int], bool]:
        """Returns `submit(stream, reads, writes, arg)`, which has `run(arg)` called at each launch of the graph that is
        being captured on the stream; False if none is. Otherwise as `action`.
        """
        thunk = _RUN(run)
        self._callbacks.append(thunk)
        capture_action = self._functions["capture_action"]

        def submit(stream: int, reads: Sequence[int], writes: Sequence[int], arg: int) -> bool:
            ranges = (_u64 * len(reads))(*reads), len(reads) // 2, (_u64 * len(writes))(*writes), len(writes) // 2
            return bool(capture_action(stream, *ranges, thunk, arg))

        return submit

    def captured_streams(self) -> ctypes.c_int:
        """How many streams are being captured now: its `value` changes."""
        return ctypes.c_int.in_dll(self._library, "ph_captured_streams")

    def data_marks(self) -> ctypes.c_uint64:
        """How often device bytes have become readable: its `value` changes."""
        return ctypes.c_uint64.in_dll(self._library, "ph_data_marks")

    def line(self) -> str:
        """`file:line` of the script's line that the calling thread runs; "" if that is unknown."""
        text = ctypes.create_string_buffer(1024)
        self._functions["line"](text, len(text))
        return text.value.decode(errors="replace")

    def writer(self, address: int) -> str:
        """The operation that should have written these bytes of the device; "" if it is not known."""
        name: bytes = self._functions["data_writer"](address)
        return name.decode(errors="replace")

    def stated_value(self, number: int, reads: int, computed: int) -> None:
        """Sends a STATED_VALUE record."""
        self._functions["stated_value"](number, reads, computed)

    def loop(self, turns: int, line: int, stated: bool, text: str) -> None:
        """Sends a LOOP record."""
        self._functions["loop"](turns, line, stated, text.encode(errors="replace"))

    def watch_loop(self, frame: Any, lines: Sequence[int]) -> bool:
        """Counts turns of a loop of this frame, which the calling thread runs, until it is left: see
        emu/hook/process/loop_turns.c. False if this interpreter does not let us.
        """
        watch = ctypes.PYFUNCTYPE(_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int32))
        return bool(watch(("phantora_watch_loop", self._library))(id(frame), (ctypes.c_int32 * 6)(*lines)) == 0)

    def loop_turns(self) -> int:
        """Turns of the loop that is watched; -1 if it has been left."""
        return int(ctypes.PYFUNCTYPE(_i64)(("phantora_loop_turns", self._library))())

    def forget_loop(self) -> None:
        """Ends the watch."""
        ctypes.PYFUNCTYPE(None)(("phantora_forget_loop", self._library))()

    def frame_rule(self, file: str, function: str, kind: int) -> None:
        """See emu.interpreter.frame_counter."""
        self._functions["frame_rule"](file.encode(), function.encode(), kind)

    def count_frames(self, offsets: Sequence[int]) -> bool:
        """In the forker, after the rules: Python functions cost host time from now on. False if this interpreter
        lacks what it takes."""
        # Unlike the other functions this one needs the interpreter's lock.
        count = ctypes.PYFUNCTYPE(_int, ctypes.POINTER(ctypes.c_int32))(("phantora_count_frames", self._library))
        counting = bool(count((ctypes.c_int32 * len(offsets))(*offsets)) == 0)
        _begin()  # the first frame that the library sees must be one that begins
        return counting

    def frames_on(self, on: bool) -> None:
        """Switches counting off and on again: for measuring what it takes."""
        ctypes.PYFUNCTYPE(None, _int)(("phantora_frames_on", self._library))(on)

    def measures_host(self) -> bool:
        """Is host time what the threads use on this machine (`--host measured`)?"""
        return bool(self._functions["measures_host"]())

    def own_work(self, call_ns: int, range_ns: int, frame_ns: int) -> None:
        """For `--host measured`: what the emulation takes for observing a call, a range and a Python function."""
        self._functions["own_work"](call_ns, range_ns, frame_ns)

    def host_counts(self) -> dict[str, int]:
        """Units of each kind of host work since the start, all threads together."""
        n = self._functions["host_counts"](None, 0)
        counts = (_u64 * n)()
        self._functions["host_counts"](counts, n)
        return {self._functions["host_kind"](kind).decode(): counts[kind] for kind in range(n)}

    def tell_sites(self, offsets: Sequence[int], ours: str, stdlib: str, torch: str) -> bool:
        """In the forker: from now on the library's records name the lines where calls were made.

        `offsets` are those of `FrameLayout`; the others are folders, of this package, of the standard library and of
        torch. Returns False if this interpreter does not export the functions that the library takes.
        """
        folders = (folder.encode() for folder in (ours, stdlib, torch))
        return bool(self._functions["sites"]((ctypes.c_int32 * len(offsets))(*offsets), *folders) == 0)
