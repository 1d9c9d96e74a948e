"""The hook library's C interface for Python.

Loading it is what makes torch see GPUs: the library must be in the global scope before torch is.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_RUN = ctypes.CFUNCTYPE(None, ctypes.c_uint64)
_u32, _u64, _int, _str = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p
_ranges = ctypes.POINTER(_u64)

_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "abi_version": (_int, ()),
    "load": (_int, (_str,)),
    "start": (_int, (_str, _str, _u32, _u32, _u32, _u32)),
    "finish": (None, (_int, _str)),
    "clock_ns": (_u64, ()),
    "advance_ns": (None, (_u64,)),
    "host_clock_ns": (_u64, ()),
    "marker": (None, (_u32, _str)),
    "memory": (None, (_u32, _u64, _u64)),
    "device_peak": (_u64, (_int,)),
    "device_base": (_u64, ()),
    "device_nbytes": (_u64, ()),
    "data_wait": (None, (_u64, _u64)),
    "data_pending": (_int, (_u64, _u64)),
    "data_known": (_int, (_u64, _u64)),
    "data_mark_known": (None, (_u64, _u64)),
    "data_forget": (None, (_u64, _u64)),
    "data_action": (None, (_ranges, _int, _ranges, _int, _RUN, _u64)),
    "sites": (_int, (ctypes.POINTER(ctypes.c_int32), _str, _str, _str)),
    "backward": (None, ()),
    "frame_rule": (_int, (_str, _str, _int)),
    "count_frames": (_int, (ctypes.POINTER(ctypes.c_int32),)),
    "host_counts": (_int, (ctypes.POINTER(_u64), _int)),
    "host_kind": (_str, (_int,)),
    "line": (None, (_str, _int)),
    "warn_once": (None, (_str, _str)),
}


class HookError(RuntimeError):
    """The hook library is missing, of another version, or refuses its configuration."""


def record_version() -> int:
    """RECORD_VERSION of the records' definition that this package carries."""
    text = (Path(__file__).parents[1] / "contract" / "records.def").read_text()
    found = re.search(r"^RECORD_VERSION\((\d+)\)", text, re.MULTILINE)
    if found is None:
        raise HookError("emu/contract/records.def names no RECORD_VERSION")
    return int(found[1])


class Hook:
    """The library, loaded. Calls into it release the interpreter's lock; its callbacks take it."""

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
        ours, theirs = record_version(), functions["abi_version"]()
        if ours != theirs:
            raise HookError(f"{path} is of version {theirs}, this is version {ours}: install phantora-async anew")
        self._library = library
        self._functions = functions
        self._learn_versions = library.cudnnGetVersion
        self._callbacks: list[Any] = []  # ctypes' thunks must outlive the library's use of them
        # The simple ones are the C functions themselves.
        self.clock_ns: Callable[[], int] = functions["clock_ns"]
        self.host_clock_ns: Callable[[], int] = functions["host_clock_ns"]
        self.advance_ns: Callable[[int], None] = functions["advance_ns"]
        self.data_wait: Callable[[int, int], None] = functions["data_wait"]
        self.data_pending: Callable[[int, int], int] = functions["data_pending"]
        self.data_known: Callable[[int, int], int] = functions["data_known"]
        self.data_mark_known: Callable[[int, int], None] = functions["data_mark_known"]
        self.data_forget: Callable[[int, int], None] = functions["data_forget"]
        self.memory: Callable[[int, int, int], None] = functions["memory"]
        self.backward: Callable[[], None] = functions["backward"]
        self.device_peak: Callable[[int], int] = functions["device_peak"]

    def load(self, device_file: str) -> None:
        if self._functions["load"](device_file.encode()) != 0:
            raise HookError(f"the hook library refuses {device_file} (its messages are above)")

    def learn_versions(self) -> None:
        """Once torch is imported: cuDNN's answer loads a library that forked ranks had better share."""
        self._learn_versions()

    def start(
        self, socket_path: str, cost_table: str, *, rank: int, world_size: int, server: int, local_rank: int
    ) -> None:
        """In the rank: connects to the coordinator. Raises HookError."""
        if self._functions["start"](socket_path.encode(), cost_table.encode(), rank, world_size, server, local_rank):
            raise HookError(f"rank {rank} cannot reach the coordinator at {socket_path}")

    def finish(self, exit_code: int, last_words: str = "") -> None:
        self._functions["finish"](exit_code, last_words.encode(errors="replace"))

    def marker(self, kind: int, name: str) -> None:
        self._functions["marker"](kind, name.encode(errors="replace"))

    def warn_once(self, name: str, text: str) -> None:
        """For the user, on stderr and in the report; once per name."""
        self._functions["warn_once"](name.encode(errors="replace"), text.encode(errors="replace"))

    def device_range(self) -> tuple[int, int]:
        """Start and length of the addresses that device memory comes from; readable by the host."""
        return self._functions["device_base"](), self._functions["device_nbytes"]()

    def action(self, run: Callable[[int], None]) -> Callable[[Sequence[int], Sequence[int], int], None]:
        """`submit(reads, writes, arg)` for actions that `run(arg)`: at once, or later from any thread if a range
        is pending.

        Ranges are flat: address, length, address, length ... `run` must not raise.
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

    def line(self) -> str:
        """`file:line` of the script where the calling thread is; "" if that is unknown."""
        text = ctypes.create_string_buffer(1024)
        self._functions["line"](text, len(text))
        return text.value.decode(errors="replace")

    def frame_rule(self, file: str, function: str, kind: int) -> None:
        """See emu.interpreter.frame_counter."""
        self._functions["frame_rule"](file.encode(), function.encode(), kind)

    def count_frames(self, offsets: Sequence[int]) -> bool:
        """In the forker, after the rules: Python functions cost host time from now on. False if this interpreter
        lacks what it takes."""
        # Unlike the other functions this one needs the interpreter's lock.
        count = ctypes.PYFUNCTYPE(_int, ctypes.POINTER(ctypes.c_int32))(("phantora_count_frames", self._library))
        return bool(count((ctypes.c_int32 * len(offsets))(*offsets)) == 0)

    def host_counts(self) -> dict[str, int]:
        """Units of each kind of host work since the start, all threads together."""
        n = self._functions["host_counts"](None, 0)
        counts = (_u64 * n)()
        self._functions["host_counts"](counts, n)
        return {self._functions["host_kind"](kind).decode(): counts[kind] for kind in range(n)}

    def tell_sites(self, offsets: Sequence[int], ours: str, stdlib: str, torch: str) -> bool:
        """In the forker: calls say from now on where they were made. `offsets` are those of
        `emu.interpreter.frames`; the rest are folders. False if this interpreter lacks what it takes."""
        folders = (folder.encode() for folder in (ours, stdlib, torch))
        return bool(self._functions["sites"]((ctypes.c_int32 * len(offsets))(*offsets), *folders) == 0)
