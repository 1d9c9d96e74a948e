"""Switches PyTorch's NVTX ranges on for the life of the script: the hook library reads op names and sizes from them.

PyTorch announces every op and every autograd node as a range. The hook library receives them from PyTorch itself
(emu/hook/nvtx/record_function.c) or, where that fails, as NVTX's injection. The profiler state is that of
`torch.autograd.profiler.emit_nvtx(record_shapes=True)`, which autograd's threads inherit. Torch allows one profiler at
a time: while the script runs a profiler of its own, ours is suspended, and the hook library receives ranges beside it.
It then also keeps activities, and turns that profiler's time stamps into virtual time (emu/hook/cupti/profile.c).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ..private.changes import Names, changes
from .hook_library import Hook


class _Recording(threading.local):
    on = True


recording = _Recording()
"""Its `on` says whether the calling thread's ops are announced."""


@contextlib.contextmanager
def recorded(on: bool) -> Iterator[None]:
    """Announces ops of this thread in the block, or does not. While a compiler traces they must not be announced: the
    ranges have the sizes of an op's inputs, and to ask a traced tensor for its size makes a constant of a size that was
    to stay open.
    """
    before, names = recording.on, changes.usable("op ranges")
    enable: Callable[[bool], None] = _nothing if names is None else names.get("_enable_record_function")
    recording.on = on
    enable(on)
    try:
        yield
    finally:
        recording.on = before
        enable(before)


def _nothing(_: bool) -> None:
    """Does nothing: without ranges there is nothing to switch off."""


class NvtxRanges:
    """The NVTX profiler of one rank's main thread."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._thread = 0
        self._on = False
        self._epoch_ns = 0
        self._beside = 0
        """The number under which the hook library receives ranges beside a profiler of the script; 0: it does not."""
        self._enable: Callable[..., Any] | None = None
        self._disable: Callable[..., Any] | None = None
        """The function that switches the profiler off; None: the ranges are left out."""
        self._config_class: Any = None
        self._experimental: Any = None
        self._nvtx: Any = None
        self._scopes: Any = None

    def install(self) -> None:
        """Makes profilers that the script starts suspend ours. Called once, in the forker."""
        changes.install("op ranges", self._change)
        changes.when_imported("open sizes", lambda names: names.change("SymNode.guard_int", self._left_open))
        os.register_at_fork(after_in_child=self._stop_in_child)

    def _change(self, names: Names) -> None:
        enable, disable = (names.get(f"_autograd.{name}") for name in ("_enable_profiler", "_disable_profiler"))
        for kind in ("profiler._{}_profiler", "profiler_legacy._{}_profiler_legacy"):
            names.change(kind.format("enable"), self._suspending_before)
            names.change(kind.format("disable"), self._resuming_after)
        parts = ("ProfilerConfig", "_ExperimentalConfig", "NVTX", "__members__")
        self._config_class, self._experimental, self._nvtx, self._scopes = map(names.get, parts)
        self._enable, self._disable = enable, disable

    def _left_open(self, guard_int: Callable[..., int]) -> Callable[..., int]:
        """Makes ranges show 0 for an open size. No kernel is launched within such ranges: the tensor has no data."""
        asking = self._hook.ranges_asking

        def guarded(node: Any, file: str, line: int) -> int:
            return 0 if asking() else guard_int(node, file, line)

        return guarded

    def start(self, epoch_ns: int = 0) -> None:
        """Switches the ranges on. Called in the rank, on the thread that will run the script. `epoch_ns`: Unix time at
        virtual time 0.
        """
        self._epoch_ns = epoch_ns
        self._thread = threading.get_ident()
        self._resume()

    def pause(self) -> None:
        """Switches the ranges off until `unpause`. Called on the thread that called `start`."""
        self._suspend()

    def unpause(self) -> None:
        self._resume()

    def _resume(self) -> None:
        if threading.get_ident() != self._thread or self._on or self._enable is None:
            return
        self._end_beside()
        config = self._config_class(
            self._nvtx,
            True,  # record shapes
            False,  # profile memory
            False,  # with stack
            False,  # with flops
            False,  # with modules
            self._experimental(),
        )
        self._hook.ranges_next(len(self._scopes))
        self._enable(config, set())
        self._on = True

    def _suspend(self) -> None:
        if threading.get_ident() == self._thread and self._on:
            assert self._disable is not None, "install comes first"
            self._disable()
            self._on = False

    def _end_beside(self) -> None:
        if self._beside:
            self._hook.ranges_end(self._beside)
            self._beside = 0

    def _suspending_before(self, enable: Callable[..., Any]) -> Callable[..., Any]:
        def enable_profiler(*arguments: Any, **options: Any) -> Any:
            suspends = self._on
            self._suspend()
            self._hook.profiler_begins(self._epoch_ns)
            try:
                self._hook.profiler_section(max(1, self._hook.clock_ns()))
                enabled = enable(*arguments, **options)
            except BaseException:
                self._profiler_ended()
                raise
            finally:
                self._hook.profiler_section(0)
            if suspends and not self._on:
                self._beside = self._hook.ranges_beside()
            return enabled

        return enable_profiler

    def _resuming_after(self, disable: Callable[..., Any]) -> Callable[..., Any]:
        def disable_profiler(*arguments: Any, **options: Any) -> Any:
            try:
                self._hook.profiler_section(max(1, self._hook.clock_ns()))
                return disable(*arguments, **options)
            finally:
                self._profiler_ended()

        return disable_profiler

    def _profiler_ended(self) -> None:
        self._hook.profiler_section(0)
        self._hook.profiler_ended()
        self._resume()

    def _stop_in_child(self) -> None:
        """Switches the ranges off in a worker process of the rank."""
        self._suspend()
        self._end_beside()
        self._thread = 0
