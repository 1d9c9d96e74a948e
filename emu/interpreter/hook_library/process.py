"""The process: its device, its connection to the coordinator, its steps and its end."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_char_p, c_int, c_uint32, c_uint64

from .library import CALLED, HookError, Library

_JOIN = ctypes.CFUNCTYPE(None, c_int)


class ProcessCalls(Library):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._load = self._function("load", c_int, c_char_p)
        self._number_process = self._function("number_process", None, c_uint32)
        self._start = self._function("start", c_int, c_char_p, c_char_p, c_uint32, c_uint32, c_uint32, c_uint32)
        self._join_later = self._function("join_later", None, c_uint32, _JOIN)
        self._finish = self._function("finish", None, c_int, c_char_p)
        self._at_step = self._function("at_step", None, CALLED)
        self._at_stop = self._function("at_stop", None, CALLED)
        self._warn_once = self._function("warn_once", None, c_char_p, c_char_p)
        self._cudnn_version, self._cuda_version = self._library.cudnnGetVersion, self._library.cudaRuntimeGetVersion
        self._run_at_step: list[Callable[[], None]] = []
        self.activity: Callable[[], int] = self._function("activity", c_uint64)
        self.flush: Callable[[], None] = self._function("flush", None)
        """In the rank: sends what has gathered."""
        self.keep_in_step: Callable[[], None] = self._function("keep_in_step", None)
        """In the rank: where it waits for its GPU, it goes on when virtual time is there."""
        self.steps_done: Callable[[], None] = self._function("steps_done", None)
        """In the rank: the script has done the steps of `--steps`. Does not return."""

    def load(self, device_file: str) -> None:
        """In the forker, before torch is imported: reads the emulated device's properties, one `key=value` a line.
        Raises HookError.
        """
        if self._load(device_file.encode()) != 0:
            raise HookError(f"the hook library rejects {device_file}")

    def learn_versions(self) -> None:
        """In the forker, once torch is imported: asks for the versions of CUDA and of cuDNN, which loads a library that
        ranks share.
        """
        self._cuda_version(ctypes.byref(ctypes.c_int()))
        self._cudnn_version()

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
            self._number_process(process)
        if self._start(socket_path.encode(), cost_table.encode(), rank, world_size, server, local_rank):
            raise HookError(f"rank {rank} cannot reach the coordinator at {socket_path}")

    def join_later(self, server: int, join: Callable[[int], None]) -> None:
        """In a process of a server that is not a rank yet: calls `join(device)` when it first uses a GPU."""
        self._join_later(server, self._callback(_JOIN, join))

    def finish(self, exit_code: int, last_words: str = "") -> None:
        """In the rank: sends its last records and disconnects. `last_words`: the exception that ended it, if any."""
        self._finish(exit_code, last_words.encode(errors="replace"))

    def warn_once(self, name: str, text: str) -> None:
        """Shows the user `text`, on stderr and in the report; later calls with the same `name` do nothing."""
        self._warn_once(name.encode(errors="replace"), text.encode(errors="replace"))

    def at_step(self, run: Callable[[], None]) -> None:
        """From now on `run` is called at the end of every step of this rank, after what was given before. It must not
        raise.
        """
        self._run_at_step.append(run)
        if len(self._run_at_step) == 1:
            self._at_step(self._callback(CALLED, self._step_ends))

    def _step_ends(self) -> None:
        for run in self._run_at_step:
            run()

    def at_stop(self, run: Callable[[], None]) -> None:
        """In the rank: `run` is to end this process. It is called on a thread of its own when the coordinator ends the
        run before the script ends.
        """
        self._at_stop(self._callback(CALLED, run))
