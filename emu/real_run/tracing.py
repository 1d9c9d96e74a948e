"""Decides which steps are traced, and starts and stops their tracing.

The first steps warm the GPU up and let libraries choose their kernels; then a window of steps is traced. A script that
ends before its window begins is told by what was traced of its second step.
"""

from __future__ import annotations

import enum
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._C._profiler import ActiveProfilerType
from torch.autograd import profiler as autograd_profiler

LONGEST_WINDOW_S = 5.0
"""A window ends with the step during which it has lasted so long: a trace of it has a few hundred megabytes."""


class State(enum.Enum):
    WAITING = enum.auto()
    EARLY = enum.auto()
    """Tracing a step that counts only if the script ends before its window."""
    WINDOW = enum.auto()
    DONE = enum.auto()


@dataclass
class Window:
    profiler: Any
    first: int
    """Number of the first traced step, from 1."""
    began_s: float
    ended_s: float = 0.0
    steps: int = 0
    """Traced steps that are over."""


@dataclass
class Tracing:
    """The traced steps of one script."""

    warm: int
    """Steps before the window, at least 1."""
    steps: int
    """The number of steps of the window."""
    everything: bool
    """Trace the whole script instead, from its start to its end."""
    folder: str
    at_end: Callable[[], None]
    """Called when the window is over."""
    state: State = State.WAITING
    done: int = 0
    """Steps of the script that are over."""
    window: Window | None = None
    """The window that is traced, or was traced last."""
    early: Window | None = None
    """The second step's trace, until the window has one."""
    _starting: bool = False

    def script_begins(self) -> None:
        self._watch_profilers()
        if self.everything:
            self._start(State.WINDOW)

    def step_ends(self) -> None:
        self.done += 1
        if self.window is not None and self.state in (State.EARLY, State.WINDOW):
            self.window.steps += 1
        if self.everything or self.state is State.DONE:
            return
        if self.state is State.WINDOW:
            assert self.window is not None
            if self.window.steps >= self.steps or time.time() - self.window.began_s > LONGEST_WINDOW_S:
                self._stop()
                self.state = State.DONE
                self.at_end()
        elif self.done >= self.warm:
            self._end_early()
            self._start(State.WINDOW)
        elif self.state is State.EARLY and self.done == self.warm - 1:
            # The GPU rests while the profiler reads its records: one more step warms it up again.
            self._end_early()
        elif self.state is State.WAITING and self.early is None:
            self._start(State.EARLY)

    def script_ends(self) -> None:
        """Ends the tracing: what has been traced until now is the result."""
        if self.state in (State.EARLY, State.WINDOW):
            self._stop()
        if self.early is not None and (self.window is None or not self.window.steps):
            self.window = self.early
        self.state = State.DONE

    def write(self) -> str | None:
        """Returns the trace's file; None if nothing was traced."""
        if self.window is None:
            return None
        path = os.path.join(self.folder, "trace.json")
        self.window.profiler.export_chrome_trace(path)
        return path

    def _watch_profilers(self) -> None:
        """Gives way to profilers of the script's. There can be one at a time, and the script's own comes first:
        what was traced before it counts.
        """
        prepare = autograd_profiler.profile._prepare_trace

        def prepared(profiler: Any) -> Any:
            if not self._starting and self.state in (State.EARLY, State.WINDOW):
                self._give_way()
            return prepare(profiler)

        setattr(autograd_profiler.profile, "_prepare_trace", prepared)  # noqa: B010, as mypy lets no method be assigned

    def _give_way(self) -> None:
        assert self.window is not None
        self._stop()
        if self.everything or (self.state is State.WINDOW and self.window.steps):
            self.state = State.DONE
            self.at_end()
            return
        if self.state is State.EARLY and self.window.steps:
            self.early = self.window
        self.window, self.state = None, State.WAITING

    def _end_early(self) -> None:
        if self.state is State.EARLY:
            self._stop()
            self.early, self.state = self.window, State.WAITING

    def _start(self, state: State) -> None:
        if torch._C._autograd._profiler_type() == ActiveProfilerType.KINETO:
            return  # the script's own: the next step tries again
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a PyTorch that sees no GPU
            profiler = torch.profiler.profile(activities=activities, record_shapes=True, acc_events=True)
        _synchronize()
        self._starting = True
        profiler.start()
        self._starting = False
        self.window, self.state = Window(profiler, self.done + 1, time.time()), state

    def _stop(self) -> None:
        assert self.window is not None
        _synchronize()
        self.window.ended_s = time.time()
        self.window.profiler.stop()


def _synchronize() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
