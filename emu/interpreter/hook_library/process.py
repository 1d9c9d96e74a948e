"""The process: its device, its connection to the coordinator, its steps and its end."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Sequence
from ctypes import c_char_p, c_int, c_uint32, c_uint64

from ...contract.process_setup import NO_PROCESS, NO_PROCESS_HINT
from .library import CALLED, HookError, Library

_EXIT = ctypes.CFUNCTYPE(None, c_int)
_JOIN = ctypes.CFUNCTYPE(None, c_int)


class ProcessCalls(Library):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._load = self._function("load", c_int, c_char_p)
        self.take_place: Callable[[], None] = self._function("take_place", None)
        """Lets programs that open CUDA's libraries by name find the hook library. Called before torch is imported."""
        self._stand_in = self._function("stand_in", None, c_char_p)
        self.open_ours: Callable[[], None] = self._function("open_ours", None)
        """Gives the hook library's functions to whoever opens a CUDA library by a path, or of another version, from now
        on. Called in the forker, when torch is imported.
        """
        self._number_process = self._function("number_process", None, c_uint32)
        self._start = self._function("start", c_int, c_char_p, c_char_p, c_uint32, c_uint32, c_uint32, c_uint32)
        self._started_by = self._function("started_by", None, c_uint32)
        self._join_later = self._function("join_later", None, c_uint32, _JOIN)
        self._join_in_child = self._function("join_in_child", None, _JOIN)
        self._finish = self._function("finish", None, c_int, c_char_p)
        self._at_step = self._function("at_step", None, CALLED)
        self._at_stop = self._function("at_stop", None, CALLED)
        self._at_exit = self._function("at_exit", None, _EXIT)
        self._answer_stacks = self._function("answer_stacks", c_int, c_int, c_int, CALLED)
        self._warn_once = self._function("warn_once", None, c_char_p, c_char_p)
        self._cudnn_version, self._cuda_version = self._library.cudnnGetVersion, self._library.cudaRuntimeGetVersion
        self._unused_gpu = self._function("unused_gpu", None, c_char_p)
        self._checkpoint = self._function("checkpoint", None, c_uint64, c_uint64, c_uint64, c_char_p)
        self.alone: Callable[[], None] = self._function("alone", None)
        """Notes, at the rank's end, that it was in no process group."""
        self.logged: Callable[[int], None] = self._function("logged", None, c_uint64)
        """Sends a LOGGED record. Called in the rank."""
        self._run_at_step: list[Callable[[], None]] = []
        self.activity: Callable[[], int] = self._function("activity", c_uint64)
        self.loader: Callable[..., None] = self._function(
            "loader", None, *(c_uint32,) * 4, *(c_uint64,) * 7, c_uint32, c_char_p
        )
        """Reports what a data loader has loaded: the fields of a LOADER record, then its payload."""
        self.flush: Callable[[], None] = self._function("flush", None)
        """Sends the records that have gathered. Called in the rank."""
        self.keep_in_step: Callable[[], None] = self._function("keep_in_step", None)
        """Makes the rank go on, where it waits for its GPU, when virtual time is there. Called in the rank."""
        self.mortal: Callable[[], None] = self._function("mortal", None)
        """Says that something dies in this run: the rank is kept in step, and NCCL's watchdogs count virtual time.
        Called in the rank.
        """
        self.gpu_dies: Callable[[int, int, int], None] = self._function("gpu_dies", None, c_uint32, c_uint64, c_uint64)
        """Says that a GPU of the rank's server cannot be used from one instant until another. Called in the rank."""
        self.keep_data_stack: Callable[[], None] = self._function("keep_data_stack", None)
        """Keeps blocks for the frames of Python functions from going back to the kernel one by one. Called in the
        forker.
        """
        self.steps_done: Callable[[], None] = self._function("steps_done", None)
        """Says that the script has done the steps of `--steps`. Called in the rank; does not return."""

    def load(self, device_file: str) -> None:
        """Reads the emulated device's properties, one `key=value` a line. Called in the forker, before anything asks
        for a device. Raises HookError.
        """
        if self._load(os.fsencode(device_file)) != 0:
            raise HookError(f"the hook library rejects {device_file}")

    def stand_in(self, library: str) -> None:
        """Gives the hook library's functions to whoever opens the library by this file name from now on."""
        self._stand_in(library.encode())

    def learn_versions(self) -> None:
        """Asks for the versions of CUDA and of cuDNN, which loads a library that ranks share. Called in the forker,
        when torch is imported.
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
        parent: int | None = None,
    ) -> None:
        """Connects the rank to the coordinator. `process` tells a rank's processes apart; `parent`: the rank that has
        started this one, if it is not a rank from its start. Raises HookError.
        """
        if process:
            self._number_process(process)
        if parent is not None:
            self._started_by(parent)
        status = self._start(os.fsencode(socket_path), os.fsencode(cost_table), rank, world_size, server, local_rank)
        if status == -errno.EAGAIN:
            raise HookError(f"rank {rank}: {NO_PROCESS}; {NO_PROCESS_HINT}")
        if status:
            raise HookError(f"rank {rank} cannot reach the coordinator at {socket_path}")

    def join_later(self, server: int, join: Callable[[int], None]) -> None:
        """Has `join(device)` called when this process, which is not a rank yet, first uses a GPU of the server."""
        self._join_later(server, self._callback(_JOIN, join))

    def use_gpu(self) -> None:
        """Uses the calling thread's GPU, as a call of CUDA's does that names it."""
        device = ctypes.c_int()
        self._library.cudaGetDevice(ctypes.byref(device))
        self._library.cudaSetDevice(device)

    def join_in_child(self, join: Callable[[int], None]) -> None:
        """Has `join(device)` called by a process that the rank forks before it has initialised CUDA, when that process
        first uses a GPU. Called in the rank.
        """
        self._join_in_child(self._callback(_JOIN, join))

    def finish(self, exit_code: int, last_words: str = "") -> None:
        """Sends the rank's last records and disconnects. `last_words`: the exception that ended it, if any."""
        # C's texts end at a NUL: what follows, such as the line of an exception, would be lost.
        self._finish(exit_code, last_words.replace("\0", "\\x00").encode(errors="replace"))

    def warn_once(self, name: str, text: str) -> None:
        """Shows the user `text`, on stderr and in the report; later calls with the same `name` do nothing."""
        self._warn_once(name.encode(errors="replace"), text.encode(errors="replace"))

    def unused_gpu(self, causes: Sequence[str]) -> None:
        """Sends an UNUSED_GPU record. Called in the rank."""
        self._unused_gpu("\n".join(causes).encode(errors="replace"))

    def checkpoint(self, offset: int, nbytes: int, uncomputed: int, path: str) -> None:
        """Sends a CHECKPOINT record. Called in the rank."""
        self._checkpoint(offset, nbytes, uncomputed, path.encode(errors="replace"))

    def at_step(self, run: Callable[[], None]) -> None:
        """Has `run` called at the end of every step of this rank, after what was given before. It must not raise."""
        self._run_at_step.append(run)
        if len(self._run_at_step) == 1:
            self._at_step(self._callback(CALLED, self._step_ends))

    def _step_ends(self) -> None:
        for run in self._run_at_step:
            run()

    def at_stop(self, run: Callable[[], None]) -> None:
        """Has `run`, which is to end this process, called on a thread of its own when the coordinator ends the run
        before the script ends. Called in the rank.
        """
        self._at_stop(self._callback(CALLED, run))

    def answer_stacks(self, ask: int, without_lock: int, write: Callable[[], None]) -> None:
        """Has `write()` called on another thread at the signal `ask`. If that thread does not get Python's lock, the
        rank gets the signal `without_lock`. Called in the rank. Raises HookError.
        """
        error = self._answer_stacks(ask, without_lock, self._callback(CALLED, write))
        if error:
            hint = f"{NO_PROCESS}; {NO_PROCESS_HINT}" if error == errno.EAGAIN else os.strerror(error)
            raise HookError(f"no thread for telling stacks: {hint}")

    def at_exit(self, run: Callable[[int], None]) -> None:
        """Has `run(exit code)` called when the program ends by C's `exit`. The rank has ended after it. Called in the
        rank.
        """
        self._at_exit(self._callback(_EXIT, run))
